"""A supervisor whose system calls for processes fail, each in each way that there is."""

from __future__ import annotations

import argparse
import errno
import os
import select
import signal
from typing import Any, Iterator, List

import pytest

from scaler.worker.supervisor import Supervisor

AGENT = 4711
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


def error_of(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class FaultySystem:
    """Processes that are never started. The first calls of a name fail with the errors that a test gives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: List[BaseException] = []
        self.failing = ""
        self.statuses = [0]
        self.pauses: List[float] = []
        self.descriptors = 0
        for name, call in (("fork", lambda: AGENT), ("waitpid", self._wait), ("kill", lambda *_: None)):
            monkeypatch.setattr(os, name, self._failing_first(name, call))
        monkeypatch.setattr(os, "pipe", self._failing_first("pipe", os.pipe))
        monkeypatch.setattr(select, "select", self._pause)

    def _failing_first(self, name: str, call: Any) -> Any:
        def faulty(*arguments: Any) -> Any:
            if name == self.failing and self.errors:
                raise self.errors.pop(0)
            return call(*arguments)

        return faulty

    def _wait(self, process_id: int, options: int) -> Any:
        assert process_id == AGENT
        return process_id, self.statuses.pop(0)

    def _pause(self, reading: Any, writing: Any, failing: Any, seconds: float) -> Any:
        self.pauses.append(seconds)
        return [], [], []


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultySystem]:
    handlers = [signal.getsignal(number) for number in SIGNALS]
    wake_descriptor = signal.set_wakeup_fd(-1)
    yield FaultySystem(monkeypatch)
    os.close(signal.set_wakeup_fd(wake_descriptor))
    for number, handler in zip(SIGNALS, handlers):
        signal.signal(number, handler)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("fork", error_of(errno.EAGAIN)),
        ("fork", error_of(errno.ENOMEM)),
        ("fork", MemoryError()),
        ("pipe", error_of(errno.EMFILE)),
        ("pipe", error_of(errno.ENFILE)),
    ],
    ids=repr,
)
def test_an_agent_that_cannot_be_started_is_started_later(
    system: FaultySystem, call: str, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor = Supervisor(argparse.Namespace(drain_signal=None))
    system.failing, system.errors = call, [error] * 9
    if call == "pipe":  # the first pipe is that of signals, without which it does not begin
        codes = [supervisor._run_agent() for _ in range(9)]
        assert codes == [-signal.SIGKILL] * 9
    before = open_descriptors()
    assert supervisor.run() == 0
    assert open_descriptors() == before + 2, "those of the pipe of signals"
    assert not system.errors and len(system.pauses) == (0 if call == "pipe" else 9)
    assert capsys.readouterr().err.count("no process can be started for the worker") == 9
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(SIGNALS)


def test_an_agent_that_a_library_has_waited_for_is_replaced(system: FaultySystem) -> None:
    system.failing, system.errors = "waitpid", [error_of(errno.ECHILD)]
    assert Supervisor(argparse.Namespace(drain_signal=None)).run() == 0
    assert system.pauses == [0.1]


def test_exit_codes_are_there_though_the_parent_ignored_its_children(system: FaultySystem) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    assert Supervisor(argparse.Namespace(drain_signal=None)).run() == 0
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL


@pytest.mark.parametrize("number", [errno.ESRCH, errno.EPERM])
def test_a_signal_that_cannot_be_forwarded_ends_the_supervisor_with_its_agent(
    system: FaultySystem, number: int
) -> None:
    supervisor = Supervisor(argparse.Namespace(drain_signal=None))
    supervisor._agent = AGENT
    system.failing, system.errors = "kill", [error_of(number)]
    supervisor._on_signal(signal.SIGTERM, None)
    assert not system.errors
    system.statuses = [signal.SIGKILL]
    assert supervisor.run() == 128 + signal.SIGKILL, "no other agent is started"
