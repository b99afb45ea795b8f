"""What tasks print."""

from __future__ import annotations

from typing import List

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.worker_session import Outcome, WorkerSession

STREAMED = {"streamOutput": True}


def printed(worker: WorkerSession, task: int, stream: int) -> str:
    return "".join(log.text for log in worker.waiting("TaskLog") if log.id == task and log.stream == stream)


@case(covers=["SCL-WRK-016"], features=["stream-output"])
def output_is_streamed(bench: RoleBench) -> None:
    """What a task with the option streamOutput prints is sent in TaskLog messages, for each stream."""
    worker = bench.welcomed()
    out = worker.submit("log", 1, "to the output: ä€\n", options=STREAMED)
    err = worker.submit("log", 2, "to the error stream\n", options=STREAMED)
    worker.expect_value(out, None)
    worker.expect_value(err, None)
    worker.fence()
    check(printed(worker, out, 1) == "to the output: ä€\n", "all that the task printed", worker.waiting("TaskLog"))
    check(printed(worker, err, 2) == "to the error stream\n", "all that the task printed", worker.waiting("TaskLog"))
    worker.expect_nothing_more(but=["TaskLog"])


@case(covers=["SCL-WRK-017"], features=["stream-output"])
def output_comes_before_the_outcome(bench: RoleBench) -> None:
    """All TaskLog messages of a task precede its outcome."""
    worker = bench.welcomed()
    tasks = worker.submit_many("log", [[1, f"line {index}\n"] for index in range(20)], options=STREAMED)
    outcomes: List[Outcome] = [worker.expect_value(task, None) for task in tasks]
    worker.fence()
    ends = {outcome.id: outcome.message.position for outcome in outcomes}
    late = [log for log in worker.waiting("TaskLog") if log.position > ends.get(log.id, 0)]
    check(not late, "no TaskLog after the outcome of its task", late)


@case(covers=["SCL-WRK-018"])
def output_is_not_streamed_by_default(bench: RoleBench) -> None:
    """What a task without the option streamOutput prints is not sent."""
    worker = bench.welcomed()
    worker.expect_value(worker.submit("log", 1, "unasked\n"), None)
    worker.expect_value(worker.submit("log", 2, "unasked\n"), None)
    worker.expect_nothing_more()
