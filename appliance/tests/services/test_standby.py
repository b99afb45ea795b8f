"""A scheduler that stands by serves while the other one does not, and never beside it for long."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from pathlib import Path
from typing import Callable, List, Sequence, Tuple

import pytest
from played_service_manager import PlayedServiceManager
from quiet_addresses import quiet_address
from scheduler_process import SchedulerProcess, check_others_work, wait_for

from scaler_appliance.shell import standby as standby_module
from scaler_appliance.shell.standby import INTERVAL_SECONDS, STOOD_STILL_SECONDS, Presence, Standby
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.keys.credentials import Credentials, MissingKeyError
from scaler_protocol.programs.event_loop import BuiltinLoop
from scaler_protocol.programs.service_manager import ServiceManager

Start = Callable[..., SchedulerProcess]

pytestmark = pytest.mark.usefixtures("folders")
PATIENT_SECONDS = 3.0
MORE = pytest.mark.exhaustive
SOON = ("--takeover-seconds", "0.5")


def listens(address: str) -> bool:
    parsed = parse_address(address)
    with socket.socket() as stream:
        return stream.connect_ex((parsed.host, parsed.port)) == 0


@pytest.fixture
def pair(start: Start) -> Tuple[SchedulerProcess, SchedulerProcess]:
    """A scheduler, and one that stands by for it."""
    first = start()
    return first, stand_by(start, first.address)


def stand_by(start: Start, other: str, options: Sequence[str] = SOON) -> SchedulerProcess:
    standby = start("--standby-of", other, *options, address=quiet_address(), wait=False)
    standby.wait_for_output(f"stands by for {other}")
    return standby


def wait_for_times(standby: SchedulerProcess, text: str, times: int) -> None:
    try:
        wait_for(lambda: standby.output().count(text) == times, f"{text!r} to be there {times} times")
    except AssertionError as error:
        raise AssertionError(f"{error}; it has said:\n{standby.output()}") from None


# When the other one is believed to be there ---------------------------------------------------------------------------


def changes(presence: Presence, answers: Sequence[Tuple[float, bool]]) -> Sequence[float]:
    return [at for at, has_answered in answers if presence.on_answer(at, has_answered)]


def test_it_is_gone_once_it_has_not_answered_for_long_enough() -> None:
    presence = Presence(PATIENT_SECONDS)
    assert changes(presence, [(at, at < 5) for at in range(10)]) == [8]
    assert not presence.is_there


def test_one_answer_in_between_is_enough_to_be_believed() -> None:
    presence = Presence(PATIENT_SECONDS)
    assert not changes(presence, [(at, at % 3 == 0) for at in range(30)])
    assert presence.is_there


def test_it_is_back_once_all_answers_for_as_long_say_so() -> None:
    presence = Presence(PATIENT_SECONDS)
    assert changes(presence, [(at, at >= 5 and at != 7) for at in range(20)]) == [3, 11]
    assert presence.is_there


def test_what_was_there_before_this_program_stood_still_does_not_count() -> None:
    presence = Presence(PATIENT_SECONDS)
    awake = 2 + STOOD_STILL_SECONDS + INTERVAL_SECONDS
    assert not changes(presence, [(0, True), (1, False), (2, False), (awake, False), (awake + 1, True)])


# How it asks ---------------------------------------------------------------------------------------------------------


def is_needed_for(other: str) -> bool:
    """Whether a standby decides to serve."""
    with contextlib.closing(BuiltinLoop()) as loop:
        asking = Standby(loop, Credentials(other), 0.03, ServiceManager("Scheduler", {}))
        loop.call_soon(asking.start)  # when it waits
        return asking.is_needed(exit_when_stdin_closes=False)


def test_an_unforeseen_error_counts_as_no_answer_and_the_asking_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: List[str] = []

    def break_down(credentials: Credentials, deadline: float) -> str:
        asked.append(credentials.address)
        raise LookupError("unforeseen")

    monkeypatch.setattr(standby_module, "greet", break_down)
    monkeypatch.setattr(standby_module, "INTERVAL_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    other = "tcp://127.0.0.1:2345"

    assert is_needed_for(other), "it serves, as if the other one were gone"
    assert len(asked) > 1 and set(asked) == {other}, "one answer alone says nothing: it was asked again"
    why = "LookupError: unforeseen"
    assert f"there is no answer from {other}: {why}" in caplog.text
    assert f"serves instead of {other}: {why}" in caplog.text


def test_who_dies_at_the_first_question_is_gone_and_has_not_refused_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be seen any more whose the other end was, and so a key seems to be missing."""
    answers: List[Exception] = [MissingKeyError("there is no key")]

    def die(credentials: Credentials, deadline: float) -> str:
        raise answers.pop() if answers else ConnectionRefusedError("nothing listens there")

    monkeypatch.setattr(standby_module, "greet", die)
    monkeypatch.setattr(standby_module, "INTERVAL_SECONDS", 0.01)

    assert is_needed_for("tcp://127.0.0.1:2345")


def test_who_refuses_it_twice_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(credentials: Credentials, deadline: float) -> str:
        raise MissingKeyError("there is no key")

    monkeypatch.setattr(standby_module, "greet", refuse)
    monkeypatch.setattr(standby_module, "INTERVAL_SECONDS", 0.01)

    with pytest.raises(OSError, match="there is no key; both need the same keys"):
        is_needed_for("tcp://127.0.0.1:2345")


# As a process ---------------------------------------------------------------------------------------------------------


def test_it_listens_nowhere_while_the_other_one_answers_and_serves_when_that_is_killed(
    pair: Tuple[SchedulerProcess, SchedulerProcess],
) -> None:
    first, standby = pair
    check_others_work(first)
    first.process.send_signal(signal.SIGKILL)
    standby.wait_for_output(f"serves instead of {first.address}")
    standby.wait_until_ready()
    check_others_work(standby)


@pytest.mark.exhaustive_on_pypy
def test_it_makes_way_when_the_other_one_is_back_and_can_serve_again(start: Start) -> None:
    first = start(address=quiet_address())
    standby = stand_by(start, first.address)
    for turn in (1, 2):
        first.process.send_signal(signal.SIGKILL)
        first.wait_for_end()
        wait_for_times(standby, "listening at", turn)
        first = start(address=first.address)
        wait_for_times(standby, "stands by for", turn + 1)
        assert not listens(standby.output().rpartition("listening at ")[2].split()[0])
    assert f"{first.address} serves again; peers of this scheduler connect to it" in standby.output()


@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize("wildcard", ["*", *(pytest.param(each, marks=MORE) for each in ("0.0.0.0", "[::]"))])
def test_another_one_on_this_host_may_be_named_as_it_was_started(start: Start, wildcard: str) -> None:
    """A wildcard is no address to connect to: it is asked at the one of this host."""
    port = parse_address(quiet_address()).port
    start("--insecure", address=f"tcp://{wildcard}:{port}")
    asking = start("--standby-of", f"tcp://{wildcard}:{port}", *SOON, address=quiet_address(), wait=False)
    asking.wait_for_output(f"stands by for tcp://127.0.0.1:{port}")
    asking.wait_for_output(f"tcp://127.0.0.1:{port} answers")


@pytest.mark.exhaustive_on_pypy
def test_a_scheduler_that_hangs_does_not_serve(pair: Tuple[SchedulerProcess, SchedulerProcess]) -> None:
    first, standby = pair
    first.process.send_signal(signal.SIGSTOP)
    standby.wait_for_output("it did not answer within 2 s")
    standby.wait_until_ready()
    first.process.send_signal(signal.SIGCONT)
    standby.wait_for_output("serves again")


@pytest.mark.exhaustive_on_pypy
def test_a_scheduler_that_takes_no_more_peers_serves(start: Start) -> None:
    first = start("--maximum-peers", "1")
    first.client()
    standby = stand_by(start, first.address)
    standby.wait_for_output(f"{first.address} answers")


@pytest.mark.exhaustive_on_pypy
def test_options_that_have_changed_are_used_when_it_serves(start: Start, tmp_path: Path) -> None:
    first, configuration = start(), tmp_path / "scaler.toml"
    configuration.write_text("[scheduler]\nclient_timeout_seconds = 40\n")
    standby = stand_by(start, first.address, [*SOON, "--config", str(configuration)])
    configuration.write_text("[scheduler]\nclient_timeout_seconds = 50\n")
    standby.process.send_signal(signal.SIGHUP)
    standby.wait_for_output("options and keys are loaded when this scheduler begins to serve")
    first.process.send_signal(signal.SIGKILL)
    standby.wait_until_ready()
    assert standby.client().welcome.timeout_milliseconds == 50_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
@pytest.mark.exhaustive_on_pypy
def test_it_can_be_stopped_while_it_waits(
    pair: Tuple[SchedulerProcess, SchedulerProcess], number: signal.Signals
) -> None:
    _, standby = pair
    standby.process.send_signal(number)
    assert standby.wait_for_end() == 0
    assert f"stopped: {number.name}" in standby.output()


@pytest.mark.exhaustive_on_pypy
def test_it_stops_as_asked_when_the_other_one_is_back_meanwhile(start: Start) -> None:
    first = start(address=quiet_address())
    standby = stand_by(start, first.address)
    first.process.send_signal(signal.SIGKILL)
    first.wait_for_end()
    standby.wait_until_ready()
    standby.worker()  # which does not leave
    standby.process.send_signal(signal.SIGTERM)
    standby.wait_for_output("shutting down: SIGTERM")
    start(address=first.address)
    assert standby.wait_for_end() == 0
    assert standby.output().count("stands by for") == 1


@pytest.mark.exhaustive_on_pypy
def test_it_ends_with_the_process_that_started_it(start: Start) -> None:
    standby = stand_by(start, start().address, ["--exit-when-stdin-closes"])
    assert standby.process.stdin is not None
    standby.process.stdin.close()
    assert standby.wait_for_end() == 0


@pytest.mark.exhaustive_on_pypy
def test_a_service_manager_is_told_that_it_stands_by_and_that_it_works(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    listening = PlayedServiceManager(str(tmp_path / "notify"))
    for name, value in listening.environment(1.0).items():
        monkeypatch.setenv(name, value)
    standby = stand_by(start, first.address)
    ready = ["READY=1", f"STATUS=standing by for {first.address}"]
    assert listening.take() == ready
    assert listening.take() == ["WATCHDOG=1"]
    first.process.send_signal(signal.SIGKILL)
    standby.wait_until_ready()
    said = listening.take()
    while said == ["WATCHDOG=1"]:
        said = listening.take()
    assert said == ["READY=1", f"STATUS=listening at {standby.address}"]


@pytest.mark.exhaustive_on_pypy
def test_a_scheduler_with_other_keys_is_named_at_the_start(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(address="tcp://127.0.0.2:0")  # where there is no local socket
    monkeypatch.setenv("SCALER_KEY_DIRECTORY", str(tmp_path / "others"))
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "nothing"))
    os.mkdir(tmp_path / "nothing", 0o700)
    standby = start("--standby-of", first.address, *SOON, address=quiet_address(), wait=False)
    assert standby.wait_for_end() == 1
    assert "both need the same keys: copy the folder of keys from its host" in standby.output()


@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize(
    ("address", "other", "fault"),
    [
        ("tcp://127.0.0.1:2345", "tcp://127.0.0.1:2345", "that is the address of this scheduler itself"),
        ("tcp://*:2345", "tcp://127.0.0.1:2345", "that is the address of this scheduler itself"),
        ("tcp://127.0.0.1:2345", "tcp://h:1,tcp://[::]:2345", "that is the address of this scheduler itself"),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:2345", "have to know the port of tcp://127.0.0.1:0 beforehand"),
    ],
)
def test_addresses_that_cannot_work_are_refused(start: Start, address: str, other: str, fault: str) -> None:
    standby = start("--standby-of", other, address=address, wait=False)
    assert standby.wait_for_end() == 2
    assert fault in standby.output()


@pytest.mark.exhaustive_on_pypy
def test_an_address_that_is_taken_is_noticed_before_it_is_needed(start: Start) -> None:
    first, other = start(), start()
    standby = start("--standby-of", first.address, address=other.address, wait=False)
    assert standby.wait_for_end() == 1
    assert f"cannot listen at {other.address}" in standby.output()
