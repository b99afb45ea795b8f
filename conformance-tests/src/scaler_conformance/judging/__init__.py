"""Judging cases: verdicts, results, the register of requirements, and the list of known failures.

Rule: within this package, it imports only `configuration`.
"""
