"""What nuitka compiles: the program itself, as its entry in the wheel starts it."""

from __future__ import annotations

import sys

from scaler_appliance.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
