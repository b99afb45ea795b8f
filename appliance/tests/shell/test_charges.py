"""Whatever a peer causes is charged: to its turns, to its allowance, or to that of all callers."""

from __future__ import annotations

from array import array
from collections import Counter
from types import SimpleNamespace
from typing import Any, Callable, List, Tuple

import pytest
from scheduler_harness import hello, options, task
from shell.faulty_system import SimulatedLoop, SimulatedSystem
from shell.test_faults import Played, SimulatedMonitor, SimulatedPeer

from scaler_appliance.core import state
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.shell import allowances, server
from scaler_appliance.shell.core_inputs import CoreInputs, Reception
from scaler_protocol import encode
from scaler_protocol import messages as m
from scaler_protocol.wire.zmtp import encode as encode_frames


@pytest.mark.parametrize(
    "role, message, reception",
    [
        (m.Role.CLIENT, task([1])[0], Reception.WORK),
        (m.Role.CLIENT, m.TaskCancel(ids=array("Q", [1])), Reception.CANCEL),
        (m.Role.CLIENT, m.Heartbeat(), Reception.NO_WORK),
        (m.Role.CLIENT, m.TaskResult(ids=array("Q", [1]), payload_sizes=array("I", [0])), Reception.REFUSED),
        (m.Role.CLIENT, m.Task(ids=array("Q", [1])), Reception.REFUSED),
        (None, task([1])[0], Reception.REFUSED),
    ],
    ids=["work", "a cancel", "a heartbeat", "of another role", "malformed", "without a session"],
)
def test_what_is_refused_is_no_work(role: Any, message: m.Message, reception: Reception) -> None:
    inputs = CoreInputs(SchedulerCore(Settings()), Counter())
    if role is not None:
        inputs.frames(1.0, b"peer", [encode(hello(role))])
    assert inputs.frames(1.0, b"peer", [encode(message), b"x"]) is reception


class TimedLoop(SimulatedLoop):
    """Keeps what is to be done later."""

    def __init__(self, system: SimulatedSystem) -> None:
        super().__init__(system)
        self.later: List[Tuple[float, Callable[..., None], Tuple[Any, ...]]] = []

    def call_later(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> None:
        self.later.append((seconds, callback, arguments))


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Played:
    """A scheduler over a simulated system, with a client and a worker, who have begun."""
    played = Played(SimulatedSystem(1 << 16, 1 << 20), monkeypatch)
    loop: Any = TimedLoop(played.system)
    played.loop = played.server._loop = loop
    for _ in range(8):
        played.step()
    return played


def name_of(scenario: Played, peer: SimulatedPeer) -> bytes:
    port = peer.stream.port
    return next(each.name for each in scenario.connections._peers.values() if each.label.endswith(f":{port}"))


def test_later_work_is_charged_to_its_peer(scenario: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    charged: List[Tuple[bytes, float]] = []
    monkeypatch.setattr(scenario.connections, "charge", lambda *charge: charged.append(charge))
    count = 20_000
    ids, sizes = array("Q", range(100, 100 + count)), array("I", bytes(4 * count))
    functions, offsets = array("Q", [7]) * count, array("I", bytes(4 * (count + 1)))
    scenario.client.send(
        m.GraphTask(
            ids=ids, payload_sizes=sizes, functions=functions, predecessor_offsets=offsets, targets=array("I", [0])
        )
    )
    name = name_of(scenario, scenario.client)
    before = len(scenario.core.state.clients)
    while not charged or scenario.core.has_work:
        scenario.step(0.0)
    assert {peer for peer, _ in charged} == {name} and len(charged) > 3
    assert 0.5e-6 * count < sum(seconds for _, seconds in charged) < 10e-6 * count
    assert len(scenario.core.state.clients) == before


def test_answers_count_against_the_allowance_of_who_asked(scenario: Played) -> None:
    name = name_of(scenario, scenario.client)
    scenario.client.send(m.InfoRequest(request_id=1))
    scenario.step(0.0)
    assert scenario.server._idle_seconds[name] > 0.0
    before = scenario.server._allowances._used[name][0]
    owed = scenario.server._idle_seconds[name]
    scenario.client.send(m.Heartbeat())
    scenario.step(0.0)
    assert scenario.server._allowances._used[name][0] > before + owed


def test_who_sends_what_is_refused_is_not_read_for_a_while(scenario: Played) -> None:
    """Its next messages would be refused as well, or end its connection, and it would come again."""
    loop: Any = scenario.loop
    name, client = name_of(scenario, scenario.client), scenario.client
    loop.later.clear()
    for message in (m.Task(ids=array("Q", [1])), m.Heartbeat()):
        client.stream.to_scheduler += b"".join(map(bytes, encode_frames([encode(message)])))
        scenario.server._drain()
    assert client.stream.to_scheduler, "it is not read"
    [(seconds, resume, arguments)] = [each for each in loop.later if each[2] == (name,)]
    assert seconds >= 0.0001 / allowances.SHARE
    resume(*arguments)
    assert not client.stream.to_scheduler


def test_who_is_gone_is_not_paused(scenario: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end would wait for its last messages, and the scheduler would look for it without a pause."""
    client, name = scenario.client, name_of(scenario, scenario.client)
    question, malformed = m.InfoRequest(request_id=1), m.Task(ids=array("Q", [1]))
    for message in [question] * 100 + [malformed]:  # of which some are answered first
        client.stream.to_scheduler += b"".join(map(bytes, encode_frames([encode(message)])))
    client.leave()
    receive, calls = scenario.connections.receive, 0

    def counted(now: float, timeout_seconds: float) -> bool:
        nonlocal calls
        calls += 1
        assert calls < 100, "it does not end"
        return receive(now, timeout_seconds)

    monkeypatch.setattr(scenario.connections, "receive", counted)
    scenario.server._drain()
    assert name not in scenario.connections.turns and name not in scenario.core.state.sessions


def test_a_client_whose_tasks_wait_submits_more_slowly(scenario: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario.server._allowances._backlog, "burst_seconds", 0.0)
    loop: Any = scenario.loop
    name, client = name_of(scenario, scenario.client), scenario.client
    loop.later.clear()
    session: Any = scenario.core.state.sessions[name]
    count, nowhere = state.BACKLOG_TASKS // 2 + 100, options(nowhere=1)
    for first in (100, 100_000):
        assert not loop.later
        client.send(*task(range(first, first + count), [b""] * count, options=nowhere))
        before = session.unfinished
        while session.unfinished < before + count:
            scenario.step(0.0)
    client.send(*task([800_000], options=nowhere))
    scenario.step(0.0)
    [(seconds, resume, arguments)] = loop.later
    assert seconds > 0.0 and arguments == (name,)
    client.send(*task([900_000], options=nowhere))
    scenario.step(0.0)
    assert client.stream.to_scheduler, "it waits"
    resume(*arguments)
    assert not client.stream.to_scheduler


def test_cancels_count_against_the_share_of_what_can_wait(scenario: Played) -> None:
    allowed = scenario.server._allowances
    scenario.client.send(*task([100], [b""], options=options(nowhere=1)))
    scenario.step(0.0)
    assert allowed._backlog._used == (0.0, 0.0)
    scenario.client.send(m.TaskCancel(ids=array("Q", [100])))
    scenario.step(0.0)
    assert allowed._backlog._used[0] > 0.0


@pytest.mark.parametrize("where", ["handling a message", "sending its answer"])
def test_a_stop_of_the_scheduler_costs_its_peers_nothing(
    scenario: Played, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A process may be stopped, or wait for its processor, in the middle of a message."""
    inputs, peers = scenario.server._inputs, scenario.connections
    owner, call = (inputs, "frames") if where == "handling a message" else (peers, "send")
    original = getattr(owner, call)

    def stop(*arguments: Any) -> Any:
        scenario.system.now += 60.0
        return original(*arguments)

    name = name_of(scenario, scenario.client)
    with monkeypatch.context() as patch:
        patch.setattr(owner, call, stop)
        patch.setattr(server, "time", SimpleNamespace(perf_counter=lambda: scenario.system.now))
        scenario.client.send(m.InfoRequest(request_id=1))
        scenario.step(0.0)
        scenario.client.send(m.Heartbeat())
        scenario.step(0.0)
    assert scenario.server._allowances._used[name][0] < allowances.BURST_SECONDS
    assert name not in peers.turns._paused and peers.turns.time_of(name) < 1.0


def test_no_caller_is_accepted_for_a_moment_when_callers_have_used_their_share(
    scenario: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario.server._allowances._newcomers, "burst_seconds", 0.1)
    loop: Any = scenario.loop
    loop.later.clear()
    callers = 0
    while scenario.connections.acceptor.is_accepting:
        scenario.system.connect().is_left = True
        scenario.step(0.0)
        callers += 1
    assert callers > 50
    late = SimulatedPeer(scenario.system, m.Role.CLIENT, {})
    scenario.peers.append(late)
    scenario.step(0.0)
    assert late.stream.descriptor < 0, "it waits"
    [(seconds, go_on, arguments)] = [
        each for each in loop.later if each[1] == scenario.connections.acceptor.set_accepting
    ]
    assert 0.0 < seconds < 0.1
    go_on(*arguments)
    scenario.step(0.0)
    assert late.stream.descriptor >= 0


def test_no_monitor_is_accepted_for_a_moment_when_monitors_that_connect_have_used_their_share(
    scenario: Played,
) -> None:
    """Which is of no consequence to clients and workers."""
    publisher, loop = scenario.publisher, scenario.loop
    later: Any = loop.later  # type: ignore[attr-defined]  # of this test's event loop
    later.clear()
    callers = 0
    while publisher.acceptor.is_accepting:
        scenario.system.connect(is_monitor=True).is_left = True
        scenario.step(0.0)
        callers += 1
    assert callers > 50
    assert scenario.connections.acceptor.is_accepting and not scenario.connections.newcomer_seconds
    late = SimulatedMonitor(scenario.system)
    scenario.monitors.append(late)
    scenario.step(0.0)
    assert late.stream.descriptor < 0, "it waits"
    [(seconds, go_on, arguments)] = [each for each in later if each[1] == publisher.acceptor.set_accepting]
    assert 0.0 < seconds < 0.2
    go_on(*arguments)
    for _ in range(3):
        scenario.step(0.0)
    assert publisher.interest().is_new
