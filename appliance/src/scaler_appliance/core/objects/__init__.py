"""Objects: who owns them, who needs them, and where their bytes are.

Rule: the core knows sizes and places; the shell has the files.
"""
