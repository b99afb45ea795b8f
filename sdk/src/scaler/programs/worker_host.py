"""The command `scaler_cluster`, which is `scaler_worker` too."""

from __future__ import annotations

from typing import Callable

from scaler_protocol.program_starting import run_program


def main() -> int:
    """Run the program; its exit code."""
    return run_program(_load)


def _load() -> Callable[[], int]:
    from scaler.worker.supervisor import main as run

    return run
