"""Sessions of clients and workers, and how much each may have in flight.

Rule: a session holds everything that ends with it.
"""
