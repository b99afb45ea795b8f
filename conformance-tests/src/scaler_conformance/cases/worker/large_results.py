"""Results that are too large for a batch and become objects.

A worker may send them inline; then most of these cases do not apply.
"""

from __future__ import annotations

import os
from typing import Any, Tuple

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.cases.worker.objects import arguments_task
from scaler_conformance.codec.schema_codec import Message
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.worker_session import CHUNK_BYTES, WorkerSession

SIZE = 300_000
CONTENT = b'"' + b"x" * SIZE + b'"'


def announcement_of(worker: WorkerSession, task: int) -> Message:
    """The ObjectInstruction that creates the object of a task's result."""
    worker.wait_until(lambda: worker.announcements or worker.outcomes, "an ObjectInstruction or a TaskResult")
    if not worker.announcements:
        worker.expect_outcome(task)
        raise NotApplicable("the worker sends large results inline, which is allowed")
    return worker.announcements[-1]


@case(covers=["SCL-OBJ-012"])
def large_result_arrives(bench: RoleBench) -> None:
    """A large result arrives complete, inline or as an object, and an object is created before it is named."""
    worker = bench.welcomed()
    tasks = worker.submit_many("size", [[SIZE], [3], [SIZE]])
    for task, size in zip(tasks, [SIZE, 3, SIZE]):
        worker.expect_value(task, "x" * size)
    worker.expect_nothing_more()


@case(covers=["SCL-OBJ-012"])
def result_object_is_named_once_and_kept(bench: RoleBench) -> None:
    """Exactly one outcome names the object of a large result, and the worker does not delete it."""
    worker = bench.welcomed()
    tasks = worker.submit_many("size", [[SIZE]] * 3)
    announcement_of(worker, tasks[0])
    named = [worker.expect_outcome(task).object for task in tasks]
    check(len(set(named)) == len(named), "a separate object for each large result", named)
    deleted = [each for each in worker.waiting("ObjectInstruction") if each.action in ("delete", "clear")]
    check(not deleted, "no deletion of a result's object by the worker", deleted)
    worker.expect_nothing_more()


@case(covers=["SCL-OBJ-001"])
def object_ids_belong_to_the_session(bench: RoleBench) -> None:
    """The id of an object that the worker creates contains the number of its session, and is not used twice in it."""
    worker = bench.welcomed(session=0x123456)
    tasks = worker.submit_many("size", [[SIZE]] * 3)
    announcement_of(worker, tasks[0])
    for task in tasks:
        worker.expect_outcome(task)
    ids = [id_ for each in worker.announcements for id_ in each.ids]
    check(len(set(ids)) == len(ids), "a unique id for each object", ids)
    for each in ids:
        session, number = each >> 40, each & (2**40 - 1)
        check(
            session == 0x123456 and 1 <= number < 2**39,
            "object ids of the form session × 2^40 + number, with 0 < number < 2^39",
            f"{each:x}",
        )


@case(covers=["SCL-OBJ-009"])
def each_request_gets_its_bytes(bench: RoleBench) -> None:
    """ObjectRequests are answered in order, each with exactly the requested bytes, or as many as there are."""
    worker = bench.welcomed()
    worker.fetches_objects = False
    task = worker.submit("size", SIZE)
    announced = announcement_of(worker, task)
    (object_id,) = announced.ids
    if announced.storages != [2]:
        raise NotApplicable("the worker does not use storage remote for large results")
    total = len(CONTENT)
    for offset, length in [(0, 100), (50, 1000), (0, 1)]:
        worker.send("ObjectRequest", id=object_id, offset=offset, length=length)
    for offset, length in [(0, 100), (50, 1000), (0, 1)]:
        response = worker.expect("ObjectResponse", id=object_id)
        check(response.status == "ok" and response.offset == offset, f"the bytes from offset {offset}", response)
        check(response.size == total, f"size = {total}, that of the whole object", response)
        wanted = CONTENT[offset : offset + length]
        check(response.payload == wanted, f"{length} bytes from offset {offset}", response)
    whole = b""
    while len(whole) < total:
        worker.send("ObjectRequest", id=object_id, offset=len(whole), length=CHUNK_BYTES)
        chunk = worker.expect("ObjectResponse", id=object_id).payload
        wanted = CONTENT[len(whole) : len(whole) + CHUNK_BYTES]
        check(
            chunk == wanted, f"the {len(wanted)} bytes from offset {len(whole)}", f"{len(chunk)} bytes {chunk[:20]!r}"
        )
        whole += chunk


@case(covers=["SCL-OBJ-013"])
def outcome_follows_the_last_byte(bench: RoleBench) -> None:
    """A task whose result is a remote object has its outcome once the scheduler has fetched all of the object."""
    worker = bench.welcomed()
    worker.fetches_objects = False
    task = worker.submit("size", SIZE)
    announced = announcement_of(worker, task)
    if announced.storages != [2]:
        raise NotApplicable("the worker does not use storage remote for large results")
    worker.fence()
    check(not worker.outcomes, "no outcome before its object has been fetched", worker.outcomes)
    worker.fetch(announced.ids[0])
    worker.expect_value(task, "x" * SIZE)
    worker.expect_nothing_more()


KEPT_RESULTS = "keptResults"


def kept_result(bench: RoleBench, function: str = "size", argument: Any = SIZE) -> Tuple[WorkerSession, int]:
    """A worker whose scheduler lists the feature, and the result of a task there, which the worker keeps."""
    worker = bench.welcomed(features=[KEPT_RESULTS])
    worker.fetches_objects = False
    task = worker.submit(function, argument)
    announced = announcement_of(worker, task)
    if announced.storages != [3]:
        raise NotApplicable("the worker does not use storage kept for large results")
    worker.wait_until(lambda: worker.outcomes, "a TaskResult, though nothing has been fetched")
    (outcome,), (object_id,) = worker.outcomes, announced.ids
    check((outcome.id, outcome.object) == (task, object_id), f"an outcome that names object {object_id:x}", outcome)
    return worker, object_id


@case(covers=["SCL-OBJ-021"], features=["kept-results"])
def kept_result_is_there_after_it_was_fetched(bench: RoleBench) -> None:
    """The outcome of a kept result does not wait for the scheduler; the result can be fetched more than once."""
    worker, object_id = kept_result(bench)
    for _ in range(2):
        for offset in range(0, len(CONTENT), CHUNK_BYTES):
            worker.send("ObjectRequest", id=object_id, offset=offset, length=CHUNK_BYTES)
            response = worker.expect("ObjectResponse", id=object_id)
            wanted = CONTENT[offset : offset + CHUNK_BYTES]
            check(response.status == "ok" and response.payload == wanted, f"the bytes from offset {offset}", response)
    check(len(worker.outcomes) == 1, "one outcome", worker.outcomes)


@case(covers=["SCL-OBJ-021"], features=["kept-results"])
def task_uses_what_its_worker_keeps(bench: RoleBench) -> None:
    """A task that needs a kept result runs at its worker without a transfer; the object is not announced to it."""
    worker, object_id = kept_result(bench, "echo", ["x" * SIZE])
    arguments_task(worker, object_id)
    announced = worker.wait_until(lambda: worker.announcements[1:], "an ObjectInstruction for the second result")
    check(announced[0].sizes == [len(CONTENT)], f"a result of {len(CONTENT)} bytes, made of the kept one", announced)
    worker.wait_until(lambda: worker.outcomes[1:], "the outcome of the second task")
    asked = worker.waiting("ObjectRequest")
    check(not asked, "no ObjectRequest for an object that the worker has", asked)


@case(covers=["SCL-OBJ-023"], features=["kept-results"])
def draining_worker_hands_over_what_it_keeps(bench: RoleBench) -> None:
    """A worker that drains leaves when what it keeps has been fetched."""
    worker, object_id = kept_result(bench)
    worker.send("DisconnectRequest", reason="draining")
    worker.fence()
    left = worker.waiting("DisconnectResponse")
    check(not left, "no DisconnectResponse before the kept object has been fetched", left)
    worker.fetch(object_id)
    worker.expect("DisconnectResponse")


@case(covers=["SCL-OBJ-008"], features=["shared-directory"])
def shared_object_is_a_file(bench: RoleBench) -> None:
    """A worker that shares the object directory writes a large result there completely before it announces it."""
    worker = bench.welcomed(**bench.object_directory())
    task = worker.submit("size", SIZE)
    announced = announcement_of(worker, task)
    if announced.storages != [1]:
        raise NotApplicable("the worker does not store results in the object directory")
    (object_id,) = announced.ids
    content = worker.objects[object_id]
    check(
        content == CONTENT,
        f"a complete file of {len(CONTENT)} bytes when the object is announced",
        f"{len(content)} bytes",
    )
    worker.expect_value(task, "x" * SIZE)
    with open(os.path.join(worker.object_directory, f"{object_id:016x}"), "rb") as file:
        check(file.read() == CONTENT, "the file to stay unchanged", "other content")
    shares = worker.wait_until(lambda: worker.heartbeats, "a Heartbeat")[-1].sharesObjectDirectory
    check(shares, "sharesObjectDirectory = true in the Heartbeat", shares)


@case(covers=["SCL-OBJ-007"])
def wrong_token_is_not_trusted(bench: RoleBench) -> None:
    """A worker that does not find the Welcome's token in the object directory does not use the directory."""
    offered = bench.object_directory()
    worker = bench.welcomed(**{**offered, "objectDirectoryToken": bytes(16)})
    task = worker.submit("size", SIZE)
    worker.expect_value(task, "x" * SIZE)
    shared = [each for each in worker.announcements if 1 in each.storages]
    check(not shared, "no object of storage shared", shared)
    beats = worker.wait_until(lambda: worker.heartbeats, "a Heartbeat")
    check(not beats[-1].sharesObjectDirectory, "sharesObjectDirectory = false in the Heartbeat", beats[-1])


@case(covers=["SCL-SEC-007"])
def messages_stay_within_the_limit(bench: RoleBench) -> None:
    """No message is larger than Limits.maximumMessageBytes, however many results are available at a time."""
    limit = 1 << 20
    limits = {"maximumMessageBytes": limit, "maximumObjectBytes": 1 << 40, "chunkBytes": 65536, "inlineBytes": 65536}
    worker = bench.welcomed(limits=limits)
    count = min(60, worker.capacity)
    tasks = worker.submit_many("size", [[60_000]] * count)
    for task in [*tasks, worker.submit("size", 3 * limit)]:
        worker.expect_outcome(task)
    check(worker.largest <= limit, f"messages of at most {limit} bytes", f"one of {worker.largest} bytes")


@case(covers=["SCL-WRK-024"])
def task_whose_result_is_fetched_is_running(bench: RoleBench) -> None:
    """A task that has ended while its result is still being fetched counts as running when it is cancelled."""
    worker = bench.welcomed()
    worker.fetches_objects = False
    task = worker.submit("size", SIZE)
    announced = announcement_of(worker, task)
    if announced.storages != [2]:
        raise NotApplicable("the worker does not use storage remote for large results")
    worker.send("TaskCancel", ids=[task])
    answer = worker.expect_confirmation(task, "running")
    worker.fetch(announced.ids[0])
    outcome = worker.expect_value(task, "x" * SIZE)
    check(answer.position < outcome.position, "the answer running before the outcome", "the outcome first")
    worker.expect_nothing_more()
