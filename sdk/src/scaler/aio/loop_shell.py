"""What coroutines call: the asyncio counterpart of `ClientShell`. Nothing here waits, except in coroutines.

    coroutine ──command──▶ LoopMailbox ──▶ LoopDriver ──▶ core ──effects──▶ scheduler, files
        ▲                                                   │
        └──── TaskFuture, LoopAsker ◀───────────────────────┘

Rules:
- Submitting is a plain call, so it cannot wait for credit: the task waits in the core instead, and until it is accepted
  its function is held, and large arguments stay here.
- All calls come from the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from asyncio import _get_running_loop
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Sequence, Set

from scaler.aio.aio_future import GraphTaskFuture, TaskFuture
from scaler.aio.loop_driver import LoopDriver
from scaler.client.archives import CodeSource
from scaler.client.core import commands as c
from scaler.client.core.handles import NOT_NUMBERED, REFUSED
from scaler.client.core.outbox import FunctionKey
from scaler.client.functions import FunctionRecord
from scaler.client.placed_results import LargeResult
from scaler.client.shell.client_shell import BaseShell, client_hello, client_settings
from scaler.client.shell.deferred_sender import DeferredSender
from scaler.client.submission import Submission
from scaler.data_serving.serving_options import NOT_SERVING, ServingOptions
from scaler.exceptions import DisconnectedError, WrongEventLoopError
from scaler.serializer import Serializer
from scaler.values.codecs import PYTHON_CODEC
from scaler.values.payload import Parts
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.wire import messages as m

GRACE_SECONDS = 0.5


class LoopAsker:
    """One coroutine that waits for an answer."""

    __slots__ = ("answer",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[Any] = loop.create_future()

    def put(self, answer: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class _Admission:
    """Notified when a task was accepted: until then its function is held, and so are results that it gets.

    Parameters:
        function: the key of the task's function.
        placed: the number of their use; 0: it gets none.
    """

    __slots__ = ("_shell", "_future", "_record", "_placed")

    def __init__(self, shell: LoopShell, future: Any, function: FunctionKey, placed: int = 0) -> None:
        self._shell = shell
        self._placed = placed
        self._future = future
        record: Optional[FunctionRecord] = future._function if isinstance(function, int) else None
        self._record = record if record is not None and shell.functions.hold(record) else None
        shell.waiting_futures.add(future)

    def put(self, answer: Any) -> None:
        self._shell.waiting_futures.discard(self._future)
        placed, self._placed = self._placed, 0
        if placed:
            self._shell.placed_results.end(placed)
        record, self._record = self._record, None
        if record is not None:
            self._shell.functions.let_go(record)


class _LargeSubmission(_Admission):
    """Sends a task's large arguments as soon as there is credit for it.

    Parameters:
        parts: None: it has no large arguments.
        results: of other tasks, which are among its arguments; without both, it must not overtake a task that has some.
    """

    __slots__ = ("_task", "_parts", "_results", "_codec")

    def __init__(
        self,
        shell: LoopShell,
        task: c.SubmitTask,
        parts: Optional[Parts],
        results: Sequence[LargeResult] = (),
        codec: str = "",
    ) -> None:
        super().__init__(shell, task.future, task.function)
        self._task, self._parts, self._results, self._codec = task, parts, results, codec

    def put(self, answer: Any) -> None:
        try:
            if answer is None:
                self._future._set_cancelled()
            elif not self._future.done():
                self._shell.send_with_objects(self._task, self._parts, self._results, self._codec)
        except Exception as error:  # for example no room for the arguments
            self._future._fail_here(error)
        finally:
            super().put(answer)
            self._shell.ask_for_next_large()


class LoopShell(BaseShell):
    """The running part of a client that an event loop drives; `connect` comes first.

    Parameters:
        timeout_seconds: how long to try to reconnect.
        connect_timeout_seconds: how long to wait for the first one.
        serving: how it serves workers.
    """

    io: LoopDriver

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        credentials: Credentials,
        serializer: Optional[Serializer],
        timeout_seconds: float,
        connect_timeout_seconds: float,
        heartbeat_interval_seconds: float,
        serving: ServingOptions = NOT_SERVING,
    ) -> None:
        super().__init__(serializer, credentials.address)
        self.loop = loop
        self._thread = threading.get_ident()
        self.waiting_futures: Set[TaskFuture[Any]] = set()
        """Those whose tasks wait for credit."""
        self._large: Deque[_LargeSubmission] = deque()  # of which the first waits for credit
        deferred = DeferredSender(lambda content: self.send_object([content], ""), lambda each: self.post(each))
        settings = client_settings(timeout_seconds, connect_timeout_seconds, heartbeat_interval_seconds)
        self.io = LoopDriver(
            loop, credentials, client_hello(), settings, self._numbers, self._on_heartbeat, deferred.send_here, serving
        )
        self.mailbox = self.io.mailbox
        self.commands = self.mailbox.commands
        self.post = self.mailbox.post
        self.output = self.io.output

    async def connect(self, code_sources: Sequence[CodeSource]) -> None:
        """Connect to the scheduler; raises what `LoopDriver.connect` says."""
        await self.io.connect()
        self._make_registries(code_sources)
        self.io.begin()

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the loop's thread: at once, if this is it. Any thread."""
        if threading.get_ident() == self._thread:
            function()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(function)

    def check_loop(self) -> None:
        """Raise WrongEventLoopError unless the caller runs in this client's loop."""
        running = _get_running_loop()
        if running is not self.loop:
            here = "this code runs outside of any" if running is None else "this code runs in another one"
            raise WrongEventLoopError(
                f"a client of scaler.aio belongs to the event loop that it was connected in, and {here}: make a client"
                " there, or use loop.call_soon_threadsafe() or asyncio.run_coroutine_threadsafe()"
            )

    # Submitting -----------------------------------------------------------------------------------------------------

    def submit_plain(
        self, future: Any, function: FunctionKey, payload: bytes, options: Optional[m.TaskOptions]
    ) -> None:
        """Submit a task that consists of its payload only. Raises DisconnectedError when the client is closed."""
        commands, mailbox = self.commands, self.mailbox
        if len(commands) >= mailbox.room or (self._large and options is not None and options.actor):
            self.submit(c.SubmitTask(future, function, payload, options))
            return
        if not mailbox.is_scheduled:
            mailbox.wake()
        commands.append((future, function, payload, options))

    def submit(self, task: c.SubmitTask) -> None:
        """Submit any task. Raises DisconnectedError when the client is closed."""
        self.check_open()
        if self._large and task.options is not None and task.options.actor:
            self._large.append(_LargeSubmission(self, task, None))  # calls of an actor keep their order
        else:
            self._post_task(task)

    def _post_task(self, task: c.SubmitTask, placed: int = 0) -> None:
        self.post(task._replace(asker=_Admission(self, task.future, task.function, placed)))

    def submit_with_objects(
        self,
        task: c.SubmitTask,
        parts: Optional[Parts],
        results: Sequence[LargeResult] = (),
        codec: str = PYTHON_CODEC,
    ) -> None:
        """Submit a task that needs objects which are placed when there is credit for the task: one after the other,
        because each takes credit. Parameters as of `ClientShell.submit_with_objects`.

        Raises DisconnectedError when the client is closed.
        """
        self.check_open()
        self._large.append(_LargeSubmission(self, task, parts, results, codec))
        if len(self._large) == 1:
            self.post(c.AwaitRoom(self._large[0]))

    def ask_for_next_large(self) -> None:
        """Ask for room for the next task with large arguments, once the one before is counted."""
        self._large.popleft()
        if self._large:
            self.post(c.AwaitRoom(self._large[0]))

    def send_with_objects(
        self, task: c.SubmitTask, parts: Optional[Parts], results: Sequence[LargeResult], codec: str
    ) -> None:
        """Place the objects that a task needs in the cluster, if there are any, and submit it."""
        self.check_open()
        placed = self.placed_results.begin() if results else 0
        try:
            self._post_task(self._with_objects(task, parts, results, codec), placed)
        except BaseException:
            self.placed_results.end(placed)
            raise

    async def await_room(self) -> None:
        """Return as soon as there is credit for a task. Raises DisconnectedError when the client is closed."""
        self.check_open()
        if len(self.commands) < self.mailbox.room:
            return
        asker = LoopAsker(self.loop)
        await self._answer(c.AwaitRoom(asker), asker, None)
        self.check_open()

    def was_refused(self, future: Any) -> bool:
        """Whether a submitted task was not accepted, because its function had been released before."""
        self.await_number(future)
        return bool(future._task_id == REFUSED)

    def await_number(self, future: Any) -> None:
        """Give a future its number, unless its task waits for credit."""
        if future._task_id == NOT_NUMBERED:
            self.io.number_now()

    # Cancelling -----------------------------------------------------------------------------------------------------

    def cancel(self, future: TaskFuture[Any]) -> None:
        """Stop the task of a future that was cancelled here. May be called by a handler of a signal."""
        self.io.unwanted.append(future)
        if not self.mailbox.is_scheduled and self.io.closed_because is None:
            self.mailbox.wake()

    def cancel_soon(self, futures: Sequence[TaskFuture[Any]]) -> None:
        """Cancel futures; their tasks have GRACE_SECONDS to end, if they are running: stopping one costs a process."""
        if futures and self.io.closed_because is None:
            cancelled: Any = futures
            self.ask_to_cancel(cancelled)
            if not self.loop.is_closed():
                self.loop.call_later(GRACE_SECONDS, self._stop, futures)
        for future in futures:
            future._set_cancelled()

    def _stop(self, futures: Sequence[TaskFuture[Any]]) -> None:
        running: Any = [future for future in futures if self.core.futures.get(future._task_id) is future]
        if running and self.io.closed_because is None:
            self.post(c.Cancel(running, True))

    def unfinished(self) -> Set[Any]:
        """All futures that have no outcome."""
        self.io.number_now()
        futures: List[Any] = [*self.core.futures.values(), *self.waiting_futures]
        return {each for each in futures if not each.done()}

    def cancel_all(self) -> int:
        """Cancel all futures that have no outcome; returns how many."""
        return sum(future.cancel() for future in self.unfinished())

    def clear(self) -> None:
        """Cancel all unfinished tasks and release all objects except functions."""
        self.check_open()
        self.cancel_all()
        objects = sorted(self.value_objects)
        self.post(c.Clear(objects))
        self.value_objects.difference_update(objects)

    # Queries --------------------------------------------------------------------------------------------------------

    async def wait_for_slots(self, timeout_seconds: float) -> int:
        """How many tasks the cluster runs at once; waits until that is known."""
        if not self.io.first_echo.done():
            await asyncio.wait([self.io.first_echo], timeout=timeout_seconds)
        return self.core.slots

    async def ask(self, query: m.Member, timeout_seconds: float) -> Optional[Any]:
        """Send the scheduler a query; returns its answer, or None if it does not answer in time.

        Raises DisconnectedError when the client is closed.
        """
        self.check_open()
        asker = LoopAsker(self.loop)
        answer = await self._answer(c.Ask(query, asker), asker, timeout_seconds)
        if answer is None:
            self.check_open()
        return answer

    async def ask_where(self, future: TaskFuture[Any], timeout_seconds: float) -> Optional[Any]:
        """The answer to `core.commands.Explain`; a TimeoutError if the scheduler does not answer in time."""
        asker = LoopAsker(self.loop)
        return await self._answer(c.Explain(future, asker), asker, timeout_seconds, TimeoutError())

    async def _answer(
        self, command: c.Command, asker: LoopAsker, timeout_seconds: Optional[float], otherwise: Optional[Any] = None
    ) -> Optional[Any]:
        self.io.waiting.add(asker)
        try:
            self.post(command)
            await asyncio.wait([asker.answer], timeout=timeout_seconds)
        finally:
            self.io.waiting.discard(asker)
            if not asker.answer.done():
                self.post(c.ForgetQuery(asker))
        return asker.answer.result() if asker.answer.done() else otherwise

    # Ending ---------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Leave the scheduler; all unfinished futures are cancelled. Idempotent."""
        self._start_leaving()
        if not self.io.ended.done():
            self.mailbox.wake()
            await asyncio.shield(self.io.ended)

    def close_now(self) -> None:
        """Leave without waiting, because the loop will not run any more."""
        if self.io.closed_because is None:
            self.io.closed_because = DisconnectedError("this client is disconnected: make a new Client")
        self.io.end_now()


class LoopSubmission(Submission):
    """Submits tasks with certain options through the shell of an event loop."""

    _shell: LoopShell  # type: ignore[assignment]  # which nothing that is shared waits for
    _future_kind = TaskFuture
    _graph_future_kind = GraphTaskFuture
