"""A fork server whose system calls for processes fail, each in each way that there is."""

from __future__ import annotations

import errno
import os
import signal
import socket
from types import SimpleNamespace
from typing import Any, Iterator, List, Tuple

import pytest

from scaler.worker.fork_server import fork_server as module
from scaler.worker.fork_server import stacks
from scaler.worker.fork_server.fork_server_client import ForkServerClient, ForkServerReport, ReportKind

PROCESS = 4711


def error_of(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Bench:
    def __init__(self) -> None:
        server_end, agent_end = socket.socketpair()
        page: Any = None
        self.server = module._ForkServer(server_end, page, module.ForkServerSettings("tcp://a:1"))
        self._server_end = server_end
        self.agent = ForkServerClient(agent_end)

    def spawn(self) -> List[ForkServerReport]:
        """What is reported about an attempt; the descriptor of the processor is closed whatever happens."""
        stream, other_end = socket.socketpair()
        self.server._spawn(7, "a processor", stream.detach())
        assert other_end.recv(1) == b""
        other_end.close()
        return self.reports()

    def reports(self) -> List[ForkServerReport]:
        self._server_end.setblocking(True)
        return self.agent.reports() or []

    def close(self) -> None:
        for descriptor in (self.server._wakeup_read, self.server._wakeup_write):
            os.close(descriptor)
        self._server_end.close()
        self.agent.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def fail(monkeypatch: pytest.MonkeyPatch, name: str, *errors: BaseException, then: Any = None) -> List[Tuple[Any, ...]]:
    """Let the next calls of a name fail; returns the arguments of all calls."""
    calls: List[Tuple[Any, ...]] = []
    left = list(errors)

    def call(*arguments: Any) -> Any:
        calls.append(arguments)
        if left:
            raise left.pop(0)
        return then(*arguments) if then is not None else None

    monkeypatch.setattr(os, name, call)
    return calls


@pytest.mark.parametrize(
    "error", [error_of(errno.EAGAIN), error_of(errno.ENOMEM), MemoryError()], ids=["EAGAIN", "ENOMEM", "MemoryError"]
)
def test_a_processor_that_cannot_be_forked_is_reported_and_the_next_one_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    fail(monkeypatch, "fork", error, then=lambda: PROCESS)
    fail(monkeypatch, "setpgid", error_of(errno.ESRCH))
    before = len(os.listdir("/proc/self/fd"))
    [failed] = bench.spawn()
    assert (failed.event, failed.number) == (ReportKind.FAILED, 7) and failed.text.startswith("cannot fork a processor")
    assert len(os.listdir("/proc/self/fd")) == before and not bench.server._children
    [spawned] = bench.spawn()
    assert (spawned.event, spawned.process_id) == (ReportKind.SPAWNED, PROCESS)


def test_children_that_a_library_has_waited_for_are_no_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = fail(monkeypatch, "waitpid", error_of(errno.ECHILD))
    bench.server._reap()
    assert len(waits) == 1


@pytest.mark.parametrize("number", [errno.ESRCH, errno.EPERM], ids=["ESRCH", "EPERM"])
def test_a_processor_whose_group_cannot_be_killed_is_killed_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    bench.server._children[PROCESS] = 7
    fail(monkeypatch, "killpg", error_of(number))
    kills = fail(monkeypatch, "kill", error_of(number))
    asked: List[int] = []

    def ask_for_stack(process_id: int) -> None:
        asked.append(process_id)
        raise error_of(number)

    monkeypatch.setattr(stacks, "ask_for_stack", ask_for_stack)
    bench.server._end_child(PROCESS, at_once=True)
    assert kills == [(PROCESS, signal.SIGKILL)] and asked == []
    bench.server._end_child(PROCESS, at_once=False)
    assert len(kills) == 1 and asked == [PROCESS]
    assert PROCESS in bench.server._endings, "it is killed if it does not stop"


def killed_at(bench: Bench, monkeypatch: pytest.MonkeyPatch, runs_at: float) -> float:
    """When a processor that was asked to stop at 0 and does not is killed, if it has no processor time at first."""
    now = [0.0]
    killed: List[float] = []
    bench.server._children[PROCESS] = 7
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(stacks, "has_not_run", lambda process_id: now[0] < runs_at)
    monkeypatch.setattr(module, "_kill_group", lambda process_id: killed.append(now[0]))
    monkeypatch.setattr(stacks, "ask_for_stack", lambda process_id: None)
    bench.server._end_child(PROCESS, at_once=False)
    while not killed:
        pause_seconds = bench.server._kill_overdue()
        now[0] += 0.0 if killed or pause_seconds is None else pause_seconds
    assert bench.server._kill_overdue() is None
    return killed[0]


@pytest.mark.parametrize("runs_at", [0.0, 0.2, 0.6, 2.0])
def test_a_processor_that_gets_processor_time_late_has_a_whole_grace_from_then_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, runs_at: float
) -> None:
    """To write its stack."""
    expected = pytest.approx(runs_at + stacks.GRACE_SECONDS, abs=1.01 * module._PAUSE_SECONDS)
    assert killed_at(bench, monkeypatch, runs_at) == expected


@pytest.mark.parametrize("runs_at", [2.9, 60.0])
def test_a_processor_that_gets_no_processor_time_is_killed_when_the_longest_grace_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, runs_at: float
) -> None:
    assert killed_at(bench, monkeypatch, runs_at) == pytest.approx(
        stacks.LONGEST_GRACE_SECONDS, abs=module._PAUSE_SECONDS
    )


def test_a_process_id_that_may_belong_to_another_process_by_now_gets_no_signal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "fork", then=lambda: PROCESS)
    fail(monkeypatch, "setpgid")
    bench.spawn()
    ended = iter([(PROCESS, 0), (0, 0)])
    fail(monkeypatch, "waitpid", then=lambda *_: next(ended))
    groups = fail(monkeypatch, "killpg", error_of(errno.ESRCH))
    kills = fail(monkeypatch, "kill")
    bench.server._reap()
    [died] = bench.reports()
    assert (died.event, died.number) == (ReportKind.DIED, 7)
    assert groups == [(PROCESS, signal.SIGKILL)] and kills == []
