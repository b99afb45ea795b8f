"""What the scheduler tells the service manager that started it, over a real socket."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
from played_service_manager import PlayedServiceManager
from scheduler_process import SchedulerProcess, check_others_work

from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.shell.fair_turns import FairTurns
from scaler_appliance.shell.server import Server
from scaler_protocol.programs.event_loop import BuiltinLoop, Completion
from scaler_protocol.programs.service_manager import MAXIMUM_UNSENT, VARIABLES, ServiceManager

Start = Callable[..., SchedulerProcess]


@pytest.fixture(params=["path", "abstract"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlayedServiceManager]:
    made = PlayedServiceManager(str(tmp_path / "notify") if request.param == "path" else f"@scaler-test-{os.getpid()}")
    yield made
    made.close()


def start_notifying(patch: pytest.MonkeyPatch, listening: PlayedServiceManager, watchdog_seconds: float = 1.0) -> None:
    for name, value in listening.environment(watchdog_seconds).items():
        patch.setenv(name, value)


def manager(listening: PlayedServiceManager, **environment: str) -> ServiceManager:
    return ServiceManager("Scheduler", {"NOTIFY_SOCKET": listening.name, **environment})


@pytest.mark.parametrize("listening", ["abstract"], indirect=True)
def test_a_scheduler_says_when_it_is_ready_that_it_works_and_that_it_stops(
    start: Start, listening: PlayedServiceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_notifying(monkeypatch, listening)
    scheduler = start()
    assert listening.take() == ["READY=1", f"STATUS=listening at {scheduler.address}"]
    check_others_work(scheduler)
    assert [listening.take() for _ in range(2)] == [["WATCHDOG=1"]] * 2
    scheduler.process.send_signal(signal.SIGTERM)
    assert scheduler.wait_for_end() == 0
    said = listening.take()
    while said == ["WATCHDOG=1"]:
        said = listening.take()
    assert said == ["STOPPING=1", "STATUS=stopping: SIGTERM"]
    assert listening.has_nothing()


@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize("listening", ["path"], indirect=True)
def test_a_scheduler_that_is_frozen_gives_no_sign_of_life_and_one_that_goes_on_does(
    start: Start, listening: PlayedServiceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_notifying(monkeypatch, listening)
    scheduler = start()
    listening.take_until("WATCHDOG=1")
    scheduler.process.send_signal(signal.SIGSTOP)
    os.waitpid(scheduler.process.pid, os.WUNTRACED)
    listening.drain()
    assert listening.has_nothing(2.5), "a thread or a timer gives signs of life"
    scheduler.process.send_signal(signal.SIGCONT)
    listening.take_until("WATCHDOG=1")
    check_others_work(scheduler)


@pytest.mark.parametrize("listening", ["path"], indirect=True)
def test_a_scheduler_says_when_it_reloads_and_when_it_is_ready_again(
    start: Start, listening: PlayedServiceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_notifying(monkeypatch, listening, 0.0)
    scheduler = start()
    ready = listening.take()
    begin = time.monotonic_ns() // 1000
    scheduler.process.send_signal(signal.SIGHUP)
    reloading, since = listening.take()
    assert reloading == "RELOADING=1" and since.startswith("MONOTONIC_USEC=")
    assert begin <= int(since.partition("=")[2]) <= time.monotonic_ns() // 1000
    assert listening.take() == ready and ready[0] == "READY=1"
    assert listening.has_nothing()


def test_variables_of_the_service_manager_are_not_inherited(
    listening: PlayedServiceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_notifying(monkeypatch, listening)
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    told = ServiceManager.of_this_process("Scheduler")
    assert not set(VARIABLES) & set(os.environ)
    told.ready("here")
    assert listening.take() == ["READY=1", "STATUS=here"]
    told.working(1000.0)
    assert listening.take() == ["WATCHDOG=1"]


def test_an_event_loop_that_hangs_gives_no_sign_of_life(listening: PlayedServiceManager) -> None:
    told = manager(listening, WATCHDOG_USEC="30000")

    def turn_until_it_gives_one(loop: BuiltinLoop) -> None:
        taken: Completion[List[str]] = Completion(loop)
        taking = threading.Thread(target=lambda: loop.call_soon_threadsafe(taken.set_result, listening.take()))
        taking.start()
        assert taken.wait() == ["WATCHDOG=1"]
        taking.join()

    with contextlib.closing(BuiltinLoop()) as loop:
        told.watch(loop)
        assert listening.take() == ["WATCHDOG=1"]
        turn_until_it_gives_one(loop)
        listening.drain()
        assert listening.has_nothing(0.2), "this loop is blocked"
        turn_until_it_gives_one(loop)


def test_nothing_follows_the_end(listening: PlayedServiceManager) -> None:
    told = manager(listening)
    told.stopping("SIGTERM")
    told.stopping("again")
    told.reloading()
    told.ready("here")
    told.status("there")
    assert listening.take() == ["STOPPING=1", "STATUS=stopping: SIGTERM"]
    assert listening.has_nothing()


def test_what_waits_for_a_service_manager_that_does_not_read_is_bounded(listening: PlayedServiceManager) -> None:
    told = manager(listening)
    listening.fill()
    for number in range(1000):
        told.status(str(number))
    assert len(told._unsent) == MAXIMUM_UNSENT


def test_a_scheduler_whose_service_manager_is_gone_serves_as_ever(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "missing"))
    scheduler = start()
    check_others_work(scheduler)
    assert scheduler.output().count("service manager at NOTIFY_SOCKET cannot be notified") == 1


def test_signs_of_life_are_as_frequent_as_asked_for(listening: PlayedServiceManager) -> None:
    told = manager(listening, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid()))
    for now in range(100, 131):
        told.working(float(now))
    assert [listening.take() for _ in range(4)] == [["WATCHDOG=1"]] * 4
    assert listening.has_nothing()


@pytest.mark.parametrize(
    "environment", [{}, {"WATCHDOG_USEC": "many"}, {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}]
)
def test_without_a_watchdog_of_its_own_it_gives_no_sign(listening: PlayedServiceManager, environment: Any) -> None:
    manager(listening, **environment).working(1000.0)
    assert listening.has_nothing()


def test_what_finds_no_room_is_said_later(listening: PlayedServiceManager) -> None:
    told = manager(listening, WATCHDOG_USEC="3000000")
    filled = listening.fill()
    told.ready("here")
    told.working(10.0)
    for _ in range(filled):
        assert listening.take() == ["filling"]
    told.working(10.1)
    assert listening.take() == ["READY=1", "STATUS=here"]
    assert listening.take() == ["WATCHDOG=1"]
    told.working(10.2)
    assert listening.has_nothing()


def test_without_a_service_manager_nothing_is_said() -> None:
    told = ServiceManager("Scheduler", {"WATCHDOG_USEC": "1000000"})
    told.ready("here")
    told.working(1000.0)
    told.stopping("why")


def test_other_addresses_are_refused_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager("Scheduler", {"NOTIFY_SOCKET": "vsock:2:1234"}).ready("here")
    assert "neither a path nor an abstract address: vsock:2:1234" in caplog.text


class NoFiles:
    def restore(self) -> None:
        """There are none."""


class FailingPeers:
    address = "tcp://127.0.0.1:1"

    turns = FairTurns()

    def receive(self, now: float, timeout_seconds: float) -> None:
        raise RuntimeError("nothing can be read")


def test_a_turn_that_fails_is_no_sign_of_life(listening: PlayedServiceManager) -> None:
    told = manager(listening, WATCHDOG_USEC="1")

    nothing: Any = None
    peers: Any = FailingPeers()
    files: Any = NoFiles()
    with contextlib.closing(BuiltinLoop()) as loop:
        server = Server(loop, SchedulerCore(Settings()), peers, nothing, files, service_manager=told)
        with pytest.raises(RuntimeError, match="nothing can be read"):
            server._on_timer()
    assert listening.has_nothing()
