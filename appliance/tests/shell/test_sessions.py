"""A scheduler process and its peers: what arrives, who is served, who is not, and who never notices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from array import array
from random import Random
from typing import Callable, List

from scheduler_harness import hello, task
from scheduler_process import SchedulerProcess, check_others_work, wait_for

from scaler_protocol import PROTOCOL_MAJOR, encode
from scaler_protocol import messages as m

Reason = m.RefusalReason
Start = Callable[..., SchedulerProcess]
MUTATED_FRAMES, MUTATING_PEERS = 2000, 20


def test_a_task_goes_to_a_worker_and_its_result_comes_back(scheduler: SchedulerProcess) -> None:
    worker, client = scheduler.worker(), scheduler.client()
    client.send(*task([7], [b"question"]))
    message, payload = worker.take(m.Task)
    assert payload == b"question"
    worker.finish(message.ids, b"answer")
    result, payload = client.take(m.TaskResult)
    assert (list(result.ids), payload) == ([7], b"answer")


def test_the_welcome_names_a_directory_with_its_token(scheduler: SchedulerProcess) -> None:
    welcome = scheduler.client().welcome
    with open(os.path.join(welcome.object_directory, "token"), "rb") as token:
        assert token.read() == welcome.object_directory_token
    assert len(welcome.scheduler_id) == 16
    assert welcome.monitor_address == scheduler.monitor_address


def test_a_wrong_version_is_refused(scheduler: SchedulerProcess) -> None:
    peer = scheduler.peer()
    peer.send(hello(m.Role.CLIENT, major=PROTOCOL_MAJOR + 1))
    assert f"{PROTOCOL_MAJOR}." in peer.take_refusal(Reason.VERSION_MISMATCH)
    check_others_work(scheduler)


MALFORMED = {
    "empty": (b"",),
    "junk": (b"junk",),
    "ones": (b"\xff" * 100,),
    "of a REQ": (b"", encode(m.Heartbeat())),
    "cut off": (encode(m.Heartbeat())[:-1],),
    "three frames": (encode(m.Heartbeat()), b"", b""),
    "twenty frames": (encode(m.Heartbeat()),) * 20,
}


def test_malformed_messages_are_refused_without_affecting_others(scheduler: SchedulerProcess) -> None:
    worker, client = scheduler.worker(), scheduler.client()
    for number, (name, frames) in enumerate(MALFORMED.items(), 1):
        bad = scheduler.client()
        client.submit(number)
        bad.send_frames(*frames)
        assert bad.take_refusal(Reason.MALFORMED), name
        bad.send(m.Heartbeat())
        assert bad.take_refusal(Reason.NOT_GREETED), name
        worker.finish(worker.take_task_ids())
        assert client.take_result_ids() == [number], name


def test_thousands_of_mutated_frames_leave_other_sessions_working(scheduler: SchedulerProcess) -> None:
    """They come from many peers in turn: while one that was refused is paused, others are served."""
    random = Random(5)
    worker, client = scheduler.worker(), scheduler.client()
    client.submit(1)
    mine = worker.take_task_ids()
    bad_peers = [scheduler.peer() for _ in range(MUTATING_PEERS)]
    seeds = [
        encode(message)
        for message in (
            hello(m.Role.WORKER, slots=1, queue_size=9, capabilities=[m.Capability(name="gpu", amount=1)]),
            hello(m.Role.CLIENT),
            task(range(20))[0],
            m.TaskResult(ids=array("Q", range(20)), payload_sizes=array("I", [0] * 20), statuses=bytes(20)),
            m.TaskCancel(ids=array("Q", range(20))),
            m.ObjectInstruction(ids=array("Q", [2 << 40]), sizes=array("Q", [3]), storages=bytes([2])),
            m.ObjectRequest(id=2 << 40, length=100),
            m.Heartbeat(processors=[m.ProcessorStatus(suspended=True)] * 3),
            m.BalanceResponse(ids=array("Q", [1, 2, 3])),
        )
    ]
    for count in range(MUTATED_FRAMES):
        frame = bytearray(random.choice(seeds))
        for _ in range(random.choice((0, 1, 1, 3, 10))):
            frame[random.randrange(len(frame))] = random.randrange(256)
        bad = bad_peers[count % MUTATING_PEERS]
        bad.send_frames(bytes(frame), *[random.randbytes(random.randrange(30))] * random.randrange(2))
    worker.finish(mine)
    assert client.take_result_ids() == [1]
    for bad in bad_peers:
        bad.send(m.DisconnectRequest())
    for bad in bad_peers:
        while not isinstance(bad.receive()[0], m.DisconnectResponse):
            pass
    client.submit(2)
    worker.finish(worker.take_task_ids())
    assert client.take_result_ids() == [2]
    assert "internal error" not in scheduler.output()


_CLIENT_TO_KILL = """
import sys, time, zmq
sys.path[:0] = {path!r}
from scheduler_process import RawPeer
from scheduler_harness import hello
from scaler_protocol import messages as m
peer = RawPeer(zmq.Context().socket(zmq.DEALER), {address!r}, {{}})
peer.greet(hello(m.Role.CLIENT, heartbeat_interval_milliseconds=500))
peer.submit(1, 2, 3)
time.sleep(600)
"""


def test_a_killed_client_is_noticed_and_its_tasks_are_cancelled(scheduler: SchedulerProcess) -> None:
    worker = scheduler.worker(slots=5)
    code = _CLIENT_TO_KILL.format(path=sys.path, address=scheduler.address)
    client = subprocess.Popen([sys.executable, "-c", code])
    instances = worker.take_task_ids()
    client.send_signal(signal.SIGKILL)
    client.wait()
    cancel, _ = worker.take(m.TaskCancel)
    assert (cancel.ids, cancel.force) == (instances, True)
    scheduler.wait_for_output("its connection was lost")


def test_a_peer_that_does_not_read_does_not_delay_others(scheduler: SchedulerProcess) -> None:
    """Results for it wait in the scheduler, in order, and arrive when it reads again; its other tasks wait as well."""
    worker, other = scheduler.worker(slots=1000), scheduler.client()
    idle = scheduler.peer(RCVHWM=1, RCVBUF=4096)
    idle.greet(hello(m.Role.CLIENT, heartbeat_interval_milliseconds=60_000))
    payload = bytes(200_000)
    count = 400
    idle.submit(*range(count))
    for instance in worker.take_task_ids():
        worker.finish(array("Q", [instance]), payload)
    other.submit(1)
    worker.finish(worker.take_task_ids())
    assert other.take_result_ids() == [1]
    idle.submit(count)
    received: List[int] = []
    while len(received) < count:
        result, data = idle.take(m.TaskResult)
        received += result.ids
        assert len(data) == len(payload) * len(result.ids)
    assert received == list(range(count))
    worker.finish(worker.take_task_ids())
    assert idle.take_result_ids() == [count]


def test_a_message_beyond_the_limit_ends_the_connection(start: Callable[..., SchedulerProcess]) -> None:
    scheduler = start("--maximum-message-bytes", "100000")
    client = scheduler.client()
    assert client.welcome.limits.maximum_message_bytes == 100_000
    client.send(*task([1], [bytes(200_000)]))
    check_others_work(scheduler)


def test_an_object_on_another_host_is_fetched_and_served(scheduler: SchedulerProcess) -> None:
    source, reader = scheduler.client(), scheduler.client()
    content = os.urandom(3_000_000)
    object_id = source.welcome.session << 40 | 1
    source.send(
        m.ObjectInstruction(
            ids=array("Q", [object_id]), sizes=array("Q", [len(content)]), storages=bytes([m.ObjectStorage.REMOTE])
        )
    )
    request, _ = source.take(m.ObjectRequest)  # so the scheduler knows of the object
    reader.send(m.ObjectRequest(id=object_id, offset=len(content) - 1000, length=1000))
    sent = 0
    while sent < len(content):
        if sent:
            request, _ = source.take(m.ObjectRequest)
        chunk = content[request.offset : request.offset + request.length]
        source.send(m.ObjectResponse(id=object_id, offset=request.offset), chunk)
        sent += len(chunk)
    assert reader.take(m.ObjectResponse)[1] == content[-1000:]
    path = os.path.join(source.welcome.object_directory, f"{object_id:016x}")
    with open(path, "rb") as file:
        assert file.read() == content
    source.send(m.DisconnectRequest())
    source.take(m.DisconnectResponse)
    wait_for(lambda: not os.path.exists(path), "the object's file to be removed")


def test_files_that_a_lost_peer_left_behind_are_removed(scheduler: SchedulerProcess) -> None:
    client = scheduler.client()
    path = os.path.join(client.welcome.object_directory, f"{client.welcome.session << 40 | 9:016x}")
    with open(path, "wb") as file:
        file.write(b"never announced")
    client.send(m.DisconnectRequest())
    client.take(m.DisconnectResponse)
    wait_for(lambda: not os.path.exists(path), "the file to be removed")


def test_a_disk_that_is_full_costs_the_object_and_nothing_else(scheduler: SchedulerProcess) -> None:
    source, reader = scheduler.client(), scheduler.client()
    directory = source.welcome.object_directory
    os.chmod(directory, 0)
    if os.geteuid() == 0:  # whom no mode stops
        os.rename(directory, f"{directory}-away")
    try:
        object_id = source.welcome.session << 40 | 1
        instruction = m.ObjectInstruction(
            ids=array("Q", [object_id]), sizes=array("Q", [5]), storages=bytes([m.ObjectStorage.REMOTE])
        )
        source.send(instruction)
        source.take(m.ObjectRequest)
        reader.send(m.ObjectRequest(id=object_id, length=5))
        source.send(m.ObjectResponse(id=object_id), b"bytes")
        assert reader.take(m.ObjectResponse)[0].status == m.ObjectResponseStatus.MISSING
        scheduler.wait_for_output("an object of 5 bytes could not be stored")
    finally:
        if os.geteuid() == 0:
            os.rename(f"{directory}-away", directory)
        os.chmod(directory, 0o700)
    check_others_work(scheduler)


def test_a_scheduler_that_was_stopped_gives_all_peers_a_fresh_term(start: Start) -> None:
    """As when its host is suspended or moved: its peers may have been stopped with it."""
    scheduler = start("-ct", "4", "-wt", "4")
    client, worker = scheduler.client(), scheduler.worker()
    scheduler.process.send_signal(signal.SIGSTOP)
    time.sleep(6.0)  # nothing happens meanwhile, which is what this is about
    scheduler.process.send_signal(signal.SIGCONT)
    for peer in (client, worker):
        peer.send(m.Heartbeat())
    client.submit(1)
    worker.finish(worker.take_task_ids())
    assert client.take_result_ids() == [1]


def test_peers_beyond_the_maximum_are_told_so(start: Start) -> None:
    scheduler = start("--maximum-peers", "2")
    client, worker = scheduler.client(), scheduler.worker()
    third = scheduler.peer()
    third.send(hello(m.Role.CLIENT))
    assert "--maximum-peers" in third.take_refusal(Reason.LIMIT_EXCEEDED)
    client.submit(1)
    worker.finish(worker.take_task_ids())
    assert client.take_result_ids() == [1]
    client.send(m.DisconnectRequest())
    client.take(m.DisconnectResponse)
    third.send(hello(m.Role.CLIENT))
    third.take(m.Welcome)
