"""`python -m scaler_appliance.ui MONITOR_ADDRESS` is `scaler_ui MONITOR_ADDRESS`."""

from __future__ import annotations

import sys
from typing import Callable

from scaler_protocol.programs.startup import run_program


def main() -> int:
    """Run the program; its exit code."""
    return run_program(_load)


def _load() -> Callable[[], int]:
    from scaler_appliance.ui.ui_program import main as run

    return run


if __name__ == "__main__":
    sys.exit(main())
