"""A whole worker and the objects of its tasks: files on one host, fetched in chunks from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Dict, Iterator

import pytest
from fake_scheduler import FakeScheduler, StartWorker
from sdk_tasks import wait_until
from worker_gates import Gate, private_directory, send_task_with_object, wait_for_heartbeat

from scaler.exceptions import MissingObjects, ObjectStorageFullError
from scaler.values import payload as payloads
from scaler_protocol import messages as m
from scaler_protocol.host.segments import ObjectDirectory, object_name

# Objects --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def directory() -> Iterator[ObjectDirectory]:
    made = ObjectDirectory()
    yield made
    made.remove()


def test_on_one_host_objects_are_files_and_do_not_travel(
    scheduler: FakeScheduler, start_worker: StartWorker, directory: ObjectDirectory
) -> None:
    start_worker()
    scheduler.welcome(object_directory=directory.path, object_directory_token=directory.token)
    assert wait_for_heartbeat(scheduler, lambda h: True).shares_object_directory
    content = payloads.join(payloads.dump(bytes(300_000)))
    object_id = scheduler.new_object_id()
    with open(directory.object_path(object_id), "wb") as file:
        file.write(content)
    scheduler.announce(object_id, len(content), m.ObjectStorage.SHARED)

    send_task_with_object(scheduler, 1, scheduler.create_function(lambda x: x + b"!"), object_id)

    created = scheduler.receive(m.ObjectInstruction).message
    outcome = scheduler.result(1)
    result_id = outcome.position
    assert list(created.ids) == [result_id]
    assert created.storages == bytes([m.ObjectStorage.SHARED])
    assert result_id >> 40 == scheduler.session
    with open(directory.object_path(result_id), "rb") as file:
        stored = file.read()
    assert list(created.sizes) == [len(stored)]
    assert payloads.load_value(stored, None) == bytes(300_000) + b"!"
    objects = [name for name in os.listdir(directory.path) if not name.endswith("-lock")]
    assert sorted(objects) == sorted(["token", object_name(object_id), object_name(result_id)])
    scheduler.assert_nothing_more()


def test_a_wrong_token_means_that_nothing_is_shared(
    scheduler: FakeScheduler, start_worker: StartWorker, directory: ObjectDirectory
) -> None:
    start_worker()
    scheduler.welcome(object_directory=directory.path, object_directory_token=b"another token...")

    assert not wait_for_heartbeat(scheduler, lambda h: True).shares_object_directory


def serve(scheduler: FakeScheduler, object_id: int, content: bytes, chunk_bytes: int) -> int:
    """Answer requests until the object is through; the largest number of requests open at a time."""
    most_open = sent = 0
    while sent < len(content):
        requests = [scheduler.receive(m.ObjectRequest).message]
        scheduler.send(m.Heartbeat(sequence=1))  # its echo comes behind all requests made so far
        scheduler.receive(m.HeartbeatEcho)
        while any(isinstance(kept.message, m.ObjectRequest) for kept in scheduler.kept):
            requests.append(scheduler.receive(m.ObjectRequest).message)
        most_open = max(most_open, len(requests))
        for request in requests:
            assert (request.id, request.offset) == (object_id, sent)
            chunk = content[sent : sent + request.length]
            assert len(chunk) <= chunk_bytes
            scheduler.send(m.ObjectResponse(id=object_id, offset=sent, size=len(content)), chunk)
            sent += len(chunk)
    return most_open


def test_an_object_elsewhere_is_fetched_in_chunks_and_other_tasks_do_not_wait(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    start_worker()
    chunk_bytes = 10_000
    scheduler.welcome(limits=m.Limits(chunk_bytes=chunk_bytes))
    content = payloads.join(payloads.dump(os.urandom(95_000)))
    object_id = scheduler.new_object_id()
    scheduler.announce(object_id, len(content), m.ObjectStorage.REMOTE)
    function = scheduler.create_function(len)
    send_task_with_object(scheduler, 1, function, object_id)
    scheduler.send_calls(function, {2: ("abc",)})

    assert scheduler.result(2).value == 3
    assert serve(scheduler, object_id, content, chunk_bytes) == 4
    assert scheduler.result(1).value == 95_000

    send_task_with_object(scheduler, 3, function, object_id)  # it is there now
    assert scheduler.result(3).value == 95_000
    scheduler.assert_nothing_more()


def test_a_task_with_a_missing_object_is_lost(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker()
    scheduler.welcome()
    send_task_with_object(scheduler, 1, scheduler.create_function(len), 4711)
    request = scheduler.receive(m.ObjectRequest).message
    scheduler.send(m.ObjectResponse(id=request.id, offset=0, status=m.ObjectResponseStatus.MISSING))

    outcome = scheduler.result(1)
    assert outcome.status == m.TaskStatus.LOST
    assert isinstance(outcome.exception, MissingObjects)


def test_a_task_whose_object_the_scheduler_had_no_room_for_says_so(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    start_worker()
    scheduler.welcome()
    send_task_with_object(scheduler, 1, scheduler.create_function(len), 4711)
    request = scheduler.receive(m.ObjectRequest).message
    missing = m.ObjectResponseStatus.MISSING
    scheduler.send(m.ObjectResponse(id=request.id, status=missing, missing_reason=m.MissingReason.NO_ROOM))

    error = scheduler.result(1).exception
    assert isinstance(error, ObjectStorageFullError) and "could not be stored by the scheduler" in str(error)


def test_a_deleted_object_is_forgotten_everywhere(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker()
    scheduler.welcome()
    function = scheduler.create_function(len)
    object_id = scheduler.create_inline(payloads.join(payloads.dump("text")))
    send_task_with_object(scheduler, 1, function, object_id)
    assert scheduler.result(1).value == 4
    scheduler.send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=[object_id]))

    send_task_with_object(scheduler, 2, function, object_id)
    request = scheduler.receive(m.ObjectRequest).message
    assert request.id == object_id
    scheduler.send(m.ObjectResponse(id=request.id, status=m.ObjectResponseStatus.MISSING))
    assert isinstance(scheduler.result(2).exception, MissingObjects)


def test_a_large_result_is_announced_fetched_and_only_then_reported(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    start_worker()
    scheduler.welcome(limits=m.Limits(chunk_bytes=100_000))
    directory = private_directory(scheduler)
    scheduler.send_calls(scheduler.create_function(bytes), {1: (250_000,), 2: (3,)})
    created = scheduler.receive(m.ObjectInstruction).message
    assert created.storages == bytes([m.ObjectStorage.REMOTE])
    assert scheduler.result(2).value == bytes(3)

    content = b""
    while len(content) < created.sizes[0]:
        scheduler.assert_nothing_more()  # no outcome yet
        scheduler.send(m.ObjectRequest(id=created.ids[0], offset=len(content), length=100_000))
        content += scheduler.receive(m.ObjectResponse).payload

    outcome = scheduler.result(1)
    assert outcome.position == created.ids[0]
    assert payloads.load_value(content, None) == bytes(250_000)
    scheduler.assert_nothing_more()
    assert sorted(os.listdir(directory)) == ["spill", "token"]


def test_a_request_for_an_object_that_is_not_here_is_answered(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    start_worker()
    scheduler.welcome()
    scheduler.send(m.ObjectRequest(id=12345, offset=0, length=10))

    assert scheduler.receive(m.ObjectResponse).message.status == m.ObjectResponseStatus.MISSING


def test_a_large_result_of_a_session_that_ended_is_not_left(
    scheduler: FakeScheduler,
    start_worker: StartWorker,
    directory: ObjectDirectory,
    gate: Gate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SCL-WRK-028: what has not started when the session ends never starts, and what runs is stopped."""
    folder = tmp_path / "where the worker was started"
    folder.mkdir()
    monkeypatch.chdir(folder)
    start_worker()
    scheduler.welcome(object_directory=directory.path, object_directory_token=directory.token)
    wait_for_heartbeat(scheduler, lambda h: True)
    before = set(os.listdir(directory.path))
    path, queued, done = gate.path, tmp_path / "queued", tmp_path / "done"
    calls: Dict[int, Callable[[], object]] = {
        1: lambda: bytes(1 << 20) * open(path, "rb", buffering=0).read(1)[0],
        2: queued.touch,
    }
    for instance, call in calls.items():
        scheduler.send_calls(scheduler.create_function(call), {instance: ()})
    wait_for_heartbeat(scheduler, lambda h: h.processors and h.processors[0].has_task)

    scheduler.send(m.Refusal(reason=m.RefusalReason.NOT_GREETED))
    scheduler.receive(m.Hello)
    scheduler.send(scheduler.welcome_message(object_directory=directory.path, object_directory_token=directory.token))
    scheduler.receive(m.Heartbeat)

    scheduler.send_calls(scheduler.create_function(done.touch), {3: ()})
    wait_until(done)
    assert not queued.exists()
    assert not list(folder.iterdir())
    assert set(os.listdir(directory.path)) == before
