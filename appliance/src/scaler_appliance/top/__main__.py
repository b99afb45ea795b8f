"""`python -m scaler_appliance.top ADDRESS` is `scaler_top ADDRESS`."""

from __future__ import annotations

import sys

from scaler_appliance.top.program import main

if __name__ == "__main__":
    sys.exit(main())
