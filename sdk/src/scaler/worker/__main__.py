"""`python -m scaler.worker`: scaler_cluster without a supervisor."""

from __future__ import annotations

import sys
from typing import Callable

from scaler_protocol.programs.startup import run_program


def _load() -> Callable[[], int]:
    from scaler.worker.worker_program import main as run

    return run


if __name__ == "__main__":
    sys.exit(run_program(_load))
