"""`python -m scaler_appliance.ui MONITOR_ADDRESS` is `scaler_ui MONITOR_ADDRESS`."""

from __future__ import annotations

import sys

from scaler_appliance.ui.program import main

if __name__ == "__main__":
    sys.exit(main())
