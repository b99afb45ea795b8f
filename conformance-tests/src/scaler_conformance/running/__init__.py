"""Running cases against an implementation: the command line, and the runner.

Rule: nothing else of this package imports it.
"""
