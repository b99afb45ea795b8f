"""The program `scaler-conformance`.

Rule: exit code 0 means that cases ran and all of them passed, nothing else; 2 means that nothing was judged.
"""

from __future__ import annotations

import argparse
import sys
from typing import Optional, Sequence

from scaler_conformance import __version__

NOTHING_JUDGED = 2

_NO_CASES = f"""\
scaler-conformance {__version__} has no test cases yet, so it cannot judge an implementation.
The protocol is described in the folder protocol-spec/ of the source tree: protocol-spec/schema/ has the
messages as Cap'n Proto schema files, with comments on who sends what and when."""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the program; `arguments` are those of the command line by default. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="scaler-conformance",
        description="Test an implementation of the Scaler protocol. This version has no test cases yet.",
    )
    parser.add_argument("--version", action="version", version=f"scaler-conformance {__version__}")
    parser.parse_args(arguments)
    print(_NO_CASES, file=sys.stderr)
    return NOTHING_JUDGED


if __name__ == "__main__":
    sys.exit(main())
