"""`python -m scaler.worker`: scaler_cluster without a supervisor."""

from __future__ import annotations

import sys
from typing import Callable

from scaler.worker.early_signals import leave_on_signals


def _load() -> Callable[[], int]:
    from scaler.worker.worker_program import main as run

    return run


if __name__ == "__main__":
    leave_on_signals()
    from scaler_protocol.programs.startup import run_program

    sys.exit(run_program(_load))
