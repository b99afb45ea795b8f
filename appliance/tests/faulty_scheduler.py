"""`faulty_scheduler.py MARKER ADDRESS OPTIONS…`: a scheduler whose core breaks an invariant of its own, once.

It breaks at the third report of a worker, half of which it has applied by then, and leaves the file MARKER. If that
exists, it is a scheduler like any other: the one that replaces it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scaler_appliance.core.tasks.worker_reports import WorkerReports
from scaler_appliance.shell.scheduler_program import main

REPORTS_BEFORE_THE_FAULT = 2


def plant(marker: Path) -> None:
    """Let the core fail at a report."""
    report, count = WorkerReports._report, 0

    def fail_once(self: WorkerReports, worker: Any, dispatch: Any, start: int, stop: int, span: Any) -> None:
        nonlocal count
        count += 1
        if count > REPORTS_BEFORE_THE_FAULT and not marker.exists():
            marker.touch()
            worker.finished += stop - start
            raise AssertionError("a planted fault")
        report(self, worker, dispatch, start, stop, span)

    WorkerReports._report = fail_once  # type: ignore[method-assign]  # the fault


if __name__ == "__main__":
    plant(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
