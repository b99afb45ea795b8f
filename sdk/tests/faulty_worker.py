"""`faulty_worker.py MARKER ADDRESS OPTIONS…`: a worker whose agent's core breaks an invariant of its own, once.

It breaks at the third report of a processor, half of which it has applied by then, and leaves the file MARKER. If that
exists, it is a worker like any other: the one that replaces it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scaler.worker.agent.core.task_flow import TaskFlow
from scaler.worker.supervisor import main

REPORTS_BEFORE_THE_FAULT = 2


def plant(marker: Path) -> None:
    """Let the core fail at a report."""
    on_results, count = TaskFlow.on_results, 0

    def fail_once(self: TaskFlow, number: int, results: Any) -> None:
        nonlocal count
        count += 1
        if count > REPORTS_BEFORE_THE_FAULT and not marker.exists():
            marker.touch()
            self.pool.busy -= 1
            raise AssertionError("a planted fault")
        on_results(self, number, results)

    TaskFlow.on_results = fail_once  # type: ignore[method-assign]  # the fault


if __name__ == "__main__":
    plant(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
