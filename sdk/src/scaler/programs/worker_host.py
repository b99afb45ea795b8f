"""The command `scaler_cluster`, which is `scaler_worker` too."""

from __future__ import annotations

import sys
from typing import Callable

from scaler.worker.early_signals import leave_on_signals


def main() -> int:
    """Run the program; its exit code."""
    leave_on_signals()
    from scaler_protocol.programs.startup import run_program

    return run_program(_load)


def _load() -> Callable[[], int]:
    from scaler.compat.installation import check_installation
    from scaler.exceptions import ScalerError, with_page
    from scaler.supported_systems import check_system

    try:
        check_system()
        check_installation()
    except ScalerError as error:
        sys.exit(f"scaler_cluster: error: {with_page(error)}")
    from scaler.worker.supervisor import main as run

    return run
