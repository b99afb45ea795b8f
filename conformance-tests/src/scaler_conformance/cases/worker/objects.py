"""Objects that tasks need: sent inline, fetched in chunks, missing, deleted."""

from __future__ import annotations

from typing import Any

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.other_schemas import tomorrow, yesterday
from scaler_conformance.codec.schema_codec import SCHEMA
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.worker_session import CHUNK_BYTES, WorkerSession


def text_of(size: int) -> str:
    return "".join(f"{number:09d}\n" for number in range(size // 10))


def arguments_task(worker: WorkerSession, object_id: int, function: str = "echo") -> int:
    """A task whose arguments are in an object."""
    return worker.submit_payloads(function, [b""], dependencyCounts=[1], dependencies=[object_id])[0]


@case(covers=["SCL-OBJ-017"])
def remote_object_is_fetched(bench: RoleBench) -> None:
    """An object that was announced as remote is fetched chunk by chunk before its task runs."""
    worker = bench.welcomed()
    text = text_of(5 * CHUNK_BYTES + 123)
    wanted = worker.announce(worker.json([text]))
    worker.expect_value(arguments_task(worker, wanted), text)
    check(worker.requests >= 6, "at least 6 ObjectRequests, one for each chunk", worker.requests)
    worker.expect_nothing_more()


@case(covers=["SCL-OBJ-017"])
def object_in_an_unshared_directory_is_fetched(bench: RoleBench) -> None:
    """A worker that does not share the object directory fetches an object that was announced as shared."""
    worker = bench.welcomed()
    wanted = worker.announce(b'["somewhere else"]', storage="shared")
    worker.expect_value(arguments_task(worker, wanted), "somewhere else")
    worker.expect_nothing_more()


@case(covers=["SCL-OBJ-017"])
def object_is_used_by_many_tasks(bench: RoleBench) -> None:
    """Many tasks that need the same object all get it."""
    worker = bench.welcomed()
    wanted = worker.announce(b"[20, 22]")
    count = min(30, worker.capacity)
    tasks = worker.submit_payloads("sum", [b""] * count, dependencyCounts=[1] * count, dependencies=[wanted] * count)
    for task in tasks:
        worker.expect_value(task, 42)
    worker.expect_nothing_more()


@case(covers=["SCL-OBJ-011"])
def at_most_four_requests_are_unanswered(bench: RoleBench) -> None:
    """A worker that fetches a large object has at most four unanswered requests."""
    worker = bench.welcomed()
    content = worker.json([text_of(12 * CHUNK_BYTES)])
    wanted = worker.announce(content, is_served=False)
    task = arguments_task(worker, wanted, "echo")
    answered = 0
    while answered < len(content):
        request = worker.expect("ObjectRequest", id=wanted)
        worker.fence()
        unanswered = 1 + len(worker.waiting("ObjectRequest"))
        check(unanswered <= 4, "at most 4 unanswered ObjectRequests", unanswered)
        worker.answer(request, content)
        answered = max(answered, request.offset + min(request.length, CHUNK_BYTES))
    worker.expect_outcome(task)


@case(covers=["SCL-OBJ-037"])
def answers_to_an_earlier_fetch_are_no_answers_to_a_later_one(bench: RoleBench) -> None:
    """A task needs an object whose fetch was given up with a task that was cancelled, while requests were open."""
    worker = bench.welcomed()
    text = text_of(3 * CHUNK_BYTES)
    content = worker.json([text])
    wanted = worker.announce(content, is_served=False)
    cancelled = arguments_task(worker, wanted)
    worker.answer(worker.expect("ObjectRequest", id=wanted), content)
    request = worker.expect("ObjectRequest", id=wanted)
    worker.send("TaskCancel", ids=[cancelled])
    worker.expect_confirmation(cancelled, "cancelled")
    task = arguments_task(worker, wanted)
    worker.fence()
    while True:
        worker.answer(request, content)
        worker.wait_until(lambda: worker.waiting("ObjectRequest") or worker.outcomes, "an ObjectRequest, or an outcome")
        if not worker.waiting("ObjectRequest"):
            break
        request = worker.expect("ObjectRequest", id=wanted)
    worker.expect_value(task, text)


@case(covers=["SCL-WRK-014"])
def task_with_a_missing_object_is_lost(bench: RoleBench) -> None:
    """A task whose object the scheduler does not have is lost with objectMissing; other tasks run."""
    worker = bench.welcomed()
    there, missing = worker.create_object(b"[1]"), worker.announce(b"[2]", is_served=False)
    tasks = worker.submit_payloads(
        "sum", [b"", b"", b""], dependencyCounts=[1, 1, 1], dependencies=[there, missing, there]
    )
    request = worker.expect("ObjectRequest", id=missing)
    worker.send("ObjectResponse", id=missing, offset=request.offset, status="missing")
    worker.expect_failure(tasks[1], "objectMissing", "lost")
    worker.expect_value(tasks[0], 1)
    worker.expect_value(tasks[2], 1)
    worker.expect_nothing_more(but=["ObjectRequest"])


@case(covers=["SCL-OBJ-020"])
def failure_has_the_reason_of_the_answer(bench: RoleBench) -> None:
    """The Failure of a task has the missingReason of the answer; older and newer schedulers send none or others."""
    worker = bench.welcomed()
    answers = (("noRoom", SCHEMA), ("unknown", SCHEMA), ("", yesterday()), ("unheardOf", tomorrow()))
    for reason, schema in answers:
        wanted = worker.announce(b"[1]", is_served=False)
        task = arguments_task(worker, wanted)
        request = worker.expect("ObjectRequest", id=wanted)
        fields: Any = {"missingReason": reason} if reason else {}
        worker.send("ObjectResponse", schema=schema, id=wanted, offset=request.offset, status="missing", **fields)
        failure = worker.expect_failure(task, "objectMissing", "lost")
        if reason != "unheardOf":
            expected = reason or "unknown"
            check(failure.missingReason == expected, f"a Failure with the missingReason {expected}", failure)
    worker.expect_nothing_more(but=["ObjectRequest"])


@case(covers=["SCL-WRK-014"])
def task_with_a_deleted_object_is_lost(bench: RoleBench) -> None:
    """A task that waits for an object is lost with objectMissing when the object is deleted."""
    worker = bench.welcomed()
    wanted = worker.announce(b"[1]", is_served=False)
    task = arguments_task(worker, wanted)
    worker.expect("ObjectRequest", id=wanted)
    worker.send("ObjectInstruction", action="delete", ids=[wanted])
    worker.expect_failure(task, "objectMissing", "lost")
    worker.expect_nothing_more(but=["ObjectRequest"])


@case(
    covers=["SCL-WRK-002"],
    latitude="failed with functionNotLoaded, lost with codecUnknown, or lost with objectMissing",
)
def function_that_is_an_object_has_an_outcome(bench: RoleBench) -> None:
    """A json task whose function is an object, which no such worker can load, gets an outcome that says so."""
    worker = bench.welcomed()
    function = worker.create_object(b"no function of any language", kind=1)
    task = worker.submit_payloads("echo", [b"[1]"], functionName="", function=function)[0]
    outcome = worker.expect_outcome(task)
    allowed = ("functionNotLoaded", "codecUnknown", "objectMissing")
    check(outcome.status in ("failed", "lost"), "the task to fail or be lost", outcome)
    check(outcome.failure.kind in allowed, f"a Failure of kind {' or '.join(allowed)}", outcome.failure)
    worker.expect_nothing_more()


@case(covers=["SCL-OBJ-018"])
def deleted_object_is_freed(bench: RoleBench) -> None:
    """The worker frees the content of a deleted object: a later task that names the object does not get it."""
    worker = bench.welcomed()
    wanted = worker.create_object(b"[1]")
    worker.expect_value(arguments_task(worker, wanted), 1)
    worker.send("ObjectInstruction", action="delete", ids=[wanted])
    task = arguments_task(worker, wanted)
    worker.wait_until(
        lambda: worker.waiting("ObjectRequest") or worker.outcomes, "an ObjectRequest, or an outcome of the task"
    )
    if worker.waiting("ObjectRequest"):
        worker.send("ObjectResponse", id=wanted, status="missing")
    outcome = worker.expect_outcome(task)
    check(outcome.status == "lost", "the task to be lost, since its object was deleted", outcome)


@case(covers=["SCL-OBJ-016"])
def spill_is_ignored(bench: RoleBench) -> None:
    """An ObjectInstruction with the action spill is ignored."""
    worker = bench.welcomed()
    wanted = worker.create_object(b"[1]")
    worker.send("ObjectInstruction", action="spill", ids=[wanted])
    worker.expect_value(arguments_task(worker, wanted), 1)
    worker.expect_nothing_more()
