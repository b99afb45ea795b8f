"""What a run is told: its settings, the features that an implementation lacks, and the file that says so.

Rule: imports nothing else of this package.
"""
