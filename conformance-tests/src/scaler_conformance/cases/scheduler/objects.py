"""Objects: creating, keeping, fetching and deleting them; large results."""

from __future__ import annotations

import os

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedWorker

MOST_OPEN_REQUESTS = 4
LARGER_THAN_DISKS_BYTES = 1 << 40


@case(covers=["SCL-OBJ-002"])
def taken_ids_are_refused(bench: RoleBench) -> None:
    """A peer that creates a second object with the same id violates the protocol."""
    client = bench.client()
    made = client.create(b"first")
    client.create(b"second", id=made)
    client.expect_refusal("protocolViolation", "a second object with the same id")


@case(covers=["SCL-OBJ-002"])
def ids_of_other_sessions_are_refused(bench: RoleBench) -> None:
    """An object whose id does not contain the sender's session, or is reserved for the scheduler, is refused."""
    other = bench.client()
    for session, number in ((0, 1), (other.number, 77), (None, 0), (None, 1 << 39)):
        for peer in (bench.client(), bench.worker()):
            peer.create(b"x", id=((peer.number if session is None else session) << 40) | number)
            peer.expect_refusal("protocolViolation", f"an object number {number} of session {session or 'its own'}")


@case(covers=["SCL-OBJ-003"])
def objects_above_the_limit_are_refused(bench: RoleBench) -> None:
    """An object whose announced size exceeds Limits.maximumObjectBytes is refused with limitExceeded."""
    client = bench.client()
    limit = client.welcome.limits.maximumObjectBytes
    if not 0 < limit < 1 << 63:
        raise NotApplicable("the scheduler does not limit the size of objects")
    client.create_remote(limit + 1)
    client.expect_refusal("limitExceeded", f"an object of {limit + 1} bytes")


@case(covers=["SCL-OBJ-004"])
def needed_object_outlives_its_deletion(bench: RoleBench) -> None:
    """A deleted object stays available to the tasks that need it, and new tasks cannot use it."""
    client = bench.client()
    function, value = client.create(b"function", 1), client.create(b"value")
    client.submit_payloads([b"1"], function=function, dependencyCounts=[1], dependencies=[value])
    client.delete(function, value)
    client.submit_payloads([b"2"], dependencyCounts=[1], dependencies=[value])
    client.expect_loss(2, "objectMissing", "SCL-SCH-007")
    worker = bench.worker()
    task = worker.expect_task(b"1")
    for object_id, content in ((function, b"function"), (value, b"value")):
        check(object_id in worker.announced, f"object {object_id:x} to be announced", worker.announcements)
        check(worker.fetch(object_id) == content, f"the content {content!r}", "other bytes")
    worker.succeed(task)
    client.expect_outcome(1, "success")


@case(covers=["SCL-OBJ-004"])
def object_lives_until_it_is_deleted(bench: RoleBench) -> None:
    """An object that no task needs any longer stays available for later tasks until its owner deletes it."""
    client, worker = bench.client(), bench.worker()
    value = client.create(b"value")
    for id_ in (1, 2):
        client.submit_payloads([b"x"], dependencyCounts=[1], dependencies=[value])
        worker.succeed(worker.expect_task())
        client.expect_outcome(id_, "success")
    check(client.fetch(value) == b"value", "the object's content", "other bytes")
    client.send("ObjectInstruction", action="clear")
    client.send("ObjectRequest", id=value, length=5)
    check(client.expect("ObjectResponse").status == "missing", "status missing after clear", "ok")


@case(covers=["SCL-OBJ-005"])
def deletions_reach_the_workers(bench: RoleBench) -> None:
    """When an object is deleted, or its owner leaves, each worker to which it was announced is told."""
    for how in ("delete", "clear", "leave", "cut"):
        client, worker = bench.client(), bench.worker()
        value = client.create(b"value")
        client.submit_payloads([b"x"], dependencyCounts=[1], dependencies=[value])
        task = worker.expect_task()
        if how in ("delete", "clear"):
            client.delete(value) if how == "delete" else client.send("ObjectInstruction", action="clear")
            bench.quiet(client, worker)
            check(
                not worker.waiting("ObjectInstruction"), "no deletion while a task needs the object", f"one after {how}"
            )
        worker.succeed(task)
        client.expect_outcome(1, "success")
        if how in ("leave", "cut"):
            client.leave() if how == "leave" else client.cut()
        worker.expect_deletion(value, f"at the worker, after {how}")
        worker.leave()


@case(covers=["SCL-OBJ-006"])
def deletions_by_others_are_ignored(bench: RoleBench) -> None:
    """The deletion of an object that belongs to another peer, or does not exist, is ignored."""
    client, worker, other = bench.client(), bench.worker(), bench.client()
    value = client.create(b"value")
    client.fence()
    for peer in (other, worker):
        peer.delete(value, peer.new_object(), 0)
        peer.expect_nothing_more(expected="no Refusal for a deletion")
    client.submit_payloads([b"x"], dependencyCounts=[1], dependencies=[value])
    worker.expect_task()
    check(worker.fetch(value) == b"value", "the object's content", "other bytes")


@case(covers=["SCL-OBJ-010"])
def requests_are_answered(bench: RoleBench) -> None:
    """An ObjectRequest is answered with bytes from its offset, at most chunkBytes, or with missing."""
    client, other = bench.client(), bench.worker()
    chunk = client.welcome.limits.chunkBytes
    content = bench.random.getrandbits(8 * (chunk + 100)).to_bytes(chunk + 100, "little")
    value = client.create(content)
    client.fence()
    for offset, length in ((0, 10), (7, 90), (chunk + 90, 50), (0, chunk + 100), (chunk + 100, 5), (5, 1 << 31)):
        other.send("ObjectRequest", id=value, offset=offset, length=length)
        answer = other.expect("ObjectResponse")
        asked = content[offset : offset + min(length, chunk)]
        check(
            (answer.id, answer.offset, answer.status) == (value, offset, "ok"),
            f"an answer for offset {offset} with status ok",
            answer,
        )
        check(
            len(answer.payload) <= min(length, chunk),
            f"at most {min(length, chunk)} bytes",
            f"{len(answer.payload)} bytes",
        )
        check(
            asked.startswith(answer.payload) and bool(asked) == bool(answer.payload),
            f"the bytes from offset {offset}",
            answer,
        )
        check(answer.size == len(content), f"size = {len(content)}", answer)
    for object_id, offset in ((value, len(content) + 1), (client.new_object(), 0), (0, 0)):
        other.send("ObjectRequest", id=object_id, offset=offset, length=10)
        check(other.expect("ObjectResponse").status == "missing", "status missing", "ok")


@case(covers=["SCL-OBJ-010"])
def requests_wait_for_bytes_in_transit(bench: RoleBench) -> None:
    """A request for bytes of a remote object that have not arrived yet is answered when they arrive."""
    client, other = bench.client(), bench.client()
    content = bytes(range(256)) * 20
    value = client.create_remote(len(content))
    first = client.expect("ObjectRequest", id=value)
    other.send("ObjectRequest", id=value, offset=0, length=len(content))
    other.expect_none("ObjectResponse", expected="no ObjectResponse before its bytes have arrived")
    served = len(client.respond(first, content))
    while served < len(content):
        served += len(client.respond(client.expect("ObjectRequest", id=value), content))
    check(
        content.startswith(other.expect("ObjectResponse", id=value).payload),
        "the first bytes of the content",
        "other bytes",
    )
    check(other.fetch(value) == content, "the whole content", "other bytes")


@case(covers=["SCL-OBJ-010"])
def large_remote_objects_are_fetched_and_served(bench: RoleBench) -> None:
    """The scheduler fetches a remote object of many chunks and serves it to a worker that needs it."""
    client, worker = bench.client(), bench.worker()
    size = 5 * client.welcome.limits.chunkBytes + 17
    content = bench.random.getrandbits(8 * size).to_bytes(size, "little")
    value = client.create_remote(size)
    client.submit_payloads([b"x"], dependencyCounts=[1], dependencies=[value])
    client.serve(value, content)
    client.fence()
    worker.expect_task()
    check(worker.fetch(value) == content, "the whole content", "other bytes")


@case(covers=["SCL-OBJ-019"])
def objects_without_room_are_called_so(bench: RoleBench) -> None:
    """Requests for an object that is larger than memory and disk are answered with missing because of noRoom."""
    client, other = bench.client(), bench.client()
    limit = client.welcome.limits.maximumObjectBytes
    if not LARGER_THAN_DISKS_BYTES <= limit < 1 << 63:
        raise NotApplicable("the scheduler does not allow objects that are larger than disks")
    value = client.create_remote(limit)
    first = client.expect("ObjectRequest", id=value)
    client.send("ObjectResponse", bytes(first.length), id=value, offset=0, status="ok", size=limit)
    client.fence()
    for offset in (0, limit - 1):
        other.send("ObjectRequest", id=value, offset=offset, length=1)
        answer = other.expect("ObjectResponse", id=value)
        if answer.status == "ok":
            raise NotApplicable("the scheduler has room for the largest object that it allows")
        found = answer.status, answer.missingReason
        check(found == ("missing", "noRoom"), "the status missing and the missingReason noRoom", answer)


@case(covers=["SCL-OBJ-010"], features=["shared-directory"])
def shared_objects_are_served(bench: RoleBench) -> None:
    """An object whose file is in the object directory is served to requests like any other."""
    client, other = bench.client(), bench.client()
    welcome = client.welcome
    try:
        with open(os.path.join(welcome.objectDirectory, "token"), "rb") as file:
            is_shared = bool(welcome.objectDirectory) and file.read() == bytes(welcome.objectDirectoryToken)
    except OSError:
        is_shared = False
    if not is_shared:
        raise NotApplicable("the suite cannot read the scheduler's object directory")
    client.send("Heartbeat", sequence=1, sharesObjectDirectory=True)
    value, content = client.new_object(), b"shared content" * 10_000
    path = os.path.join(welcome.objectDirectory, f"{value:016x}")
    with open(path + ".new", "wb") as file:
        file.write(content)
    os.rename(path + ".new", path)
    client.create(b"", id=value, sizes=[len(content)], storages=[1])
    client.fence()
    check(other.fetch(value) == content, "the file's content", "other bytes")


@case(covers=["SCL-OBJ-011"])
def at_most_four_requests_are_unanswered(bench: RoleBench) -> None:
    """A scheduler that fetches an object has at most four unanswered requests."""
    client = bench.client()
    size = 20 * client.welcome.limits.chunkBytes
    value = client.create_remote(size)
    client.wait_until(lambda: client.waiting("ObjectRequest"), "an ObjectRequest", "SCL-OBJ-010")
    served = 0
    while served < size:
        client.fence()
        unanswered = len(client.waiting("ObjectRequest"))
        check(unanswered <= MOST_OPEN_REQUESTS, "at most 4 unanswered ObjectRequests", unanswered)
        served += len(client.respond(client.expect("ObjectRequest", id=value), bytes(size)))


@case(covers=["SCL-OBJ-014"])
def large_result_belongs_to_the_client(bench: RoleBench) -> None:
    """A result that is an object belongs to the client: it outlives the worker, and ends when the client deletes it."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    content = b"large" * 20_000
    worker.succeed_large(worker.expect_task(), content)
    outcome = client.expect_outcome(1, "success")
    check(outcome.object and not outcome.payload, "an object id and no payload", outcome.message)
    worker.delete(outcome.object)
    worker.leave()
    check(client.fetch(outcome.object) == content, "the result's content after its worker has left", "other bytes")
    client.delete(outcome.object)
    client.send("ObjectRequest", id=outcome.object, length=5)
    check(client.expect("ObjectResponse").status == "missing", "status missing after the client deleted it", "ok")


KEPT_RESULTS = "keptResults"


def keeper_of(bench: RoleBench) -> PlayedWorker:
    """A worker that keeps results, at a scheduler whose Welcome lists the feature."""
    worker: PlayedWorker = bench.worker(slots=9, features=[KEPT_RESULTS])
    listed = worker.welcome.features
    check(KEPT_RESULTS in listed, f"the feature {KEPT_RESULTS} in the Welcome", listed)
    return worker


@case(covers=["SCL-OBJ-022"], features=["kept-results"])
def kept_result_is_reported_when_it_is_here(bench: RoleBench) -> None:
    """A result that its worker keeps is fetched before its client learns of it."""
    client, worker = bench.client(), keeper_of(bench)
    client.submit()
    content = b"large" * 14_000
    made = worker.keep_large(worker.expect_task(), content)
    first = worker.expect("ObjectRequest", id=made)
    bench.quiet(client)
    client.expect_nothing_more(expected="no outcome before its object has been fetched")
    served = len(worker.respond(first, content))
    while served < len(content):
        served += len(worker.respond(worker.expect("ObjectRequest", id=made), content))
    outcome = client.expect_outcome(1, "success")
    check(outcome.object == made, f"an outcome that names object {made:x}", outcome.message)


@case(covers=["SCL-OBJ-024"], features=["kept-results"])
def kept_result_stays_where_it_is_used(bench: RoleBench) -> None:
    """The result of a node is not fetched when the node that needs it runs where it is."""
    client, worker = bench.client(), keeper_of(bench)
    ids = client.graph([[], [0]], [1])
    made = worker.keep_large(worker.expect_task(), b"large" * 20_000)
    task = worker.expect_task()
    check(task.dependencies == [made], f"a task that needs object {made:x}", task.dependencies)
    worker.succeed(task)
    client.expect_outcome(ids[1], "success")
    bench.quiet(client, worker)
    asked = worker.waiting("ObjectRequest")
    check(not asked, "no ObjectRequest for a kept object that only its maker needs", asked)


@case(covers=["SCL-OBJ-015"])
def results_with_foreign_objects_are_refused(bench: RoleBench) -> None:
    """A TaskResult that names another peer's object, one that does not exist, or one twice, violates the protocol."""
    client = bench.client()
    foreign = client.create(b"x")
    client.fence()
    client.submit(2)
    for what in ("foreign", "unknown", "twice"):
        worker = bench.worker(slots=2)
        first, second = worker.expect_tasks(2)
        own = worker.create(b"own")
        named = {"foreign": [own, foreign], "unknown": [own, worker.new_object()], "twice": [own, own]}[what]
        worker.succeed(first, second, payload=b"", objects=named)
        worker.expect_refusal("protocolViolation", f"a TaskResult that names an object ({what})")
    bench.quiet(client)
    client.expect_nothing_more(expected="no outcome from a refused TaskResult")
