"""`python -m scaler_appliance ADDRESS` is `scaler_scheduler ADDRESS`."""

from __future__ import annotations

import sys

from scaler_appliance.shell.program import main

if __name__ == "__main__":
    sys.exit(main())
