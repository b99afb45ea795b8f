"""A fault of the scheduler's own ends the process with a code that says so, and no peer is blamed for it."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import faulty_scheduler
from scheduler_process import RawPeer, SchedulerProcess, check_others_work

from scaler_appliance.shell.core_inputs import EXIT_BROKEN_INVARIANT

StartScheduler = Callable[..., SchedulerProcess]


def report_one(client: RawPeer, worker: RawPeer, task_id: int) -> None:
    """Submit a task, and report its result."""
    client.submit(task_id)
    worker.finish(worker.take_task_ids())


def test_a_broken_invariant_ends_the_process_and_says_where(start: StartScheduler, tmp_path: Path) -> None:
    scheduler = start(script=(faulty_scheduler.__file__, str(tmp_path / "marker")))
    worker, client = scheduler.worker(), scheduler.client()
    for task_id in range(faulty_scheduler.REPORTS_BEFORE_THE_FAULT):
        report_one(client, worker, task_id)
        assert client.take_result_ids() == [task_id]
    report_one(client, worker, faulty_scheduler.REPORTS_BEFORE_THE_FAULT)

    assert scheduler.wait_for_end() == EXIT_BROKEN_INVARIANT
    output = scheduler.output()
    assert "[CRITICAL]" in output and "the core failed at FRAMES" in output and "a planted fault" in output
    assert "faulty_scheduler.py" in output, "the traceback says where"
    assert "broke the protocol" not in output, "no peer is blamed"


def test_the_scheduler_that_replaces_it_serves(start: StartScheduler, tmp_path: Path) -> None:
    (tmp_path / "marker").touch()
    check_others_work(start(script=(faulty_scheduler.__file__, str(tmp_path / "marker"))))
