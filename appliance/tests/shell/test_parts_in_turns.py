"""Parts of objects are sent in turns of the peers that have requested them, however many these request."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any, List

import pytest
from shell.faulty_system import SimulatedSystem
from shell.test_faults import Played, SimulatedPeer

from scaler_appliance.core.effects import Forget, Send, SendChunk
from scaler_appliance.core.large_tables import Table
from scaler_appliance.shell import memory_use, server
from scaler_protocol import messages as m
from scaler_protocol.session.ids import object_id_of

PART_SECONDS = 0.001
PARTS = 60
CONTENT = bytes(range(PARTS))


class Asking(SimulatedPeer):
    """A client that notes which parts of an object it gets."""

    def __init__(self, system: SimulatedSystem) -> None:
        super().__init__(system, m.Role.CLIENT, {})
        self.parts: List[int] = []
        self.session = 0

    def _on_message(self, message: Any, payload: bytes) -> None:
        if isinstance(message, m.Welcome):
            self.session = message.session
        if isinstance(message, m.ObjectResponse):
            assert message.status == m.ObjectResponseStatus.OK and payload == CONTENT[message.offset :][:1]
            self.parts.append(message.offset)
        else:
            super()._on_message(message, payload)


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Played:
    """A scheduler over a simulated system, in which sending a part takes a while, and nothing else any time."""
    played = Played(SimulatedSystem(1 << 16, 1 << 20), monkeypatch)
    for _ in range(8):
        played.step()
    send = played.connections.send

    def send_slowly(name: bytes, frames: Any) -> None:
        if len(frames) > 1 and len(frames[1]) == 1:
            played.system.now += PART_SECONDS
        send(name, frames)

    monkeypatch.setattr(played.connections, "send", send_slowly)
    monkeypatch.setattr(server, "time", SimpleNamespace(perf_counter=lambda: played.system.now))
    return played


def connected(scenario: Played) -> Asking:
    """A client that has a session."""
    peer = Asking(scenario.system)
    scenario.peers.append(peer)
    while not peer.session:
        scenario.step()
    return peer


def asking(scenario: Played) -> Asking:
    """A client with an object whose parts it has all requested."""
    return ask(connected(scenario))


def ask(peer: Asking) -> Asking:
    """Create an object, and request all its parts."""
    object_id, sizes = object_id_of(peer.session, 1), array("Q", [PARTS])
    inline = bytes([m.ObjectStorage.INLINE])
    peer.send(m.ObjectInstruction(ids=array("Q", [object_id]), sizes=sizes, storages=inline), CONTENT)
    for offset in range(PARTS):
        peer.send(m.ObjectRequest(id=object_id, offset=offset, length=1))
    return peer


def name_of(scenario: Played, peer: SimulatedPeer) -> bytes:
    port = peer.stream.port
    return next(each.name for each in scenario.connections._peers.values() if each.label.endswith(f":{port}"))


def test_others_are_served_between_two_parts(scenario: Played) -> None:
    first, second = connected(scenario), connected(scenario)
    for peer in (first, second):
        ask(peer).step()
    began = scenario.system.now
    rounds: List[float] = []
    receive = scenario.connections.receive

    def noted(now: float, timeout_seconds: float) -> bool:
        """Others' messages are read."""
        rounds.append(scenario.system.now)
        return receive(now, timeout_seconds)

    scenario.connections.receive = noted  # type: ignore[method-assign]  # to look at it
    while len(first.parts) < PARTS or len(second.parts) < PARTS:
        scenario.server._drain()
        for peer in (first, second):
            peer.step()
        assert abs(len(first.parts) - len(second.parts)) <= 1
    assert first.parts == second.parts == list(range(PARTS))
    assert scenario.system.now - began == pytest.approx(2 * PARTS * PART_SECONDS)
    longest = max(after - before for before, after in zip([began, *rounds], rounds))
    assert longest <= server.ROUND_SECONDS + 1.5 * PART_SECONDS, "others are read in between"


def test_a_task_goes_ahead_of_parts_that_were_requested_before_it(scenario: Played) -> None:
    slow = asking(scenario)
    slow.step()
    scenario.connections.receive(scenario.system.now, 0.0)
    results = dict(scenario.client.results)
    late = SimulatedPeer(scenario.system, m.Role.CLIENT, {7: b"Late"})
    scenario.peers.append(late)
    while not late.is_finished:
        for peer in (late, scenario.worker):
            peer.step()
        scenario.server._take_turns(scenario.system.now)
        scenario.server._settle(scenario.system.now)
        scenario.connections.receive(scenario.system.now, 0.0)
    slow.step()
    assert len(slow.parts) < PARTS and scenario.client.results == results


def test_a_session_that_has_ended_gets_no_parts(scenario: Played) -> None:
    peer = asking(scenario)
    name = name_of(scenario, peer)
    peer.step()
    scenario.connections.receive(scenario.system.now, 0.0)
    scenario.server._take_turns(scenario.system.now)
    scenario.server._settle(scenario.system.now)
    assert name in scenario.connections.turns
    scenario.server._forget(Forget(name, peer.session))
    scenario.server._drain()
    peer.step()
    assert not peer.parts


def test_files_are_not_read_for_who_has_gone(scenario: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = asking(scenario)
    name = name_of(scenario, peer)
    read: List[Any] = []

    def read_chunk(*arguments: Any) -> bytes:
        read.append(arguments)
        return b"x"

    monkeypatch.setattr(scenario.server._files, "read_chunk", read_chunk)
    scenario.connections.lose(name, OSError("it has gone"))
    scenario.server._send_later(SendChunk(name, 1, 0, 1, 1))
    scenario.server._drain()
    assert not read and name not in scenario.connections.turns


def test_files_are_not_read_for_who_has_closed_while_more_requests_wait(
    scenario: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read and counted, since results may stand behind them, but cost no more than that."""
    peer = asking(scenario)
    peer.step()
    read: List[Any] = []
    monkeypatch.setattr(scenario.server, "_answer_performers", {SendChunk: read.append, Send: read.append})
    scenario.connections.receive(scenario.system.now, 0.0)
    scenario.connections._read_rest(scenario.connections._peers[name_of(scenario, peer)])
    scenario.server._take_turns(scenario.system.now)
    scenario.server._settle(scenario.system.now)
    scenario.server._take_turns(scenario.system.now)
    assert not read


def test_memory_is_measured_after_every_part_of_the_limit_that_arrives(
    scenario: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short the time is in which it arrives: no level is passed over."""
    limit_bytes = 1 << 20
    memory = memory_use.MemoryUse()
    memory.limit_bytes = limit_bytes
    heap_bytes = [0]
    monkeypatch.setattr(memory, "read", lambda: memory_use._Use(0, heap_bytes[0]))
    monkeypatch.setattr(scenario.server, "_memory", memory)
    scenario.core.state.budget.limit_bytes = limit_bytes
    measured: List[int] = []
    measure = memory.measure

    def noted(now: float, alarming_bytes: int) -> Any:
        measured.append(heap_bytes[0])
        return measure(now, alarming_bytes)

    monkeypatch.setattr(memory, "measure", noted)
    take_in = scenario.server._inputs.frames

    def take(now: float, peer: bytes, frames: List[bytes]) -> Any:
        heap_bytes[0] += server.MESSAGE_BYTES
        scenario.system.now += (
            server.TURN_SECONDS / 10
        )  # of the processor; the time of the round is that of its beginning
        return take_in(now, peer, frames)

    monkeypatch.setattr(scenario.server._inputs, "frames", take)
    records: Table[Any] = scenario.core.state.objects._records
    peer = asking(scenario)
    name = name_of(scenario, peer)
    measured.clear()
    count = limit_bytes // server.MESSAGE_BYTES
    for _ in range(count):
        peer.send(m.HeartbeatEcho())
    monkeypatch.setattr(scenario.server._allowances, "charge", lambda *arguments: 0.0)
    while heap_bytes[0] < limit_bytes * 0.9:
        peer.step()
        scenario.connections.receive(scenario.system.now, 0.0)
        scenario.server._take_turns(0.0)
    steps = [after - before for before, after in zip(measured, measured[1:])]
    assert len(steps) > 20 and max(steps) < limit_bytes * 0.05, "each level is 0.06 of the limit or more"
    assert name in scenario.core.state.sessions and records is scenario.core.state.objects._records
