"""Cancelling: who decides, and what is no outcome."""

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
    """The answer cancelled ends the task, and a result that comes all the same changes nothing."""
    session, task, sent = cancelling(bench)
    session.confirm(sent, "cancelled")
    bench.expect_outcome(task, "cancelled")
    session.succeed(sent)
    session.fence()
    bench.ping()


@case(covers=["SCL-CLT-008"])
def running_is_no_outcome(bench: RoleBench) -> None:
    """After the answer running the task's result is awaited."""
    session, task, sent = cancelling(bench)
    session.confirm(sent, "running")
    bench.expect_unknown(task)
    session.succeed(sent)
    bench.expect_result(task)


@case(covers=["SCL-CLT-008"])
def not_found_is_no_outcome(bench: RoleBench) -> None:
    """The answer notFound says that the outcome came before; if it did not, it is still awaited."""
    session, task, sent = cancelling(bench)
    session.confirm(sent, "notFound")
    bench.expect_unknown(task)
    session.succeed(sent)
    bench.expect_result(task)


@case(covers=["SCL-CLT-008"])
def a_result_crosses_the_cancel(bench: RoleBench) -> None:
    """A result that was on its way when the cancel went out is the outcome; notFound comes for a task that ended."""
    session, task, sent = cancelling(bench, force=True)
    session.succeed(sent)
    session.confirm(sent, "notFound")
    bench.expect_result(task)
    session.fence()


@case(covers=["SCL-CLT-008"])
def an_unasked_cancel_is_an_outcome(bench: RoleBench) -> None:
    """A scheduler may cancel tasks unasked, as targets of a graph that cannot be reached."""
    session = bench.welcomed()
    first, second = bench.submit(2)
    session.confirm(session.expect_task(first), "cancelled")
    bench.expect_outcome(first, "cancelled")
    session.succeed(session.expect_task(second))
    bench.expect_result(second)


@case(covers=["SCL-CLT-008"])
def unasked_answers_are_ignored(bench: RoleBench) -> None:
    """Running and notFound for a task that was not cancelled are no outcome, and unknown ids are ignored."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    session.send("TaskCancelConfirm", ids=[555_555, sent.id, sent.id], outcomes=[0, 1, 2])
    bench.expect_unknown(task)
    session.succeed(sent)
    bench.expect_result(task)
