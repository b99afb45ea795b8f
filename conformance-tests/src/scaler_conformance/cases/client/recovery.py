"""Sessions that end unexpectedly, and what follows."""

from __future__ import annotations

from typing import Optional

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.client_session import ClientSession
from scaler_conformance.playing.connection_attempts import check_growing_pauses
from scaler_conformance.playing.conversation import check

LARGE = 300_000


def finish(bench: RoleBench, session: Optional[ClientSession], *tasks: int) -> None:
    """Each task ends with one outcome: its result in the new session, or an error."""
    for task in tasks:
        if session is not None:
            bench.any_session.wait_until(
                lambda task=task, session=session: session.find_task(task) or bench.outcome(task),  # type: ignore[misc]
                f"task {task} to be sent again, or to end with an error",
            )
            sent = session.find_task(task)
            if sent is not None:
                session.succeed(sent)
                bench.expect_result(task)
                continue
        bench.expect_error(task)


@case(covers=["SCL-SES-023"])
def reconnects_to_a_restarted_scheduler(bench: RoleBench) -> None:
    """When its scheduler restarts, the client says Hello to it, and each unfinished task has one outcome."""
    session = bench.welcomed()
    done, *unfinished = bench.submit(4)
    session.succeed(session.expect_task(done))
    bench.expect_result(done)
    session.expect_tasks(unfinished)
    bench.restart_scheduler()
    renewed = bench.rejoined(schedulerId=bytes(range(16)), session=99)
    finish(bench, renewed, *unfinished)
    assert renewed is not None
    check(renewed.find_task(done) is None, f"task {done}, which has its result, not to be sent again", "the task")
    later = bench.submit_one()
    renewed.succeed(renewed.expect_task(later))
    bench.expect_result(later)


@case(covers=["SCL-SES-023"])
def retries_after_shutting_down(bench: RoleBench) -> None:
    """A client that is refused with shuttingDown tries again."""
    session = bench.welcomed()
    task = bench.submit_one()
    session.expect_task(task)
    bench.restart_scheduler()
    refused = bench.any_session.wait_until(bench.next_hello, "the client to reconnect and send Hello")
    refused.expect("Hello")
    refused.send("Refusal", reason="shuttingDown", message="not now")
    renewed = bench.rejoined(refused)
    finish(bench, renewed, task)


@case(covers=["SCL-SES-009"])
def not_greeted_ends_the_session(bench: RoleBench) -> None:
    """A client that is refused with notGreeted says Hello again, or reports its tasks as failed."""
    session = bench.welcomed()
    task = bench.submit_one()
    session.expect_task(task)
    session.send("Refusal", reason="notGreeted", message="who are you?")
    renewed = bench.rejoined(session, unless=lambda: bench.outcome(task))
    finish(bench, renewed, task)


@case(covers=["SCL-SES-021"])
def nothing_of_an_old_session_is_sent(bench: RoleBench) -> None:
    """A new session contains no object, request or cancel of the previous one."""
    session = bench.welcomed(session=41)
    fetched, task = bench.submit(1)[0], bench.submit(1, size=LARGE)[0]
    object_id = session.new_result_object()
    session.succeed_by_object(session.expect_task(fetched), object_id)
    session.expect("ObjectRequest", id=object_id)
    session.wait_until(lambda: len(session.tasks) == 2, "the second task")
    if "cancel" in bench.can:
        cancelled = bench.submit_one()
        session.expect_task(cancelled)
        bench.cancel(cancelled)
        session.expect("TaskCancel")
    bench.restart_scheduler()
    renewed = bench.rejoined(session=42)
    assert renewed is not None
    finish(bench, renewed, fetched, task)
    renewed.fence()
    strange = renewed.waiting("ObjectRequest", "TaskCancel") + [
        each.message for each in renewed.objects.values() if each.id >> 40 != 42
    ]
    check(not strange, "no message about the previous session", strange)
    check(
        object_id not in renewed.deleted,
        f"no message about object {object_id:x} of the previous session",
        "its deletion",
    )
    used = {each for sent in renewed.tasks for each in sent.dependencies}
    check(all(each >> 40 == 42 for each in used), "dependencies of session 42 only", [f"{each:x}" for each in used])


@case(covers=["SCL-CLT-007"])
def at_most_once_is_not_sent_twice(bench: RoleBench) -> None:
    """A task with the option atMostOnce ends with an error when its session ends; other tasks may be sent again."""
    bench.need("atMostOnce")
    session = bench.welcomed()
    once, twice = bench.submit_one(atMostOnce=True), bench.submit_one()
    session.expect_tasks([once, twice])
    check(
        session.expect_task(once).options.atMostOnce,
        "the option atMostOnce in the Task message",
        session.expect_task(once).message,
    )
    bench.restart_scheduler()
    renewed = bench.rejoined()
    finish(bench, renewed, twice)
    assert renewed is not None
    renewed.fence()
    check(renewed.find_task(once) is None, "the atMostOnce task not to be sent again", "the task")
    bench.expect_error(once)


@case(covers=["SCL-CLT-005", "SCL-SES-021"])
def a_late_outcome_of_the_old_session_is_ignored(bench: RoleBench) -> None:
    """A task that is sent again has one outcome, that of the new session."""
    session = bench.welcomed()
    tasks = bench.submit(3)
    sent = session.expect_tasks(tasks)
    bench.restart_scheduler()
    renewed = bench.rejoined()
    assert renewed is not None
    session.succeed(*sent)  # the connection has ended, so this is lost
    finish(bench, renewed, *tasks)
    renewed.succeed(*renewed.tasks[:3])
    renewed.fence()
    bench.ping()


@case(covers=["SCL-TRN-009"])
def waits_longer_between_attempts(bench: RoleBench) -> None:
    """While no scheduler listens at the address, the pauses between attempts to connect grow."""
    session = bench.welcomed()
    session.expect_task(bench.submit_one())
    check_growing_pauses(bench.router, bench.settings.deadline_seconds)
