"""Results that are too large for a batch, and become objects.

A worker that sends them inline breaks no rule: then most of these cases do not apply.
"""

from __future__ import annotations

import os

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import Message
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.worker_session import CHUNK_BYTES, WorkerSession

SIZE = 300_000
CONTENT = b'"' + b"x" * SIZE + b'"'


def announcement_of(worker: WorkerSession, task: int) -> Message:
    """The ObjectInstruction by which the result of a task becomes an object."""
    worker.wait_until(lambda: worker.announcements or worker.outcomes, "an ObjectInstruction or a TaskResult")
    if not worker.announcements:
        worker.expect_outcome(task)
        raise NotApplicable("the worker sends large results inline")
    return worker.announcements[-1]


@case(covers=["SCL-OBJ-012"])
def large_result_arrives(bench: RoleBench) -> None:
    """A large result has all its bytes, however it travels; an object is created before it is named."""
    worker = bench.welcomed()
    tasks = worker.submit_many("size", [[SIZE], [3], [SIZE]])
    for task, size in zip(tasks, [SIZE, 3, SIZE]):
        worker.expect_value(task, "x" * size)
    worker.expect_nothing_more()


@case(covers=["SCL-OBJ-012"])
def object_is_named_once_and_kept(bench: RoleBench) -> None:
    """The object of a large result is named by one outcome, and not deleted by the worker."""
    worker = bench.welcomed()
    tasks = worker.submit_many("size", [[SIZE]] * 3)
    announcement_of(worker, tasks[0])
    named = [worker.expect_outcome(task).object for task in tasks]
    check(len(set(named)) == len(named), "an object for each large result", named)
    deleted = [each for each in worker.waiting("ObjectInstruction") if each.action in ("delete", "clear")]
    check(not deleted, "no deletion by the worker", deleted)
    worker.expect_nothing_more()


@case(covers=["SCL-OBJ-001"])
def object_ids_are_of_the_session(bench: RoleBench) -> None:
    """The id of an object of the worker's has the number of its session, and is not used again in it."""
    worker = bench.welcomed(session=0x123456)
    tasks = worker.submit_many("size", [[SIZE]] * 3)
    announcement_of(worker, tasks[0])
    for task in tasks:
        worker.expect_outcome(task)
    ids = [id_ for each in worker.announcements for id_ in each.ids]
    check(len(set(ids)) == len(ids), "ids that are used once", ids)
    for each in ids:
        session, number = each >> 40, each & (2**40 - 1)
        check(session == 0x123456 and 1 <= number < 2**39, "session × 2^40 + a number below 2^39", f"{each:x}")


@case(covers=["SCL-OBJ-009"])
def each_request_gets_its_bytes(bench: RoleBench) -> None:
    """Each ObjectRequest is answered in its turn with exactly the bytes it asks for, or as many as there are."""
    worker = bench.welcomed()
    worker.fetches_objects = False
    task = worker.submit("size", SIZE)
    announced = announcement_of(worker, task)
    (object_id,) = announced.ids
    if announced.storages != [2]:
        raise NotApplicable("the worker has no remote objects")
    total = len(CONTENT)
    for offset, length in [(0, 100), (50, 1000), (0, 1)]:
        worker.send("ObjectRequest", id=object_id, offset=offset, length=length)
    for offset, length in [(0, 100), (50, 1000), (0, 1)]:
        response = worker.expect("ObjectResponse", id=object_id)
        check(response.status == "ok" and response.offset == offset, f"the bytes from {offset} on", response)
        check(response.size == total, f"the size {total} of the whole object", response)
        wanted = CONTENT[offset : offset + length]
        check(response.payload == wanted, f"{length} bytes from {offset} on", response)
    whole = b""
    while len(whole) < total:
        worker.send("ObjectRequest", id=object_id, offset=len(whole), length=CHUNK_BYTES)
        chunk = worker.expect("ObjectResponse", id=object_id).payload
        wanted = CONTENT[len(whole) : len(whole) + CHUNK_BYTES]
        check(chunk == wanted, f"{len(wanted)} bytes from {len(whole)} on", f"{len(chunk)} bytes")
        whole += chunk


@case(covers=["SCL-OBJ-013"])
def outcome_follows_the_last_byte(bench: RoleBench) -> None:
    """An outcome whose result is a remote object comes when the scheduler has fetched all of it, not before."""
    worker = bench.welcomed()
    worker.fetches_objects = False
    task = worker.submit("size", SIZE)
    announced = announcement_of(worker, task)
    if announced.storages != [2]:
        raise NotApplicable("the worker has no remote objects")
    worker.fence()
    check(not worker.outcomes, "no outcome before its object was fetched", worker.outcomes)
    worker.fetch(announced.ids[0])
    worker.expect_value(task, "x" * SIZE)
    worker.expect_nothing_more()


@case(covers=["SCL-OBJ-008"], features=["shared-directory"])
def shared_object_is_a_file(bench: RoleBench) -> None:
    """A worker that shares the directory puts a large result there, whole, before it is announced."""
    worker = bench.welcomed(**bench.object_directory())
    task = worker.submit("size", SIZE)
    announced = announcement_of(worker, task)
    if announced.storages != [1]:
        raise NotApplicable("the worker does not put results into the directory")
    (object_id,) = announced.ids
    content = worker.objects[object_id]
    check(content == CONTENT, f"a file of {len(CONTENT)} bytes when it is announced", f"{len(content)} bytes")
    worker.expect_value(task, "x" * SIZE)
    with open(os.path.join(worker.object_directory, f"{object_id:016x}"), "rb") as file:
        check(file.read() == CONTENT, "the file to stay as it was", "it changed")
    shares = worker.wait_until(lambda: worker.heartbeats, "a Heartbeat")[-1].sharesObjectDirectory
    check(shares, "sharesObjectDirectory in the Heartbeat", shares)


@case(covers=["SCL-OBJ-007"])
def wrong_token_is_not_trusted(bench: RoleBench) -> None:
    """A worker that does not find the token of the Welcome in the directory does not use the directory."""
    offered = bench.object_directory()
    worker = bench.welcomed(**{**offered, "objectDirectoryToken": bytes(16)})
    task = worker.submit("size", SIZE)
    worker.expect_value(task, "x" * SIZE)
    shared = [each for each in worker.announcements if 1 in each.storages]
    check(not shared, "no object of storage shared", shared)
    beats = worker.wait_until(lambda: worker.heartbeats, "a Heartbeat")
    check(not beats[-1].sharesObjectDirectory, "no sharesObjectDirectory in the Heartbeat", beats[-1])


@case(covers=["SCL-SEC-007"])
def messages_keep_to_the_limit(bench: RoleBench) -> None:
    """No message is larger than Limits.maximumMessageBytes, however many results are there at a time."""
    limit = 1 << 20
    limits = {"maximumMessageBytes": limit, "maximumObjectBytes": 1 << 40, "chunkBytes": 65536, "inlineBytes": 65536}
    worker = bench.welcomed(limits=limits)
    count = min(60, worker.capacity)
    tasks = worker.submit_many("size", [[60_000]] * count)
    for task in [*tasks, worker.submit("size", 3 * limit)]:
        worker.expect_outcome(task)
    check(worker.largest <= limit, f"messages of at most {limit} bytes", f"one of {worker.largest} came")


@case(covers=["SCL-WRK-024"])
def task_whose_result_is_fetched_is_running(bench: RoleBench) -> None:
    """The cancel of a task that has ended, and whose result is still being fetched, is answered running."""
    worker = bench.welcomed()
    worker.fetches_objects = False
    task = worker.submit("size", SIZE)
    announced = announcement_of(worker, task)
    if announced.storages != [2]:
        raise NotApplicable("the worker has no remote objects")
    worker.send("TaskCancel", ids=[task])
    answer = worker.expect_confirmation(task, "running")
    worker.fetch(announced.ids[0])
    outcome = worker.expect_value(task, "x" * SIZE)
    check(answer.position < outcome.position, "the answer running before the outcome", "it came after it")
    worker.expect_nothing_more()
