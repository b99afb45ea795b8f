"""A virtual environment for each peer, made once, below benchmarks/.venvs/.

A peer that cannot be installed is a reported skip: the others are measured without it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".venvs"
_INSTALL_TIMEOUT_SECONDS = 600.0
_NEEDED_BY_THE_BENCHMARKS = ("psutil", "numpy")


@dataclass(frozen=True)
class Peer:
    """What to install for a peer, and how many tasks it manages in reasonable time."""

    engine: str
    requirements: tuple[str, ...]
    tasks: int
    round_trips: int
    maps_everything: bool = False
    """Its map is chunked, so that it takes the full number of tasks."""


PEERS = (
    Peer("dask", ("distributed",), tasks=10_000, round_trips=500),
    Peer("ray", ("ray",), tasks=10_000, round_trips=1_000, maps_everything=True),
    Peer("scaler-1", ("scaler==1.9.9",), tasks=5_000, round_trips=500),
    Peer("scaler-2", ("opengris-scaler",), tasks=5_000, round_trips=500),
    Peer("scaled", ("scaled==1.0.2",), tasks=10_000, round_trips=100),
)


class InstallationError(Exception):
    """A peer's environment could not be made; the message is the last line of the installer."""


def python_of(peer: Peer) -> str:
    """The interpreter of the peer's environment; makes the environment if it is not there.

    Raises InstallationError.
    """
    folder = FOLDER / peer.engine
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if complete.exists():
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)  # a half-made one
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", *peer.requirements, *_NEEDED_BY_THE_BENCHMARKS])
    complete.touch()
    return str(python)


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InstallationError(f"no end within {_INSTALL_TIMEOUT_SECONDS:.0f} s") from error
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        raise InstallationError(lines[-1] if lines else f"exit code {error.returncode}") from error
