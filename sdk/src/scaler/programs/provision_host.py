"""The command `scaler_provision`."""

from __future__ import annotations

from typing import Callable

from scaler_protocol.programs.startup import run_program


def main() -> int:
    """Run the program; its exit code."""
    return run_program(_load)


def _load() -> Callable[[], int]:
    from scaler.provision.provision_program import main as run

    return run
