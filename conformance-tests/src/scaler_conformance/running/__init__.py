"""Running cases against an implementation: the command line and the runner.

Rule: nothing else in this package imports it.
"""
