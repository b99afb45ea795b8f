"""Where schedulers and workers run. Clients run everywhere."""

from __future__ import annotations

import os

from scaler.exceptions import ProgramStartError


def check_system() -> None:
    """Raise ProgramStartError on a system on which schedulers and workers do not run."""
    if not hasattr(os, "fork"):
        raise ProgramStartError(
            "schedulers and workers run on Linux and macOS: connect to a cluster there with Client(address), or use WSL"
        )
