"""`python -m scaler_appliance ADDRESS` is `scaler_scheduler ADDRESS`.

Rule: nothing else is imported before PyPy's garbage collector has the nursery it shall have, which it gets when the
interpreter starts and never again (see ADR 0009).
"""

from __future__ import annotations

import os
import sys

NURSERY_VARIABLE = "PYPY_GC_NURSERY"
NURSERY_SIZE = "16M"


def main() -> int:
    """Run the program; its exit code."""
    if sys.implementation.name == "pypy" and NURSERY_VARIABLE not in os.environ:
        os.environ[NURSERY_VARIABLE] = NURSERY_SIZE
        program = ["-m", "scaler_appliance"] if sys.argv[0] == __file__ else [sys.argv[0]]
        os.execv(sys.executable, [sys.executable, *program, *sys.argv[1:]])
    from scaler_appliance.shell.program import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
