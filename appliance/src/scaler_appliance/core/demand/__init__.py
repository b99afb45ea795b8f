"""How many slots the tasks could use, for those who start and stop workers.

Rule: placement knows nothing of it: what is here reads the state, and costs nothing without one who asks for it.
"""
