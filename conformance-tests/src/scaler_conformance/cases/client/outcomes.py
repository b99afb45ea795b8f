"""How the client handles outcomes."""

from __future__ import annotations

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.other_schemas import tomorrow
from scaler_conformance.codec.schema_codec import SCHEMA

FAILED_KINDS = (
    "taskRaised",
    "functionNotLoaded",
    "argumentNotLoaded",
    "resultNotSerializable",
    "exceptionNotSerializable",
)
KINDS = SCHEMA.enum("FailureKind")


@case(covers=["SCL-CLT-005"])
def outcomes_arrive_in_any_order(bench: RoleBench) -> None:
    """Results may arrive in any order, batched into messages in any way."""
    session = bench.welcomed()
    sent = session.expect_tasks(bench.submit(9))
    bench.random.shuffle(sent)
    session.succeed(*sent[:4])
    session.succeed(sent[4])
    session.tell([], [])
    session.succeed(*sent[5:])
    for task in range(1, 10):
        bench.expect_result(task)


@case(covers=["SCL-CLT-005"])
def outcomes_of_unknown_tasks_are_ignored(bench: RoleBench) -> None:
    """The outcome of a task that was never submitted is ignored, also among others in one message."""
    session = bench.welcomed()
    first, second = session.expect_tasks(bench.submit(2))
    session.tell([999_999], [b"1"])
    session.tell([first.id, 888_888, second.id], [b'"first"', b"1", b'"second"'])
    bench.expect_result(1, "first")
    bench.expect_result(2, "second")
    session.fence()


@case(covers=["SCL-CLT-005"])
def a_second_outcome_is_ignored(bench: RoleBench) -> None:
    """The first outcome of a task counts; the user does not see any other."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    session.succeed(sent, values=["first"])
    session.succeed(sent, values=["second"])
    session.fail(sent, "third")
    bench.expect_result(task, "first")
    session.fence()
    bench.ping()


@case(covers=["SCL-CLT-003"])
def failures_are_read_in_every_codec(bench: RoleBench) -> None:
    """The payload of a failed task is a Failure whatever the codec is, and the user sees its message."""
    session = bench.welcomed()
    tasks = [bench.submit_one(codec="json"), bench.submit_one(codec="raw"), bench.submit_one()]
    sent = session.expect_tasks(tasks)
    session.fail(sent[0], "it broke in json")
    session.fail(sent[1], "it broke in raw")
    failure = SCHEMA.encode_failure(kind="taskRaised", message="it broke beside", attempts=1)
    session.tell([sent[2].id, 777_777], [failure, b"1"], statuses=[1, 0], codec="json")
    bench.expect_error(tasks[0], "it broke in json")
    bench.expect_error(tasks[1], "it broke in raw")
    bench.expect_error(tasks[2], "it broke beside")


@case(covers=["SCL-CLT-003"])
def every_kind_of_failure_is_reported(bench: RoleBench) -> None:
    """A Failure of any kind, failed or lost, ends its task with an error that contains the message."""
    session = bench.welcomed()
    tasks = bench.submit(len(KINDS))
    for task, kind in zip(tasks, KINDS):
        status = "failed" if kind in FAILED_KINDS else "lost"
        session.fail(session.expect_task(task), f"it is {kind}", kind, status)
    for task, kind in zip(tasks, KINDS):
        bench.expect_error(task, f"it is {kind}")


@case(covers=["SCL-VER-003"])
def an_unknown_kind_of_failure_is_a_failure(bench: RoleBench) -> None:
    """A Failure of an unknown kind, from a later minor version, ends the task with an error that has the message."""
    session = bench.welcomed()
    failed, lost = bench.submit(2)
    session.fail(session.expect_task(failed), "unheard of one", "unheardOf", schema=tomorrow())
    session.fail(session.expect_task(lost), "unheard of two", "unheardOf", status="lost", schema=tomorrow())
    bench.expect_error(failed, "unheard of one")
    bench.expect_error(lost, "unheard of two")


@case(covers=["SCL-CLT-012"])
def explanations_and_logs_are_not_outcomes(bench: RoleBench) -> None:
    """An Explanation, an Info or a TaskLog ends no task, even if it is unrequested or names an unknown task."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    session.send("Explanation", requestId=0, text="tasks wait: no worker is connected")
    session.send("Explanation", requestId=4711, text="unasked")
    session.send("Info", requestId=4711, slots=1)
    for stream in (1, 2, 3, 200):
        session.send("TaskLog", id=sent.id, stream=stream, text="so far so good\n")
        session.send("TaskLog", id=666_666, stream=stream, text="who is it?\n")
    bench.expect_unknown(task)
    session.succeed(sent)
    bench.expect_result(task)
