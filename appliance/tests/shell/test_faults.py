"""Whatever fails between the sockets and the core costs at most the connection that it failed for.

A scenario is played once without a fault, and its calls of the operating system are counted. Then it is played again
with each fault at each of these calls. Always all tasks have their right results, once; only the peer whose call failed
may lose its connection; and in the end nothing is left open.
"""

from __future__ import annotations

import errno
import os
from array import array
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import pytest
from scheduler_harness import hello, task
from shell.faulty_system import Call, Fault, SimulatedLoop, SimulatedStream, SimulatedSystem
from subscriber_protocol import SubscriberProtocol

from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.shell import acceptor, connections, server
from scaler_appliance.shell.object_files import ObjectFiles
from scaler_appliance.shell.publishing import status_publisher
from scaler_appliance.shell.publishing.subscriptions import STATUS
from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.wire.zmtp import Zmtp
from scaler_protocol.wire.zmtp import encode as encode_frames

STEP_SECONDS = 0.25
MOST_STEPS = 1000
PIECE_BYTES, ROOM_BYTES = 2048, 4096
PUBLICATION_BYTES = 3000
MOST_ROUNDS = 1000
STRIDE = 7


def failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))


FAULTS: Dict[str, List[Fault]] = {
    "recv": [MemoryError(), failure(errno.ECONNRESET), failure(errno.ENOBUFS), failure(errno.EINTR), BlockingIOError()],
    "send": [MemoryError(), failure(errno.EPIPE), failure(errno.ENOBUFS), failure(errno.EINTR), BlockingIOError()],
    "sendmsg": [MemoryError(), failure(errno.EPIPE), failure(errno.ENOBUFS), BlockingIOError()],
    "accept": [MemoryError(), *map(failure, (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ECONNABORTED))],
    "setsockopt": [MemoryError(), failure(errno.EINVAL), failure(errno.ENOBUFS)],
    "epoll_ctl": [MemoryError(), failure(errno.ENOSPC), failure(errno.ENOMEM)],
    "epoll_wait": [MemoryError(), failure(errno.EINTR)],
    "open": [failure(errno.EMFILE)],
    "close": [failure(errno.EIO), failure(errno.ECONNRESET)],
}
STOP_SECONDS = 100.0  # longer than any peer may be silent


class SimulatedPeer:
    """A client or a worker that connects again when its connection has ended, until it has what it wants."""

    stream: SimulatedStream

    def __init__(self, system: SimulatedSystem, role: m.Role, payloads: Dict[int, bytes]) -> None:
        self._system = system
        self._role = role
        self._unfinished = payloads
        self.results: Dict[int, bytes] = {}
        self.ports: List[int] = []
        self._connect()

    @property
    def is_finished(self) -> bool:
        return not self._unfinished

    @property
    def has_session(self) -> bool:
        return self._beat_at < float("inf")

    def _connect(self) -> None:
        self.stream = self._system.connect()
        self.ports.append(self.stream.port)
        self._zmtp = Zmtp("DEALER", 1 << 30)
        self._unsent = bytearray(self._zmtp.take_output())
        self._has_said_hello = False
        self._beat_at = float("inf")

    def step(self) -> None:
        """Read, answer and write."""
        data = bytes(self.stream.to_peer)
        self.stream.to_peer.clear()
        if data:
            for frames in self._zmtp.feed(data):
                self._on_message(decode(frames[0]), frames[1] if len(frames) > 1 else b"")
        elif self.stream.is_closed:
            self._connect()
        self._unsent += self._zmtp.take_output()
        if self._zmtp.is_ready and not self._has_said_hello:
            self._greet()
        if self._system.now > self._beat_at:
            self._beat_at = self._system.now + 2.0
            self.send(m.Heartbeat())
        room = self._system.room_bytes - len(self.stream.to_scheduler)
        self.stream.to_scheduler += self._unsent[: max(0, room)]
        del self._unsent[: max(0, room)]

    def leave(self) -> None:
        self.stream.is_left = True

    def send(self, message: m.Message, payload: bytes = b"") -> None:
        self._unsent += b"".join(map(bytes, encode_frames([encode(message), payload])))

    def _greet(self) -> None:
        self._has_said_hello = True
        self.send(hello(self._role, slots=2 if self._role == m.Role.WORKER else 0, functions=["f"]))

    def _on_message(self, message: Any, payload: bytes) -> None:
        if isinstance(message, m.Welcome):
            self._beat_at = self._system.now
            if self._unfinished:
                self.send(*task(self._unfinished, list(self._unfinished.values())))
        elif isinstance(message, m.Refusal):
            assert message.reason == m.RefusalReason.NOT_GREETED, message
            self._greet()
        elif isinstance(message, m.Heartbeat):
            self.send(m.HeartbeatEcho())
        elif isinstance(message, m.Task):
            answers = payload.swapcase()
            self.send(m.TaskResult(ids=message.ids, payload_sizes=array("I", message.payload_sizes)), answers)
        elif isinstance(message, m.TaskResult):
            assert not message.statuses or set(message.statuses) == {m.TaskStatus.SUCCESS}, message
            offset = 0
            for task_id, size in zip(message.ids, message.payload_sizes):
                assert task_id in self._unfinished, f"a second outcome of task {task_id}"
                del self._unfinished[task_id]
                self.results[task_id] = payload[offset : offset + size]
                offset += size


class SimulatedMonitor:
    """A monitor that connects again when its connection has ended."""

    stream: SimulatedStream

    def __init__(self, system: SimulatedSystem) -> None:
        self._system = system
        self.ports: List[int] = []
        self._connect()

    def _connect(self) -> None:
        self.stream = self._system.connect(is_monitor=True)
        self.ports.append(self.stream.port)
        self.protocol = SubscriberProtocol(minor_version=len(self.ports) % 2)
        self.protocol.subscribe(STATUS)
        self._unsent = bytearray(self.protocol.take_output())

    def step(self) -> None:
        """Read and write."""
        data = bytes(self.stream.to_peer)
        self.stream.to_peer.clear()
        self.protocol.feed(data)
        if self.stream.is_closed and not data:
            self._connect()
        room = self._system.room_bytes - len(self.stream.to_scheduler)
        self.stream.to_scheduler += self._unsent[: max(0, room)]
        del self._unsent[: max(0, room)]


class NoFiles(ObjectFiles):
    """A directory that has no files, and is not on disk."""

    def __init__(self) -> None:
        self._ended_sessions: Set[int] = set()
        self._sweeps_left = 0

    def restore(self) -> None: ...

    def remove_of_sessions(self, sessions: Set[int], is_kept: Callable[[int], bool]) -> Iterator[None]:
        return iter(())

    def remove_abandoned(self) -> Iterator[None]:
        return iter(())


class Played:
    """The scenario: a worker, a client with tasks, another client that comes later, and a monitor."""

    def __init__(self, system: SimulatedSystem, patch: pytest.MonkeyPatch, settings: Optional[Settings] = None) -> None:
        self.system = system
        self.loop = SimulatedLoop(system)
        patch.setattr(connections, "listen", lambda address: (system.listener, "tcp://127.0.0.1:1"))
        patch.setattr(connections, "listen_locally", lambda address: None)
        patch.setattr(connections, "remove_socket_file", lambda address: None)
        patch.setattr(acceptor, "os", system.as_os())
        patch.setattr(connections, "readiness", system.as_readiness())
        patch.setattr(status_publisher, "listen", lambda *_, **__: (system.listener_for_monitors, "tcp://127.0.0.1:2"))
        patch.setattr(status_publisher, "readiness", system.as_readiness())
        for module in (connections, server, status_publisher):
            patch.setattr(module, "time", system.as_time())
        patch.setattr(server.Server, "_report_status", lambda self, report: None)
        self.core = SchedulerCore(settings or Settings())
        self.connections = connections.Connections(
            "tcp://127.0.0.1:1", 1 << 20, lambda peer: self.server.peer_gone(peer), self.on_congestion
        )
        self.publisher = status_publisher.StatusPublisher("tcp://127.0.0.1:2")
        self.published = 0
        loop: Any = self.loop
        self.server = server.Server(loop, self.core, self.connections, self.publisher, NoFiles())
        self.worker = SimulatedPeer(system, m.Role.WORKER, {})
        payloads = {number: b"Task %d " % number + b"x" * 500 for number in range(8)}
        self.client = SimulatedPeer(system, m.Role.CLIENT, dict(payloads))
        self.peers = [self.worker, self.client]
        self.monitor = SimulatedMonitor(system)
        self.monitors = [self.monitor]
        self.expected = {number: payload.swapcase() for number, payload in payloads.items()}

    def on_congestion(self, peer: bytes, is_congested: bool) -> None:
        self.server.congestion(peer, is_congested)

    def step(self, seconds: float = STEP_SECONDS) -> None:
        """Each peer does something, and the scheduler what its event loop would call it for."""
        for peer in self.peers:
            peer.step()
        for monitor in self.monitors:
            monitor.step()
        self.server._drain()
        for _ in range(MOST_ROUNDS):
            if not self.publisher._epoll.ready():  # type: ignore[attr-defined]  # it is a simulated one
                break
            self.server._serve_monitors()
        else:
            raise AssertionError("the event loop spins")
        while self.loop.soon:
            self.loop.soon.popleft()()
        self.system.now += seconds
        if self.system.now % 1.0 < seconds:
            self.server._on_timer()
            if self.publisher.interest().has_status:
                self.published += 1
                self.publisher.publish(STATUS, b"%d" % self.published + bytes(PUBLICATION_BYTES))

    def play(self) -> None:
        for number in range(MOST_STEPS):
            self.step()
            if number == 3:
                self.peers.append(SimulatedPeer(self.system, m.Role.CLIENT, {7: b"Late"}))
            has_published = all(monitor.protocol.messages for monitor in self.monitors)
            if number > 3 and has_published and all(peer.is_finished for peer in self.peers):
                break
        for monitor in self.monitors:
            numbers = [int(header.rstrip(b"\0")) for topic, header in monitor.protocol.messages if topic == STATUS]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "one is missing"
        assert self.client.results == self.expected
        assert [peer.results for peer in self.peers[2:]] == [{7: b"lATE"}]
        self.core.state.check_invariants()

    def end(self) -> None:
        """All peers leave: nothing is left of them."""
        for peer in self.peers:
            peer.leave()
        for monitor in self.monitors:
            monitor.stream.is_left = True
        peers, self.peers, self.monitors = self.peers, [], []
        for _ in range(20):
            self.step()
        assert not self.core.state.sessions and not self.connections._peers and not self.connections._waiting_bytes
        assert not self.publisher._monitors and not self.publisher._subscriptions.held_bytes
        assert not any(peer.stream.descriptor in self.system.open_descriptors for peer in peers)
        kinds = {type(thing) for thing in self.system.open_descriptors.values()}
        assert kinds <= {str}, "only the spare descriptors are open"


def played(patch: pytest.MonkeyPatch, system: SimulatedSystem) -> Played:
    with patch.context() as context:
        scenario = Played(system, context)
        scenario.play()
        scenario.end()
    return scenario


def lost(scenario: Played) -> List[int]:
    """The connections that ended before their peers left."""
    return [port for peer in (scenario.worker, scenario.client, scenario.monitor) for port in peer.ports[:-1]]


@pytest.mark.parametrize("piece_bytes", [1, 7, 100, 100_000])
def test_short_reads_and_writes_change_nothing(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    scenario = played(monkeypatch, SimulatedSystem(piece_bytes, room_bytes=max(150, piece_bytes)))
    assert lost(scenario) == []


def sites(monkeypatch: pytest.MonkeyPatch, faults: Callable[[str], List[Fault]]) -> List[Tuple[int, Fault]]:
    """Each call of a run without faults, with each fault that it can have; a fault while it starts ends its start."""
    system = played(monkeypatch, SimulatedSystem(PIECE_BYTES, ROOM_BYTES)).system
    assert {call.name for call in system.calls} >= {"recv", "send", "accept", "setsockopt", "epoll_ctl", "epoll_wait"}
    began = system.calls.index(Call("epoll_wait", 0))
    return [
        (number, fault) for number, call in enumerate(system.calls) if number >= began for fault in faults(call.name)
    ]


def check_faults(monkeypatch: pytest.MonkeyPatch, chosen: List[Tuple[int, Fault]]) -> None:
    for number, fault in chosen:
        system = SimulatedSystem(PIECE_BYTES, ROOM_BYTES, number, fault)
        try:
            scenario = played(monkeypatch, system)
            call = system.faulted
            assert call is not None
            assert set(lost(scenario)) <= {call.port}, "another peer has lost its connection"
        except BaseException as error:
            raise AssertionError(f"{fault!r} at call {number}, {system.faulted}: {error!r}") from error


def test_an_error_at_a_call_costs_only_the_peer_that_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = sites(monkeypatch, lambda name: FAULTS[name])[::STRIDE]
    check_faults(monkeypatch, chosen)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, STRIDE))
def test_so_does_every_error_at_every_call(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    check_faults(monkeypatch, sites(monkeypatch, lambda name: FAULTS[name])[first::STRIDE])


@pytest.mark.exhaustive_on_pypy  # which calls there are, and what follows, is the same there
def test_a_stop_of_the_scheduler_at_any_call_costs_no_peer_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, stop in sites(monkeypatch, lambda name: [STOP_SECONDS]):
        scenario = played(monkeypatch, SimulatedSystem(PIECE_BYTES, ROOM_BYTES, number, stop))
        assert lost(scenario) == [], f"a stop at call {number} cost a connection"
