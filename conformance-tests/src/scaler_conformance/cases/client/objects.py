"""Large arguments and large results."""

from __future__ import annotations

import os
from typing import List, Tuple

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.other_schemas import tomorrow
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.client_session import CHUNK_BYTES, ClientObject, ClientSession, SentTask, tag_of
from scaler_conformance.playing.conversation import check

LARGE = 300_000


def remote_arguments(bench: RoleBench, size: int = LARGE) -> Tuple[ClientSession, SentTask, ClientObject]:
    """A task whose arguments are an object of storage remote."""
    session = bench.welcomed()
    bench.submit(1, size=size)
    session.wait_until(lambda: session.tasks, "a Task message")
    task = session.tasks[0]
    if not task.dependencies or session.objects[task.dependencies[0]].storage != "remote":
        raise NotApplicable("the client does not use storage remote for large arguments")
    return session, task, session.objects[task.dependencies[0]]


@case(covers=["SCL-CLT-009"])
def large_arguments_become_an_object(bench: RoleBench) -> None:
    """Arguments of Limits.inlineBytes or more become an object of kind arguments, their task's first dependency."""
    session = bench.welcomed()
    bench.submit(1, size=LARGE)
    session.wait_until(lambda: session.tasks, "a Task message")
    task = session.tasks[0]
    check(not task.payload and task.dependencies, "a task with an empty payload and a dependency", task.message)
    made = session.objects[task.dependencies[0]]
    check(made.kind == "arguments", "an object of kind arguments", made.kind)
    session.expect_deleted(made.id)


@case(covers=["SCL-CLT-006"])
def arguments_are_created_before_their_task(bench: RoleBench) -> None:
    """The object of large arguments is created before the task is sent, and deleted after it."""
    session = bench.welcomed()
    bench.submit(3, size=LARGE)
    session.wait_until(lambda: len(session.tasks) == 3, "three tasks")
    for task in session.tasks:
        for each in task.dependencies:
            before = session.objects[each].message.position < task.message.position
            check(before, f"object {each:x} to be created before its task", "the task first")


@case(covers=["SCL-OBJ-001"])
def object_ids_belong_to_the_session(bench: RoleBench) -> None:
    """Object ids contain the number of the session, and are new."""
    number = bench.random.randrange(1 << 20, 1 << 24)
    session = bench.welcomed(session=number)
    bench.submit(4, size=LARGE)
    session.wait_until(lambda: len(session.tasks) == 4, "four tasks")
    if not session.objects:
        raise NotApplicable("the client creates no objects")
    check(
        all(each >> 40 == number for each in session.objects), f"object ids of session {number}", list(session.objects)
    )


@case(covers=["SCL-OBJ-009"])
def requests_are_answered_with_the_bytes(bench: RoleBench) -> None:
    """Requests for a remote object are answered in order, each with exactly the requested bytes."""
    session, task, made = remote_arguments(bench)
    whole = session.content(made.id)
    check(
        tag_of(task) == 1 and len(whole) == made.size,
        f"{made.size} bytes with the arguments of task 1",
        f"{len(whole)} bytes {whole[:40]!r}",
    )
    wanted: List[Tuple[int, int]] = [
        (0, 10),
        (100, 5),
        (made.size - 7, 100),
        (made.size, 10),
        (7, 70_000),
        (0, made.size),
    ]
    for offset, length in wanted:
        session.send("ObjectRequest", id=made.id, offset=offset, length=length)
    for offset, length in wanted:
        chunk = session.expect_chunk(made.id, offset, length).payload
        right = chunk == whole[offset : offset + length]
        check(right, f"the bytes from offset {offset}", f"{len(chunk)} bytes {chunk[:20]!r}")


@case(covers=["SCL-OBJ-009"])
def requests_for_missing_bytes_are_answered(bench: RoleBench) -> None:
    """A request beyond the end of an object, or for an object that is not the client's, is answered with missing."""
    session, _, made = remote_arguments(bench)
    session.send("ObjectRequest", id=made.id, offset=made.size + 1, length=10)
    session.expect("ObjectResponse", id=made.id, offset=made.size + 1, status="missing")
    session.send("ObjectRequest", id=made.id + 1000, offset=0, length=10)
    session.expect("ObjectResponse", id=made.id + 1000, status="missing")


@case(covers=["SCL-OBJ-007"])
def nothing_is_shared_with_a_wrong_token(bench: RoleBench) -> None:
    """A client that does not find the Welcome's token in the object directory does not use storage shared."""
    directory = bench.object_directory()
    wrong = {**directory, "objectDirectoryToken": bytes(16)}
    session = bench.greeted()
    bench.welcome(session, **wrong)
    session.object_directory = ""  # using it is a violation
    bench.expect_event("started")
    bench.submit(1, size=LARGE)
    session.wait_until(lambda: session.tasks, "a Task message")
    check(tag_of(session.tasks[0]) == 1, "arguments that can be read", session.tasks[0].message)
    left = [each for each in os.listdir(directory["objectDirectory"]) if each != "token"]
    check(not left, "no files in an object directory that is not shared", left)


@case(covers=["SCL-OBJ-008"], features=["shared-directory"])
def shared_files_are_complete_when_announced(bench: RoleBench) -> None:
    """The file of a shared object is complete when the object is announced."""
    session = bench.welcomed(**bench.object_directory())
    tasks = bench.submit(3, size=LARGE)
    sent = session.expect_tasks(tasks)
    stored = {session.objects[each].storage for task in sent for each in task.dependencies}
    if stored != {"shared"}:
        raise NotApplicable("the client does not use the object directory")
    for task, each in zip(tasks, sent):
        found = session.objects[each.dependencies[0]]
        expected = f"a file of {found.size} bytes with the arguments"
        check(len(found.content) == found.size and tag_of(each) == task, expected, found.content[:40])


@case(covers=["SCL-OBJ-016"])
def other_instructions_are_ignored(bench: RoleBench) -> None:
    """An ObjectInstruction with the action spill, or with an unknown action, is ignored."""
    session = bench.welcomed()
    task = bench.submit_one(size=LARGE)
    sent = session.expect_task(task)
    known = sent.dependencies[:1] or [session.number << 40 | 1]
    for ids in (known, [session.number << 40 | 9_999], [1], []):
        session.send("ObjectInstruction", action="spill", ids=ids)
        session.send("ObjectInstruction", schema=tomorrow(), action="unheardOf", ids=ids)
    session.fence()
    session.succeed(sent)
    bench.expect_result(task)


# Large results ------------------------------------------------------------------------------------------------------


def large_value(size: int) -> Tuple[str, bytes]:
    text = "".join(chr(97 + index % 26) for index in range(1000)) * (size // 1000)
    return text, f'"{text}"'.encode()


@case(covers=["SCL-CLT-004"])
def a_large_result_is_fetched_and_deleted(bench: RoleBench) -> None:
    """The object that a TaskResult names is fetched chunk by chunk, and deleted once its content has arrived."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    value, content = large_value(5 * CHUNK_BYTES)
    object_id = session.new_result_object()
    session.succeed_by_object(sent, object_id)
    session.serve(object_id, content)
    bench.expect_result(task, value)
    session.fence()
    check(session.deleted[object_id], "the object to be deleted", "no deletion")


@case(covers=["SCL-CLT-004"])
def an_unwanted_result_object_is_deleted(bench: RoleBench) -> None:
    """The object of a result that is no longer needed is deleted as well."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    session.succeed(sent)
    bench.expect_result(task)
    for id_ in (sent.id, 444_444):
        object_id = session.new_result_object()
        session.tell([id_], [b""], objects=[object_id])
        session.serve(object_id, b'"too late"')


@case(covers=["SCL-CLT-004"])
def a_large_result_arrives_through_the_directory(bench: RoleBench) -> None:
    """A result in the shared object directory is read from there or requested, and then deleted."""
    directory = bench.object_directory()
    session = bench.welcomed(**directory)
    task = bench.submit_one()
    sent = session.expect_task(task)
    value, content = large_value(2 * CHUNK_BYTES)
    object_id = session.new_result_object()
    with open(os.path.join(directory["objectDirectory"], f"{object_id:016x}"), "wb") as file:
        file.write(content)
    session.succeed_by_object(sent, object_id)
    session.serve(object_id, content)
    bench.expect_result(task, value)


@case(covers=["SCL-CLT-004"])
def a_missing_result_ends_the_task(bench: RoleBench) -> None:
    """A task whose result object is missing ends with an error, and other tasks continue."""
    session = bench.welcomed()
    lost, fine = bench.submit(2)
    object_id = session.new_result_object()
    session.succeed_by_object(session.expect_task(lost), object_id)
    session.expect("ObjectRequest", id=object_id)
    session.send("ObjectResponse", id=object_id, offset=0, status="missing")
    bench.expect_error(lost)
    session.succeed(session.expect_task(fine))
    bench.expect_result(fine)


@case(covers=["SCL-OBJ-011"])
def at_most_four_requests_are_unanswered(bench: RoleBench) -> None:
    """A client that fetches a large result has at most four unanswered requests."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    value, content = large_value(30 * CHUNK_BYTES)
    object_id = session.new_result_object()
    session.succeed_by_object(sent, object_id)
    session.answer(session.expect("ObjectRequest", id=object_id), content)
    while object_id not in session.deleted:
        session.wait_until(
            lambda: object_id in session.deleted or session.waiting("ObjectRequest"),
            "an ObjectRequest, or the deletion of the object",
        )
        session.fence()
        unanswered = session.waiting("ObjectRequest")
        check(len(unanswered) <= 4, "at most 4 unanswered ObjectRequests", len(unanswered))
        for _ in unanswered:
            session.answer(session.expect("ObjectRequest", id=object_id), content)
    bench.expect_result(task, value)
