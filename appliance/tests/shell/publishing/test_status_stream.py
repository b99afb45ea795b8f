"""A scheduler process and monitors: late subscribers, repeated subscriptions, and no subscribers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, Type, TypeVar

import zmq
from scheduler_harness import hello
from scheduler_process import RawPeer, SchedulerProcess, check_others_work
from status_model import StatusModel

from scaler_protocol import decode
from scaler_protocol import messages as m

MessageType = TypeVar("MessageType")


class RawMonitor:
    """A SUB socket."""

    def __init__(self, socket: zmq.Socket[bytes], address: str, topic: bytes) -> None:
        self.socket = socket
        socket.subscribe(topic)
        socket.connect(address)

    def take(self, kind: Type[MessageType]) -> MessageType:
        assert self.socket.poll(30_000), f"no {kind.__name__} came"
        topic, frame = self.socket.recv_multipart()
        message = decode(frame)
        assert isinstance(message, kind) and topic == (b"tasks" if kind is m.TaskRuns else b"status")
        return message


@contextmanager
def monitor_of(scheduler: SchedulerProcess, topic: bytes = b"status") -> Iterator[RawMonitor]:
    socket = scheduler.context.socket(zmq.SUB)
    try:
        yield RawMonitor(socket, scheduler.monitor_address, topic)
    finally:
        socket.close(0)


def is_watched(worker: RawPeer) -> bool:
    """What the answer to a heartbeat says."""
    worker.send(m.Heartbeat())
    while True:
        assert worker.socket.poll(30_000)
        message = decode(worker.socket.recv_multipart()[0])
        if isinstance(message, m.HeartbeatEcho):
            return message.is_watched


def test_who_comes_late_gets_a_snapshot_and_then_what_changed(scheduler: SchedulerProcess) -> None:
    worker, client = scheduler.worker(slots=3), scheduler.client()
    client.submit(1)
    ids = worker.take_task_ids()
    model = StatusModel()
    with monitor_of(scheduler) as monitor:
        status = monitor.take(m.SchedulerStatus)
        assert status.is_snapshot
        model.apply(status)
        assert status.scheduler_id == client.welcome.scheduler_id and status.address == scheduler.address
        assert status.resident_bytes > 0 and status.process_id == scheduler.process.pid and status.is_protected
        assert {count.name: count.value for count in status.received}["Hello"] == 2
        assert 0 < status.started_unix_microseconds <= status.unix_microseconds
        (name,) = status.new_workers
        assert (name.session, name.slots, name.host) == (worker.welcome.session, 3, "here")
        assert model.figures["tasks"]["running"] == 1
        worker.finish(ids)
        while not model.figures["tasks"]["success"]:
            status = monitor.take(m.SchedulerStatus)
            assert not status.is_snapshot and not status.new_workers
            model.apply(status)
        assert model.tables["workers"][worker.welcome.session][1:6] == (0, 0, 1, 1, 0)
        assert status.status_microseconds > 0


def test_a_new_subscriber_makes_all_get_a_snapshot(scheduler: SchedulerProcess) -> None:
    with monitor_of(scheduler) as first:
        assert first.take(m.SchedulerStatus).is_snapshot
        model = StatusModel()
        with monitor_of(scheduler) as second:
            status = second.take(m.SchedulerStatus)
            while not status.is_snapshot:  # it came between two
                status = second.take(m.SchedulerStatus)
            model.apply(status)
            while first.take(m.SchedulerStatus).sequence != status.sequence:
                pass
        model.apply(first.take(m.SchedulerStatus))
        assert not model.figures["tasks"]["running"]


def test_workers_are_asked_for_more_while_there_are_subscribers(scheduler: SchedulerProcess) -> None:
    worker = scheduler.worker()
    assert not is_watched(worker)
    with monitor_of(scheduler) as monitor:
        monitor.take(m.SchedulerStatus)
        assert is_watched(worker)
    while is_watched(worker):
        pass
    with monitor_of(scheduler, b"tasks"):
        while not is_watched(worker):
            pass


def test_monitors_of_tasks_get_runs(scheduler: SchedulerProcess) -> None:
    worker, client = scheduler.worker(), scheduler.client()
    with monitor_of(scheduler, b"tasks") as monitor:
        while not is_watched(worker):
            pass
        client.submit(4)
        worker.finish(worker.take_task_ids())
        runs = monitor.take(m.TaskRuns)
    assert list(runs.workers) == [worker.welcome.session] and list(runs.clients) == [client.welcome.session]
    assert list(runs.first_tasks) == [4] and runs.scheduler_id == client.welcome.scheduler_id


def test_messages_from_a_monitor_have_no_effect(scheduler: SchedulerProcess) -> None:
    rude = scheduler.context.socket(zmq.XSUB)
    rude.connect(scheduler.monitor_address)
    try:
        for message in (b"\1status", b"\1", b"junk", bytes(2_000_000), b"\1" + bytes(900), b"\0status"):
            rude.send(message)
        with monitor_of(scheduler) as monitor:
            assert monitor.take(m.SchedulerStatus).is_snapshot
        check_others_work(scheduler)
    finally:
        rude.close(0)


def test_a_monitor_does_not_greet(scheduler: SchedulerProcess) -> None:
    peer = scheduler.peer()
    peer.send(hello(m.Role.MONITOR))
    peer.take_refusal(m.RefusalReason.ROLE_NOT_SERVED)
