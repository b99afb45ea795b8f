"""What becomes of a case: verdicts, results, the register of requirements, and the list of known failures.

Rule: imports `configuration` alone of this package.
"""
