"""Objects: their owners, the tasks that need them, and where their bytes are.

Rule: the core knows sizes and places; the shell has the files.
"""
