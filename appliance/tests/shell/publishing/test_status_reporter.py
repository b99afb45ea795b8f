"""Publications are made in parts, between which peers are served."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Dict, List, Tuple

import pytest
from scheduler_harness import hello
from shell.faulty_system import SimulatedSystem
from shell.test_faults import Played
from status_model import StatusModel

from scaler_appliance.core.effects import Send
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.shell import server
from scaler_appliance.shell.core_inputs import CoreInputs
from scaler_appliance.shell.publishing.status_reporter import StatusReporter
from scaler_appliance.shell.publishing.subscriptions import STATUS, Interest
from scaler_protocol import decode
from scaler_protocol import messages as m
from scaler_protocol.wire import encoding_in_parts

CLIENTS = 100
_report_status = server.Server._report_status  # which `Played` replaces


class SimulatedMonitor:
    """What the reporter sees of subscribers, and what they get."""

    def __init__(self) -> None:
        self.interest_now = Interest(has_status=True, has_runs=False, is_new=True)
        self.published: List[m.SchedulerStatus] = []
        self.views_now = ["*"]
        self.by_view: Dict[str, List[m.SchedulerStatus]] = {}

    def views(self, topic: bytes) -> List[str]:
        return self.views_now

    def interest(self) -> Interest:
        before, self.interest_now = self.interest_now, self.interest_now._replace(is_new=False)
        return before

    def publish(self, topic: bytes, header: bytes, view: str = "*") -> None:
        assert topic == STATUS
        status = decode(header)
        assert isinstance(status, m.SchedulerStatus)
        self.published.append(status)
        self.by_view.setdefault(view, []).append(status)


def reporter_of(core: SchedulerCore) -> Tuple[StatusReporter, SimulatedMonitor]:
    monitor: Any = SimulatedMonitor()
    inputs = CoreInputs(core, Counter())
    return StatusReporter(core, inputs, monitor, "tcp://127.0.0.1:1", Counter(), Counter(), 0.0, True), monitor


def add_clients(core: SchedulerCore, now: float) -> None:
    for number in range(CLIENTS):
        core.on_message(now, b"client %d" % number, hello(m.Role.CLIENT))
    core.tick(now)
    core.take_effects()  # they have no connection


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> SchedulerCore:
    monkeypatch.setattr(encoding_in_parts, "PART_BYTES", 1000)
    core = SchedulerCore(Settings(work_per_call=120))
    add_clients(core, 0.0)
    return core


def test_a_snapshot_is_taken_and_encoded_in_parts(core: SchedulerCore) -> None:
    reporter, monitor = reporter_of(core)
    reporter.report(1.0)
    parts = 1
    while reporter.is_unfinished:
        assert not monitor.published
        reporter.go_on(1.0)
        parts += 1
    [status] = monitor.published
    assert status.is_snapshot and len(status.clients.sessions) == CLIENTS
    assert parts > 20, "some ten to take it, some ten to encode it"
    reporter.go_on(1.0)
    assert len(monitor.published) == 1, "there is nothing to go on with"


def test_a_publication_that_takes_longer_than_a_second_is_finished_before_the_next(core: SchedulerCore) -> None:
    reporter, monitor = reporter_of(core)
    second = 0.0
    while len(monitor.published) < 2:
        second += 1.0
        monitor.interest_now = monitor.interest_now._replace(is_new=second in (1.0, 3.0))
        reporter.report(second)
    assert [status.is_snapshot for status in monitor.published] == [True, False], "all have got the snapshot"
    model = StatusModel()
    for status in monitor.published:
        model.apply(status)
    model.assert_is_true(core)


def test_what_is_being_published_is_dropped_with_the_last_subscriber(core: SchedulerCore) -> None:
    reporter, monitor = reporter_of(core)
    reporter.report(1.0)
    assert reporter.is_unfinished
    monitor.interest_now = Interest(has_status=False, has_runs=False, is_new=False)
    reporter.report(2.0)
    assert [reporter.is_unfinished, core.state.is_watched] == [False, False]
    monitor.interest_now = Interest(has_status=True, has_runs=False, is_new=True)
    reporter.report(1000.0)
    while not monitor.published:
        reporter.go_on(1000.0)
    [status] = monitor.published
    assert status.is_snapshot and len(status.clients.sessions) == CLIENTS


def test_peers_are_served_between_the_parts_of_a_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Played(SimulatedSystem(1 << 16, 1 << 20), monkeypatch)
    for _ in range(8):
        scenario.step()
    monkeypatch.setattr(server.Server, "_report_status", _report_status)
    add_clients(scenario.core, scenario.system.now)
    scenario.core.state.part = 10
    served: List[Tuple[int, int]] = []  # after how many parts, and before how many publications
    parts = 0
    reporter, monitor = reporter_of(scenario.core)
    scenario.server._reporter = reporter
    go_on, send = reporter.go_on, scenario.server._send

    def count_part(now: float) -> None:
        nonlocal parts
        parts += 1
        scenario.client.send(m.Heartbeat())
        scenario.client.step()
        go_on(now)

    def count_echo(effect: Any) -> None:
        if type(effect.message) is m.HeartbeatEcho:
            served.append((parts, len(monitor.published)))
        send(effect)

    monkeypatch.setattr(reporter, "go_on", count_part)
    scenario.server._performers[Send] = count_echo
    scenario.server._on_timer()
    assert not monitor.published and scenario.loop.soon, "the next part does not wait for a message"
    while scenario.loop.soon:
        scenario.loop.soon.popleft()()
        scenario.client.step()
    assert len(monitor.published) == 1 and parts > 20
    assert [each for each in served if each[1] == 0], "before it was published"


def report_whole(reporter: StatusReporter, now: float) -> None:
    reporter.report(now)
    while reporter.is_unfinished:
        reporter.go_on(now)


def test_monitors_of_tenants_get_their_views_and_only_views_that_someone_has_are_made(core: SchedulerCore) -> None:
    reporter, monitor = reporter_of(core)
    monitor.views_now = ["*", "default", "other"]
    reporter._sent["Task"] = 3
    report_whole(reporter, 1.0)
    counts = {view: [len(each.clients.sessions) for each in published] for view, published in monitor.by_view.items()}
    assert counts == {"*": [CLIENTS], "default": [CLIENTS], "other": [0]}
    assert {each.sequence for published in monitor.by_view.values() for each in published} == {1}
    assert monitor.by_view["*"][0].sent and not monitor.by_view["default"][0].sent
    monitor.views_now = ["other"]
    report_whole(reporter, 2.0)
    assert [len(published) for published in monitor.by_view.values()] == [1, 1, 2]
    assert not monitor.by_view["other"][1].is_snapshot


@pytest.mark.parametrize("step_seconds", [86400.0, -86400.0])
def test_a_wall_clock_that_is_set_changes_no_duration(step_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    core = SchedulerCore(Settings())
    reporter, monitor = reporter_of(core)
    before, read_clock = core.status.unix_offset_microseconds, time.time
    reporter.report(0.0)
    monkeypatch.setattr(time, "time", lambda: read_clock() + step_seconds)
    reporter.report(1.0)
    first, second = (each.unix_microseconds - each.started_unix_microseconds for each in monitor.published)
    assert 0 <= first <= second < 60e6
    assert abs(core.status.unix_offset_microseconds - before - (read_clock() + step_seconds) * 1e6) < 60e6
