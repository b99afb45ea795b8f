"""Runs the suite against all implementations of the tree: `python -m implementations FOLDER`."""

import sys
from pathlib import Path

from implementations import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
