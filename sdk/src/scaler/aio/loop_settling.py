"""What an event loop does for a client's driver: outcomes, commands and output, without locks, pipes and threads.

    user's coroutine ──post──▶ LoopMailbox ──call_soon──▶ LoopDriver: turn ──▶ LoopSettling ──call_soon──▶ coroutine

Rules:
- All of it happens in the loop's thread. Only the garbage collector may post from another one.
- Commands that are posted before the loop turns are one batch.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import deque
from contextvars import Context
from itertools import islice
from typing import Any, Callable, Deque, List, Mapping, Optional, Sequence

from scaler.aio.aio_future import TaskFuture
from scaler.client.core.effects import Outcome
from scaler.client.shell.mailbox import CLOSED
from scaler.client.shell.output import OutputCallback, print_output, task_output
from scaler.client.shell.settling import prepare
from scaler_protocol.wire import messages as m


class LoopMailbox:
    """Where commands wait for the next turn: see `scaler.client.shell.mailbox.Mailbox`.

    Parameters:
        turn: processes the commands.
        refuse: called with commands that come too late.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, turn: Callable[[], None], refuse: Callable[[List[Any]], None]
    ) -> None:
        self.commands: Deque[Any] = deque()
        self.room = CLOSED
        self.is_scheduled = False  # a turn follows
        self._loop = loop
        self._turn = turn
        self._refuse = refuse
        self._thread = threading.get_ident()
        self._has_ended = False

    def post(self, command: Any) -> None:
        """Pass a command to the core, with the next turn."""
        self.commands.append(command)
        if not self.is_scheduled:
            self.wake()

    def wake(self) -> None:
        """Let a turn follow."""
        if self._has_ended:
            self._refuse(self.take())
            return
        self.is_scheduled = True
        try:
            if threading.get_ident() == self._thread:
                self._loop.call_soon(self._turn)
            else:
                self._loop.call_soon_threadsafe(self._turn)
        except RuntimeError:
            pass  # the loop is closed: nothing will be processed

    def take(self) -> List[Any]:
        """All waiting commands."""
        count = len(self.commands)
        if self.room > 0:
            self.room = max(0, self.room - count)
        return list(islice(iter(self.commands.popleft, None), count))

    def close(self) -> None:
        """No more commands are processed."""
        self.room = CLOSED
        self._has_ended = True
        self.is_scheduled = False
        self._refuse(self.take())

    def close_pipe(self) -> None:
        """There is none."""

    def after_fork_in_child(self) -> None:
        """In a fork of the client's process."""
        self.commands.clear()
        self.room = CLOSED
        self._has_ended = True
        self.is_scheduled = False


class LoopSettling:
    """Gives futures their outcomes: see `scaler.client.shell.settling.Settling`. asyncio wakes what waits for them."""

    def results(self, futures: Sequence[Optional[Any]], payload: bytes, sizes: Sequence[int]) -> None:
        """Futures have consecutive parts of the payload as their results."""
        offset = 0
        for future, size in zip(futures, sizes):
            end = offset + size
            if future is not None:
                future._end(payload[offset:end])
            offset = end

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Futures have outcomes of any kind."""
        for outcome in outcomes:
            future: Any = outcome.future
            if not future.done():
                prepare(future, outcome)
            future._end(outcome.payload)

    def cancelled(self, futures: Sequence[Any]) -> None:
        """Futures are cancelled, unless they have an outcome."""
        for future in futures:
            future._set_cancelled()

    def failed(self, futures: Sequence[Any], error: Exception) -> None:
        """Futures fail, unless they have an outcome."""
        for future in futures:
            future._fail_here(error)

    def failed_after(self, future: Any, failed: Any) -> None:
        """A future ends because a task that it needs has failed."""
        future._set_failed_after(failed)

    def cancel_answered(self, future: Any, outcome: int) -> None:
        """The future is cancelled already, whatever the outcome of its task."""

    def notify(self) -> None:
        """asyncio has done it."""

    def unfinished(self, known: Mapping[int, Any]) -> List[TaskFuture[Any]]:
        """All futures of this client that have no outcome; `known` to its core are those."""
        left = [each for each in gc.get_objects() if issubclass(type(each), TaskFuture)]
        own = [each for each in left if each._client._shell.io.settling is self]
        return [each for each in {*known.values(), *own} if not each.done()]

    def close(self) -> None:
        """No more futures follow."""

    def after_fork_in_child(self, futures: Sequence[Any], error: Exception) -> None:
        """In a fork of the client's process: its loop is not running there."""
        self.failed(futures, error)


class LoopOutput:
    """Shows what tasks print, in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.callback: OutputCallback = print_output
        self._loop = loop

    def on_task_log(self, message: m.TaskLog, context: Optional[Context] = None) -> None:
        """A task printed something: the loop shows it in a callback of its own, which may fail."""
        self._loop.call_soon(lambda: self.callback(task_output(message)), context=context)

    def close(self) -> None:
        """No more output follows."""
