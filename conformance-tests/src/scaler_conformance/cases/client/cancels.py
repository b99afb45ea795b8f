"""Cancels: which answers are an outcome, and which are not."""

from __future__ import annotations

from typing import Tuple

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.client_session import ClientSession, SentTask


def cancelling(bench: RoleBench, force: bool = False) -> Tuple[ClientSession, int, SentTask]:
    """A task whose cancel has reached the scheduler."""
    bench.need("cancel")
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    bench.cancel(task, force)
    session.expect_cancel(sent)
    return session, task, sent


@case(covers=["SCL-CLT-008"], smoke=True)
def cancelled_is_the_outcome(bench: RoleBench) -> None:
    """The answer cancelled ends the task, and a result that still arrives is ignored."""
    session, task, sent = cancelling(bench)
    session.confirm(sent, "cancelled")
    bench.expect_outcome(task, "cancelled")
    session.succeed(sent)
    session.fence()
    bench.ping()


@case(covers=["SCL-CLT-008"])
def running_is_not_an_outcome(bench: RoleBench) -> None:
    """After the answer running, the client waits for the task's result."""
    session, task, sent = cancelling(bench)
    session.confirm(sent, "running")
    bench.expect_unknown(task)
    session.succeed(sent)
    bench.expect_result(task)


@case(covers=["SCL-CLT-008"])
def not_found_is_not_an_outcome(bench: RoleBench) -> None:
    """After the answer notFound, the client waits for the outcome if it has not arrived yet."""
    session, task, sent = cancelling(bench)
    session.confirm(sent, "notFound")
    bench.expect_unknown(task)
    session.succeed(sent)
    bench.expect_result(task)


@case(covers=["SCL-CLT-008"])
def a_result_crosses_the_cancel(bench: RoleBench) -> None:
    """A result that crosses the cancel is the outcome; the notFound that follows is ignored."""
    session, task, sent = cancelling(bench, force=True)
    session.succeed(sent)
    session.confirm(sent, "notFound")
    bench.expect_result(task)
    session.fence()


@case(covers=["SCL-CLT-008"])
def an_unrequested_cancel_is_an_outcome(bench: RoleBench) -> None:
    """A scheduler may cancel tasks that the client did not cancel, such as unreachable targets of a graph."""
    session = bench.welcomed()
    first, second = bench.submit(2)
    session.confirm(session.expect_task(first), "cancelled")
    bench.expect_outcome(first, "cancelled")
    session.succeed(session.expect_task(second))
    bench.expect_result(second)


@case(covers=["SCL-CLT-008"])
def unrequested_answers_are_ignored(bench: RoleBench) -> None:
    """running and notFound for a task that was not cancelled are ignored, and so are answers for unknown ids."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    session.send("TaskCancelConfirm", ids=[555_555, sent.id, sent.id], outcomes=[0, 1, 2])
    bench.expect_unknown(task)
    session.succeed(sent)
    bench.expect_result(task)
