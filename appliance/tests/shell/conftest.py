from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator, List, Sequence

import pytest
from connections_bench import Bench
from scheduler_process import INTERPRETERS, SchedulerProcess, unavailable

StartScheduler = Callable[..., SchedulerProcess]


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A scheduler's connections, without a scheduler."""
    made = Bench("tcp://127.0.0.1:0")
    yield made
    made.close()


@pytest.fixture(params=INTERPRETERS)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartScheduler]:
    """Starts schedulers on this interpreter; those that still run at the end are ended."""
    reason = unavailable(request.param)
    if reason:
        pytest.skip(reason)
    started: List[SchedulerProcess] = []

    def start_one(
        *options: str, address: str = "tcp://127.0.0.1:0", wait: bool = True, script: Sequence[str] = ()
    ) -> SchedulerProcess:
        program, address_file = INTERPRETERS[request.param], tmp_path / f"address{len(started)}"
        scheduler = SchedulerProcess(program, address_file, address, *options, script=script)
        started.append(scheduler)
        if wait:
            scheduler.wait_until_ready()
        return scheduler

    yield start_one
    for scheduler in started:
        scheduler.close()


@pytest.fixture
def scheduler(start: StartScheduler) -> SchedulerProcess:
    """A scheduler with default options."""
    return start()
