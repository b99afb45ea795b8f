"""What the tests of the worker share: a forked processor, and a scheduler that does what a test tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List

import pytest
from fake_scheduler import FakeScheduler, StartWorker, WorkerProgram
from forked_processor import ForkedProcessor
from worker_gates import Gate

from scaler.worker.progress import FINISHED


@pytest.fixture
def processor(tmp_path: Path) -> Iterator[ForkedProcessor]:
    """A processor whose watchdog never looks, so that no task of a test is long by accident."""
    forked = ForkedProcessor(str(tmp_path / "new-"), look_interval_seconds=3600)
    yield forked
    forked.close()


@pytest.fixture
def watched_processor(tmp_path: Path) -> Iterator[ForkedProcessor]:
    """A processor whose watchdog looks, but not so often that a busy machine matters."""
    forked = ForkedProcessor(str(tmp_path / "new-"), look_interval_seconds=0.1)
    yield forked
    forked.close()


@pytest.fixture
def finished_bit() -> int:
    return FINISHED


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    fake = FakeScheduler()
    yield fake
    fake.close()


@pytest.fixture
def start_worker(scheduler: FakeScheduler) -> Iterator[StartWorker]:
    programs: List[WorkerProgram] = []

    def start(*options: str, address: str = "") -> WorkerProgram:
        programs.append(WorkerProgram(address or scheduler.address, *options))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(str(tmp_path / "gate"))
    yield made
    made.remove()
