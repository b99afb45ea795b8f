"""What the tests of the SDK share: local clusters, with the scheduler on CPython and on PyPy."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

from scaler import Client, SchedulerClusterCombo
from scaler.cluster.appliance import PROGRAM_VARIABLE

TREE = Path(__file__).resolve().parents[2]
PYPY = TREE / ".venv-pypy/bin/pypy3"

PLAYED = ("client", "worker", "fault_injection", "long_lives")
"""Folders of tests that play schedulers, which have no keys."""


@pytest.fixture(autouse=True)
def _played_schedulers_have_no_keys(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.relative_to(Path(__file__).parent).parts[0] in PLAYED:
        monkeypatch.setenv("SCALER_INSECURE", "1")


def start_combo(interpreter: str, n_workers: int, **options: Any) -> SchedulerClusterCombo:
    """A local cluster whose scheduler runs on the interpreter."""
    if interpreter == "pypy":
        if not PYPY.exists():
            pytest.skip("no PyPy here (make test says why)")
        os.environ[PROGRAM_VARIABLE] = f"{PYPY} -m scaler_appliance"
    try:
        return SchedulerClusterCombo(n_workers=n_workers, logging_level="WARNING", **options)
    finally:
        os.environ.pop(PROGRAM_VARIABLE, None)


@pytest.fixture(scope="session")
def shared_combos() -> Iterator[Callable[[str], SchedulerClusterCombo]]:
    """Starts a cluster of four workers for an interpreter when it is first asked for, and keeps it.

    A parametrised fixture would end the one to start the other, twice for each file of tests.
    """
    with contextlib.ExitStack() as stack:
        yield functools.lru_cache(maxsize=None)(lambda interpreter: stack.enter_context(start_combo(interpreter, 4)))


@pytest.fixture(params=["cpython", "pypy"])
def address(request: pytest.FixtureRequest, shared_combos: Callable[[str], SchedulerClusterCombo]) -> str:
    """The address of a cluster of four workers; each test that uses it runs against both kinds of scheduler."""
    return shared_combos(request.param).get_address()


@pytest.fixture(scope="session")
def any_address() -> Iterator[str]:
    """The address of a cluster of two workers, for tests to which the kind of scheduler makes no difference."""
    with start_combo("cpython", 2) as combo:
        yield combo.get_address()


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address=address) as client:
        yield client


@pytest.fixture
def any_client(any_address: str) -> Iterator[Client]:
    with Client(address=any_address) as client:
        yield client


@pytest.fixture
def done_files(tmp_path: Path) -> List[Path]:
    """Two paths for tasks to say by a file that they run, or to be told by one that they may end."""
    return [tmp_path / "running", tmp_path / "go"]
