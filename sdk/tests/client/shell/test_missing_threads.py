"""A system without room for another thread costs a client no future and no callback."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, Callable, List

import pytest

from scaler import ScalerFuture
from scaler.client.core.commands import EndDeferred
from scaler.client.core.deferring import DeferredTask
from scaler.client.shell.deferred_sender import DeferredSender
from scaler.client.shell.future_internals import AnyFuture
from scaler.client.shell.output import OutputChannel, TaskOutput
from scaler.client.shell.settling import Settling
from scaler_protocol import messages as m

TIMEOUT_SECONDS = 20.0


@pytest.fixture
def allow_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """No thread can be started until this is called."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with_threads = monkeypatch.undo
    monkeypatch.setattr(threading.Thread, "start", refuse)
    return with_threads


def test_a_task_that_waited_here_fails_with_the_reason(allow_threads: Callable[[], None]) -> None:
    posted: List[Any] = []
    sender = DeferredSender(lambda content: 0, posted.append)
    task: Any = DeferredTask.__new__(DeferredTask)
    sender.send(task)
    (end,) = posted
    assert isinstance(end, EndDeferred) and end.task is task and isinstance(end.error, RuntimeError)
    allow_threads()
    task.predecessors = ()
    task.payload = b""
    ended = threading.Event()
    sender._post = lambda command: ended.set()
    sender.send(task)
    assert ended.wait(TIMEOUT_SECONDS), "the next one has a thread again"


def test_callbacks_run_when_there_is_a_thread_for_them(allow_threads: Callable[[], None]) -> None:
    settling = Settling()
    client: Any = SimpleNamespace(_condition=settling.condition, _shell=SimpleNamespace(condition=settling.condition))
    future: AnyFuture = ScalerFuture(client)
    called = threading.Event()
    future.add_done_callback(lambda done: called.set())
    settling.cancelled([future])
    settling.notify()
    assert future.done() and not called.is_set()
    allow_threads()
    settling.notify()
    assert called.wait(TIMEOUT_SECONDS)
    settling.close()


def test_output_is_shown_when_there_is_a_thread_for_it(allow_threads: Callable[[], None]) -> None:
    channel = OutputChannel()
    shown: List[TaskOutput] = []
    channel.callback = shown.append
    channel.on_task_log(m.TaskLog(id=1, stream=1, text="first\n"))
    allow_threads()
    channel.on_task_log(m.TaskLog(id=1, stream=1, text="second\n"))
    channel.close()
    assert [output.text for output in shown] == ["first\n", "second\n"]
