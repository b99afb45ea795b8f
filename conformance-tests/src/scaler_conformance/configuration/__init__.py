"""What a run is given: its settings, the features that an implementation lacks, and the file with both.

Rule: imports nothing else of this package.
"""
