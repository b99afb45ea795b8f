"""Tasks that are run, one and many."""

from __future__ import annotations

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case


@case(covers=["SCL-WRK-001"], smoke=True)
def one_task_is_run(bench: RoleBench) -> None:
    """A task gets one result, in the codec in which it was asked."""
    worker = bench.welcomed()
    task = worker.submit("echo", {"a": [1, None]})
    worker.expect_value(task, {"a": [1, None]})
    worker.expect_nothing_more()
