"""Objects: where their bytes are, who is told, and when they end."""

from __future__ import annotations

from array import array
from typing import Any, Dict, Tuple

import pytest
from scheduler_harness import SMALL_WORK, Client, Harness, Peer, Status, Worker, hello

from scaler_appliance.core.effects import RemoveObject, SendChunk, StoreChunk
from scaler_appliance.core.objects import object_table
from scaler_appliance.core.objects.object_memory import COMPLAINT_INTERVAL_SECONDS
from scaler_protocol import messages as m
from scaler_protocol.session.fetching import FETCH_WINDOW_CHUNKS
from scaler_protocol.session.ids import FIRST_SCHEDULER_NUMBER

Reason = m.RefusalReason
REMOTE, SHARED = m.ObjectStorage.REMOTE, m.ObjectStorage.SHARED


@pytest.fixture
def harness() -> Harness:
    return Harness(chunk_bytes=10)


Result = Tuple[Client, Worker, int, int]


@pytest.fixture
def result(harness: Harness) -> Result:
    """A client, a worker that has run its task, the task's instance, and its result, an object of 10 bytes."""
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    (instance,) = worker.take_tasks()
    return client, worker, instance, worker.announce(1, 10, REMOTE)


def request(peer: Peer, object_id: int, offset: int = 0, length: int = 10) -> None:
    peer.send(m.ObjectRequest(id=object_id, offset=offset, length=length))


def respond(peer: Peer, asked: m.ObjectRequest) -> None:
    peer.send(m.ObjectResponse(id=asked.id, offset=asked.offset), b"x" * asked.length)


def take_missing(peer: Peer, object_id: int, reason: m.MissingReason = m.MissingReason.UNKNOWN) -> None:
    response = peer.take(m.ObjectResponse)
    assert (response.id, response.status) == (object_id, m.ObjectResponseStatus.MISSING)
    assert response.missing_reason == reason


def test_an_inline_object_is_served_from_memory_in_chunks(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    content = bytes(range(25))
    object_id = client.create(1, content)
    for offset, expected in ((0, content[:10]), (20, content[20:]), (25, b"")):
        request(worker, object_id, offset, 1 << 30)
        response = worker.take(m.ObjectResponse)
        assert (response.offset, response.size, worker.payload) == (offset, 25, expected)
    harness.nothing_else_was_sent()


def test_a_shared_object_is_read_from_its_file(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    object_id = client.announce(1, 100, SHARED)
    request(worker, object_id, 95)
    assert harness.take_effect() == SendChunk(worker.name, object_id, 95, 5, 100)
    client.submit([0], dependency_counts=[1], dependencies=[object_id])
    announced = worker.take(m.ObjectInstruction)
    assert (list(announced.sizes), list(announced.storages)) == ([100], [SHARED])
    worker.take_tasks()
    client.delete(object_id)
    assert not harness.effects
    worker.finish([worker.task.ids[0]])
    client.take_results()
    assert worker.take(m.ObjectInstruction).action == m.ObjectAction.DELETE
    assert harness.take_effect() == RemoveObject(object_id)
    harness.nothing_else_was_sent()


def test_objects_of_one_task_are_announced_together(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    first, second = client.create(1, b"one"), client.create(2, b"two")
    file = client.announce(3, 50, SHARED)
    client.submit([0], function=first, dependency_counts=[2], dependencies=[file, second])
    announced = worker.take(m.ObjectInstruction)
    assert (list(announced.ids), worker.payload) == ([first, file, second], b"onetwo")
    worker.take_tasks()
    harness.nothing_else_was_sent()


def test_a_remote_object_is_fetched_through_a_window(harness: Harness) -> None:
    client = harness.client()
    size = 10 * (FETCH_WINDOW_CHUNKS + 1) + 3
    object_id = client.announce(1, size, REMOTE)
    asked = [client.take(m.ObjectRequest) for _ in range(FETCH_WINDOW_CHUNKS)]
    harness.nothing_else_was_sent()
    arrived = 0
    while asked:
        respond(client, asked[0])
        stored = harness.take_effect()
        arrived += asked[0].length
        assert isinstance(stored, StoreChunk)
        assert (stored.object_id, stored.offset, stored.is_last) == (
            object_id,
            arrived - asked[0].length,
            arrived == size,
        )
        asked.pop(0)
        if client.inbox:
            asked.append(client.take(m.ObjectRequest))
    assert arrived == size
    harness.nothing_else_was_sent()


def test_requests_wait_for_bytes_that_are_on_their_way(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    object_id = client.announce(1, 20, REMOTE)
    asked = [client.take(m.ObjectRequest) for _ in range(2)]
    client.submit([0], dependency_counts=[1], dependencies=[object_id])
    assert list(worker.take(m.ObjectInstruction).storages) == [REMOTE]
    worker.take_tasks()
    request(worker, object_id, 10)
    request(worker, object_id, 0)
    harness.nothing_else_was_sent()
    for part, offset in zip(asked, (0, 10)):
        respond(client, part)
        assert isinstance(harness.take_effect(), StoreChunk)
        assert harness.take_effect() == SendChunk(worker.name, object_id, offset, 10, 20)
    harness.nothing_else_was_sent()


def test_who_waits_is_told_when_the_source_is_gone(harness: Harness) -> None:
    source, other, worker = harness.client(), harness.client(), harness.worker()
    object_id = source.announce(1, 20, REMOTE)
    source.inbox.clear()
    other.submit([0], dependency_counts=[1], dependencies=[object_id])
    worker.take(m.ObjectInstruction)
    worker.take_tasks()
    request(worker, object_id)
    source.vanish()
    take_missing(worker, object_id)
    request(worker, object_id)
    take_missing(worker, object_id)
    other.submit([1], dependency_counts=[1], dependencies=[object_id])
    assert list(other.take_losses()) == [1]
    worker.finish(worker.task.ids, statuses=[Status.FAILED])
    assert list(other.take(m.TaskResult).ids) == [0]
    worker.take(m.ObjectInstruction)
    assert isinstance(harness.take_effect(), RemoveObject)
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("has_content", [True, False], ids=["bytes", "refusals"])
def test_very_many_requests_that_have_waited_are_answered_in_parts(has_content: bool) -> None:
    harness = Harness(work_per_call=SMALL_WORK)
    client, worker, gone = harness.client(), harness.worker(), harness.worker()
    object_id = client.announce(1, 10, REMOTE)
    asked = client.take(m.ObjectRequest)
    for _ in range(300):
        worker.post(m.ObjectRequest(id=object_id, offset=0, length=10))
        gone.post(m.ObjectRequest(id=object_id, offset=0, length=10))
    harness.tick()
    harness.core.on_peer_gone(harness.now, gone.name)
    if has_content:
        client.post(m.ObjectResponse(id=asked.id, offset=asked.offset), b"x" * asked.length)
    else:
        client.post(m.ObjectResponse(id=asked.id, status=m.ObjectResponseStatus.MISSING))
    answer = SendChunk(worker.name, object_id, 0, 10, 10)
    made = harness.steps(lambda: len(worker.inbox) + harness.effects.count(answer))
    assert max(made) <= object_table.AT_ONCE + SMALL_WORK and sum(made) == 300
    if has_content:
        assert [each for each in harness.effects if isinstance(each, SendChunk)] == [answer] * 300
    else:
        for _ in range(300):
            take_missing(worker, object_id)
    assert not harness.state.objects._requesters


def test_a_new_session_is_not_sent_what_the_former_one_waited_for(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    object_id = client.announce(1, 20, REMOTE)
    asked = [client.take(m.ObjectRequest) for _ in range(2)]
    request(worker, object_id)
    worker.greet(hello(m.Role.WORKER, slots=1))
    for part in asked:
        respond(client, part)
        assert isinstance(harness.take_effect(), StoreChunk)
    harness.nothing_else_was_sent()


def test_who_waits_is_told_when_the_source_does_not_have_it(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    object_id = client.announce(1, 20, REMOTE)
    client.inbox.clear()
    request(worker, object_id)
    client.send(m.ObjectResponse(id=object_id, status=m.ObjectResponseStatus.MISSING))
    take_missing(worker, object_id)
    client.send(m.ObjectResponse(id=object_id, offset=10), b"x" * 10)
    client.submit([0], function=object_id)
    assert list(client.take_losses()) == [0]
    assert harness.take_effect() == RemoveObject(object_id)
    harness.nothing_else_was_sent()


def test_nothing_stays_of_what_its_maker_does_not_have(harness: Harness) -> None:
    client, other, worker = harness.client(), harness.client(), harness.worker()
    object_id = client.announce(1, 20, REMOTE)
    client.inbox.clear()
    other.submit([0], dependency_counts=[1], dependencies=[object_id])
    worker.take(m.ObjectInstruction)
    worker.take_tasks()
    client.send(m.ObjectResponse(id=object_id, status=m.ObjectResponseStatus.MISSING))
    assert harness.take_effect() == RemoveObject(object_id)
    assert len(harness.core.state.objects) == 1, "a task that was sent has it"
    worker.finish(worker.task.ids, statuses=[Status.FAILED])
    assert list(other.take(m.TaskResult).ids) == [0]
    worker.take(m.ObjectInstruction)
    assert len(harness.core.state.objects) == 0
    client.send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", [object_id])))
    harness.nothing_else_was_sent()


def test_who_waits_is_told_when_the_bytes_cannot_be_kept(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    object_id = client.announce(1, 20, REMOTE)
    asked = client.take(m.ObjectRequest)
    client.inbox.clear()
    request(worker, object_id, 10)
    respond(client, asked)
    assert isinstance(harness.take_effect(), StoreChunk)
    harness.core.on_object_unreadable(harness.now, object_id)
    harness.tick()
    take_missing(worker, object_id)
    assert harness.take_effect() == RemoveObject(object_id)
    harness.nothing_else_was_sent()


def fill_disk(harness: Harness, object_id: int) -> None:
    """The bytes that have just arrived find no room."""
    assert isinstance(harness.take_effect(), StoreChunk)
    harness.core.on_object_unreadable(harness.now, object_id, "no room", True)
    harness.tick()
    assert harness.take_effect() == RemoveObject(object_id)


def test_an_object_without_room_is_called_so_to_all_who_need_it(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    object_id = client.announce(1, 20, REMOTE)
    asked = client.take(m.ObjectRequest)
    client.inbox.clear()
    request(worker, object_id, 10)
    respond(client, asked)
    fill_disk(harness, object_id)
    take_missing(worker, object_id, m.MissingReason.NO_ROOM)
    request(worker, object_id)
    take_missing(worker, object_id, m.MissingReason.NO_ROOM)
    client.submit([0], dependency_counts=[1], dependencies=[object_id])
    (failure,) = client.take_losses().values()
    assert (failure.kind, failure.missing_reason) == (m.FailureKind.OBJECT_MISSING, m.MissingReason.NO_ROOM)
    assert "no room for object" in failure.message and "--object-spill-directory" in failure.message
    client.delete(object_id)
    request(worker, object_id)
    take_missing(worker, object_id)
    harness.nothing_else_was_sent()


def test_a_function_without_room_is_called_so(harness: Harness) -> None:
    client = harness.client()
    harness.worker()
    function = client.announce(1, 10, REMOTE)
    respond(client, client.take(m.ObjectRequest))
    fill_disk(harness, function)
    client.submit([0], function=function)
    (failure,) = client.take_losses().values()
    assert (failure.kind, failure.missing_reason) == (m.FailureKind.OBJECT_MISSING, m.MissingReason.NO_ROOM)
    assert "no room for object" in failure.message
    harness.nothing_else_was_sent()


def test_no_worker_reads_a_file_that_may_have_no_room(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    object_id = client.announce(1, 10, REMOTE)
    respond_and_submit(client, object_id)
    assert list(worker.take(m.ObjectInstruction).storages) == [REMOTE]
    worker.take_tasks()
    fill_disk(harness, object_id)
    request(worker, object_id)
    take_missing(worker, object_id, m.MissingReason.NO_ROOM)
    harness.nothing_else_was_sent()


def test_a_file_that_has_been_written_is_there_for_all_workers(harness: Harness) -> None:
    client = harness.client()
    object_id = client.announce(1, 10, REMOTE)
    respond_and_submit(client, object_id)
    assert isinstance(harness.take_effect(), StoreChunk)
    worker = harness.worker()
    assert list(worker.take(m.ObjectInstruction).storages) == [SHARED]


def respond_and_submit(client: Client, object_id: int) -> None:
    """The last bytes of an object arrive, and with them a task that needs it."""
    client.take(m.ObjectRequest)
    client.post(m.ObjectResponse(id=object_id, size=10), b"x" * 10)
    client.submit([0], dependency_counts=[1], dependencies=[object_id])


def test_a_result_without_room_is_called_so(harness: Harness, result: Result) -> None:
    client, worker, instance, object_id = result
    respond(worker, worker.take(m.ObjectRequest))
    fill_disk(harness, object_id)
    worker.finish([instance], [b""], objects=[object_id])
    client.take(m.TaskResult)
    request(client, object_id)
    take_missing(client, object_id, m.MissingReason.NO_ROOM)


def test_objects_without_room_have_one_line_of_log_a_minute(harness: Harness) -> None:
    client = harness.client()
    harness.logs.clear()
    for object_id in [client.announce(number, 10, REMOTE) for number in range(1, 6)]:
        respond(client, client.take(m.ObjectRequest))
        fill_disk(harness, object_id)
        harness.core.on_object_unreadable(harness.now, object_id, "its earlier parts could not be stored", False)
    harness.tick()
    assert harness.logs == ["Scheduler: an object of 10 bytes could not be stored: no room"]
    harness.wait(COMPLAINT_INTERVAL_SECONDS)
    assert harness.logs[1:] == ["Scheduler: 4 objects of 40 bytes could not be stored in the last 60 seconds: no room"]


def test_a_result_that_cannot_be_kept_is_fetched_to_its_end_for_its_outcome_to_come(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    (instance,) = worker.take_tasks()
    object_id = worker.announce(1, 95, REMOTE)
    respond(worker, worker.take(m.ObjectRequest))
    assert isinstance(harness.take_effect(), StoreChunk)
    harness.core.on_object_unreadable(harness.now, object_id)
    harness.tick()
    assert harness.take_effect() == RemoveObject(object_id)
    asked = 10
    while worker.inbox:
        part = worker.take(m.ObjectRequest)
        assert part.offset == asked
        asked += part.length
        worker.send(m.ObjectResponse(id=object_id, offset=part.offset, size=95), b"x" * part.length)
    assert asked == 95
    worker.finish([instance], [b""], objects=[object_id])
    assert list(client.take(m.TaskResult).objects) == [object_id]
    request(client, object_id)
    take_missing(client, object_id)
    client.delete(object_id)
    assert len(harness.state.objects) == 0
    harness.nothing_else_was_sent()


def test_a_result_that_cannot_be_kept_and_comes_too_late_is_forgotten(harness: Harness, result: Result) -> None:
    client, worker, instance, object_id = result
    client.vanish()
    worker.take(m.ObjectRequest)
    worker.take(m.TaskCancel)
    worker.send(m.ObjectResponse(id=object_id, size=10), b"x" * 10)
    assert isinstance(harness.take_effect(), StoreChunk)
    harness.core.on_object_unreadable(harness.now, object_id)
    worker.finish([instance], [b""], objects=[object_id])
    assert len(harness.state.objects) == 0


def test_a_chunk_of_another_length_than_asked_for_costs_the_session(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    object_id = client.announce(1, 20, REMOTE)
    asked = [client.take(m.ObjectRequest) for _ in range(2)]
    request(worker, object_id, 10)
    respond(client, asked[0])
    assert isinstance(harness.take_effect(), StoreChunk)
    client.send(m.ObjectResponse(id=object_id, offset=10, size=20), b"x" * 9)
    client.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)
    take_missing(worker, object_id)
    assert harness.take_effect() == RemoveObject(object_id)
    harness.nothing_else_was_sent()


def test_who_waits_is_told_when_the_object_is_deleted(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    object_id = client.announce(1, 20, REMOTE)
    client.inbox.clear()
    request(worker, object_id)
    client.delete(object_id)
    take_missing(worker, object_id)
    assert isinstance(harness.take_effect(), RemoveObject)
    client.send(m.ObjectResponse(id=object_id), b"x" * 10)
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("offset", [21, 2**63])
def test_bytes_that_no_object_has_are_missing(harness: Harness, offset: int) -> None:
    client = harness.client()
    object_id = client.create(1, b"x" * 20)
    request(client, object_id, offset)
    take_missing(client, object_id)
    request(client, client.object_id(2), 0)
    take_missing(client, client.object_id(2))
    harness.nothing_else_was_sent()


def test_an_object_lives_while_tasks_need_it_and_every_holder_is_notified_of_its_end(harness: Harness) -> None:
    client = harness.client()
    workers = [harness.worker(), harness.worker(), harness.worker()]
    function = client.create(1, b"code")
    client.submit([0, 1], function=function)
    client.delete(function)
    client.delete(function)
    for worker in workers[:2]:
        worker.take(m.ObjectInstruction)
        worker.finish(worker.take_tasks())
        client.take_results()
    for worker in workers[:2]:
        deleted = worker.take(m.ObjectInstruction)
        assert (deleted.action, list(deleted.ids)) == (m.ObjectAction.DELETE, [function])
    assert len(harness.state.objects) == 0 and harness.state.objects.total_bytes == 0
    harness.nothing_else_was_sent()


def test_clear_lets_go_of_everything(harness: Harness) -> None:
    client = harness.client()
    client.create(1, b"a")
    client.create(2, b"b")
    client.send(m.ObjectInstruction(action=m.ObjectAction.CLEAR))
    assert len(harness.state.objects) == 0
    harness.nothing_else_was_sent()


def test_a_large_result_becomes_its_clients_object(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    instances = worker.take_tasks()
    object_id = worker.announce(1, 1000, SHARED)
    worker.finish(instances, [b""], objects=[object_id])
    result = client.take(m.TaskResult)
    assert list(result.objects) == [object_id]
    worker.vanish()
    request(client, object_id)
    assert isinstance(harness.take_effect(), SendChunk)
    client.delete(object_id)
    assert harness.take_effect() == RemoveObject(object_id)
    harness.nothing_else_was_sent()


def test_an_unwanted_large_result_is_removed(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    instances = worker.take_tasks()
    object_id = worker.announce(1, 1000, SHARED)
    client.vanish()
    worker.take(m.TaskCancel)
    worker.finish(instances, [b""], objects=[object_id])
    assert harness.take_effect() == RemoveObject(object_id)
    harness.nothing_else_was_sent()


def test_objects_of_a_lost_worker_are_removed(harness: Harness) -> None:
    worker = harness.worker()
    object_id = worker.announce(1, 1000, SHARED)
    worker.vanish()
    assert harness.take_effect() == RemoveObject(object_id)
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("objects", ["unknown", "of the client", "twice"])
def test_a_result_object_that_is_not_the_workers_costs_the_session_and_no_task(harness: Harness, objects: str) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([0, 1])
    own = worker.announce(1, 1000, SHARED)
    columns = {"unknown": [0, 77], "of the client": [client.create(1, b"x"), 0], "twice": [own, own]}
    worker.finish(worker.take_tasks(), [b"", b""], objects=columns[objects])
    worker.take_refusal(Reason.PROTOCOL_VIOLATION)
    assert harness.take_effect() == RemoveObject(own)
    other = harness.worker()
    other.finish(other.take_tasks())
    assert set(client.take_results()) == {0, 1}
    harness.nothing_else_was_sent()


def _bad_instructions() -> Dict[str, Any]:
    def instruction(**fields: Any) -> m.ObjectInstruction:
        columns: Dict[str, Any] = {"ids": [1], "sizes": [3], "storages": bytes(1), **fields}
        for name in ("ids", "sizes"):
            columns[name] = array("Q", columns[name])
        return m.ObjectInstruction(**columns)

    return {
        "an id of another session": (instruction(ids=[99 << 40 | 1]), Reason.PROTOCOL_VIOLATION),
        "fewer sizes": (instruction(sizes=[]), Reason.MALFORMED),
        "fewer storages": (instruction(storages=b""), Reason.MALFORMED),
        "more kinds": (instruction(kinds=b"\0\0"), Reason.MALFORMED),
        "more names": (instruction(names=["a", "b"]), Reason.MALFORMED),
        "content of another size": (instruction(sizes=[2]), Reason.MALFORMED),
        "an unknown storage": (instruction(storages=b"\x09"), Reason.MALFORMED),
        "an unknown action": (m.ObjectInstruction(action=9), Reason.MALFORMED),
        "an object too large": (instruction(sizes=[101], storages=bytes([SHARED])), Reason.LIMIT_EXCEEDED),
    }


@pytest.mark.parametrize("name", _bad_instructions())
def test_a_bad_instruction_costs_the_session(name: str) -> None:
    harness = Harness(maximum_object_bytes=100)
    client = harness.client()
    message, reason = _bad_instructions()[name]
    if message.ids and message.ids[0] == 1:
        message.ids[0] = client.object_id(1)
    client.send(message, b"" if reason == Reason.LIMIT_EXCEEDED else b"abc")
    client.take_refusal(reason)
    assert not harness.state.sessions
    harness.nothing_else_was_sent()


def test_an_id_in_use_is_not_given_again(harness: Harness) -> None:
    client = harness.client()
    client.create(1, b"a")
    client.post(m.ObjectInstruction(ids=array("Q", [client.object_id(1)]), sizes=array("Q", [0]), storages=bytes(1)))
    harness.tick()
    client.take_refusal(Reason.PROTOCOL_VIOLATION)
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("number", [0, FIRST_SCHEDULER_NUMBER])
def test_a_number_that_peers_do_not_give_costs_the_session(harness: Harness, number: int) -> None:
    client = harness.client()
    ids = array("Q", [client.object_id(number)])
    client.post(m.ObjectInstruction(ids=ids, sizes=array("Q", [0]), storages=bytes(1)))
    harness.tick()
    client.take_refusal(Reason.PROTOCOL_VIOLATION)
    harness.nothing_else_was_sent()


@pytest.mark.parametrize(("offset", "length"), [(0, 11), (5, 10), (0, 0), (10, 10)])
def test_bytes_that_were_not_asked_for_cost_the_session(offset: int, length: int) -> None:
    harness = Harness(chunk_bytes=10)
    client = harness.client()
    object_id = client.announce(1, 10, REMOTE)
    client.take(m.ObjectRequest)
    client.send(m.ObjectResponse(id=object_id, offset=offset), b"x" * length)
    client.take_refusal(Reason.PROTOCOL_VIOLATION)
    assert harness.take_effect() == RemoveObject(object_id)
    harness.nothing_else_was_sent()
