"""What the scheduler tells the service manager that started it, over a real socket."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
from scheduler_process import DEADLINE_SECONDS, SchedulerProcess, check_others_work

from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.shell.fair_turns import FairTurns
from scaler_appliance.shell.server import Server
from scaler_protocol.programs.service_manager import ServiceManager

Start = Callable[..., SchedulerProcess]


class Listening:
    """A service manager's end of the socket."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)
        self._socket.settimeout(DEADLINE_SECONDS)

    def take(self) -> List[str]:
        return self._socket.recv(4096).decode().split("\n")

    def fill(self) -> int:
        """Send it so many messages that it has no room for more; their number."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            for sent in range(1_000_000):
                try:
                    sender.sendto(b"filling", self._socket.getsockname())
                except BlockingIOError:
                    return sent
        raise AssertionError("there is always room")

    def has_nothing(self) -> bool:
        return not select.select([self._socket], [], [], 0)[0]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listening]:
    made = Listening(str(tmp_path / "notify") if request.param == "path" else f"@scaler-test-{os.getpid()}")
    yield made
    made.close()


def manager(listening: Listening, **environment: str) -> ServiceManager:
    return ServiceManager("Scheduler", {"NOTIFY_SOCKET": listening.name, **environment})


@pytest.mark.parametrize("listening", ["abstract"], indirect=True)
def test_a_scheduler_says_when_it_is_ready_that_it_works_and_that_it_stops(
    start: Start, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", listening.name)
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
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


def test_a_scheduler_whose_service_manager_is_gone_serves_as_ever(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "missing"))
    scheduler = start()
    check_others_work(scheduler)
    assert scheduler.output().count("service manager at NOTIFY_SOCKET cannot be notified") == 1


def test_signs_of_life_are_as_frequent_as_asked_for(listening: Listening) -> None:
    told = manager(listening, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid()))
    for now in range(100, 131):
        told.working(float(now))
    assert [listening.take() for _ in range(4)] == [["WATCHDOG=1"]] * 4
    assert listening.has_nothing()


@pytest.mark.parametrize(
    "environment", [{}, {"WATCHDOG_USEC": "many"}, {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}]
)
def test_without_a_watchdog_of_its_own_it_gives_no_sign(listening: Listening, environment: Any) -> None:
    manager(listening, **environment).working(1000.0)
    assert listening.has_nothing()


def test_what_finds_no_room_is_said_later(listening: Listening) -> None:
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


class FailingPeers:
    address = "tcp://127.0.0.1:1"

    turns = FairTurns()

    def receive(self, now: float, timeout_seconds: float) -> None:
        raise RuntimeError("nothing can be read")


def test_a_turn_that_fails_is_no_sign_of_life(listening: Listening) -> None:
    told = manager(listening, WATCHDOG_USEC="1")

    async def take_a_turn() -> None:
        nothing: Any = None
        peers: Any = FailingPeers()
        with pytest.raises(RuntimeError, match="nothing can be read"):
            Server(SchedulerCore(Settings()), peers, nothing, nothing, service_manager=told)._on_timer()

    asyncio.run(take_a_turn())
    assert listening.has_nothing()
