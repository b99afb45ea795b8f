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
    """A task whose arguments stay with the client."""
    session = bench.welcomed()
    bench.submit(1, size=size)
    session.wait_until(lambda: session.tasks, "a Task message")
    task = session.tasks[0]
    if not task.dependencies or session.objects[task.dependencies[0]].storage != "remote":
        raise NotApplicable("the client's large arguments do not stay with it")
    return session, task, session.objects[task.dependencies[0]]


@case(covers=["SCL-CLT-009"])
def large_arguments_become_an_object(bench: RoleBench) -> None:
    """Arguments of Limits.inlineBytes and more are an object of kind arguments, the first dependency of their task."""
    session = bench.welcomed()
    bench.submit(1, size=LARGE)
    session.wait_until(lambda: session.tasks, "a Task message")
    task = session.tasks[0]
    check(not task.payload and task.dependencies, "an empty payload and a dependency", task.message)
    made = session.objects[task.dependencies[0]]
    check(made.kind == "arguments", "an object of kind arguments", made.kind)
    session.expect_deleted(made.id)


@case(covers=["SCL-CLT-006"])
def arguments_are_created_before_their_task(bench: RoleBench) -> None:
    """The object of large arguments is announced before the task, and deleted after it."""
    session = bench.welcomed()
    bench.submit(3, size=LARGE)
    session.wait_until(lambda: len(session.tasks) == 3, "three tasks")
    for task in session.tasks:
        for each in task.dependencies:
            before = session.objects[each].message.position < task.message.position
            check(before, f"object {each:x} to be created before its task", "it was after")


@case(covers=["SCL-OBJ-001"])
def object_ids_are_the_sessions(bench: RoleBench) -> None:
    """The ids of objects carry the session's number, are new, and are numbered from 1."""
    number = bench.random.randrange(1 << 20, 1 << 24)
    session = bench.welcomed(session=number)
    bench.submit(4, size=LARGE)
    session.wait_until(lambda: len(session.tasks) == 4, "four tasks")
    if not session.objects:
        raise NotApplicable("the client makes no objects")
    check(all(each >> 40 == number for each in session.objects), f"objects of session {number}", list(session.objects))


@case(covers=["SCL-OBJ-009"])
def requests_are_answered_with_the_bytes(bench: RoleBench) -> None:
    """Requests for a remote object are answered in their order, each with just the bytes that it asks for."""
    session, task, made = remote_arguments(bench)
    whole = session.content(made.id)
    check(tag_of(task) == 1 and len(whole) == made.size, "the arguments of the task", whole[:40])
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
        check(right, f"the bytes from {offset} on", f"{len(chunk)} bytes {chunk[:20]!r}")


@case(covers=["SCL-OBJ-009"])
def requests_for_what_is_not_there_are_answered(bench: RoleBench) -> None:
    """Beyond the end of an object, and of an object that is not the client's, the answer is missing."""
    session, _, made = remote_arguments(bench)
    session.send("ObjectRequest", id=made.id, offset=made.size + 1, length=10)
    session.expect("ObjectResponse", id=made.id, offset=made.size + 1, status="missing")
    session.send("ObjectRequest", id=made.id + 1000, offset=0, length=10)
    session.expect("ObjectResponse", id=made.id + 1000, status="missing")


@case(covers=["SCL-OBJ-007"])
def nothing_is_shared_with_a_wrong_token(bench: RoleBench) -> None:
    """A client that cannot read the token of the Welcome in the directory does not use storage shared."""
    directory = bench.object_directory()
    wrong = {**directory, "objectDirectoryToken": bytes(16)}
    session = bench.greeted()
    bench.welcome(session, **wrong)
    session.object_directory = ""  # it is a fault to use it
    bench.expect_event("started")
    bench.submit(1, size=LARGE)
    session.wait_until(lambda: session.tasks, "a Task message")
    check(tag_of(session.tasks[0]) == 1, "arguments that can be had", session.tasks[0].message)
    left = [each for each in os.listdir(directory["objectDirectory"]) if each != "token"]
    check(not left, "no files in a directory that is not shared", left)


@case(covers=["SCL-OBJ-008"], features=["shared-directory"])
def shared_files_are_whole_when_announced(bench: RoleBench) -> None:
    """The file of a shared object is there, with all of its content, when the object is announced."""
    session = bench.welcomed(**bench.object_directory())
    tasks = bench.submit(3, size=LARGE)
    sent = session.expect_tasks(tasks)
    stored = {session.objects[each].storage for task in sent for each in task.dependencies}
    if stored != {"shared"}:
        raise NotApplicable("the client does not use the directory")
    for task, each in zip(tasks, sent):
        found = session.objects[each.dependencies[0]]
        expected = f"a file of {found.size} bytes with the arguments"
        check(len(found.content) == found.size and tag_of(each) == task, expected, found.content[:40])


@case(covers=["SCL-OBJ-016"])
def other_instructions_are_ignored(bench: RoleBench) -> None:
    """Spill, and an action that a later version brought, end nothing."""
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
    """The object that a TaskResult names is fetched chunk by chunk, and deleted once its content is there."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    value, content = large_value(5 * CHUNK_BYTES)
    object_id = session.new_result_object()
    session.succeed_by_object(sent, object_id)
    session.serve(object_id, content)
    bench.expect_result(task, value)
    session.fence()
    check(session.deleted[object_id], "the object to be deleted", "it was not")


@case(covers=["SCL-CLT-004"])
def an_unwanted_result_object_is_deleted(bench: RoleBench) -> None:
    """The object of a result that is not needed any more is deleted as well."""
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
def a_large_result_comes_by_the_directory(bench: RoleBench) -> None:
    """A result in the shared directory is taken from there, or requested; then it is deleted."""
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
    """When the answer to a request is missing, the task ends with an error, and others go on."""
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
def few_requests_are_unanswered(bench: RoleBench) -> None:
    """Of a large result no more than four parts are asked for at a time."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    value, content = large_value(30 * CHUNK_BYTES)
    object_id = session.new_result_object()
    session.succeed_by_object(sent, object_id)
    session.answer(session.expect("ObjectRequest", id=object_id), content)
    while object_id not in session.deleted:
        session.wait_until(
            lambda: object_id in session.deleted or session.waiting("ObjectRequest"), "ObjectRequest or the deletion"
        )
        session.fence()
        unanswered = session.waiting("ObjectRequest")
        check(len(unanswered) <= 4, "four requests at most", f"{len(unanswered)} came")
        for _ in unanswered:
            session.answer(session.expect("ObjectRequest", id=object_id), content)
    bench.expect_result(task, value)
