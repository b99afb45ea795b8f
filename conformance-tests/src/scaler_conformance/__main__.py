"""Runs the program `scaler-conformance`: `python -m scaler_conformance`."""

import sys

from scaler_conformance.running.program import main

if __name__ == "__main__":
    sys.exit(main())
