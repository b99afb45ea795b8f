"""What runs in a client's user threads: they post commands to the I/O thread, and wait for the results.

    user thread ──command──▶ Mailbox ──▶ IoThread ──▶ core ──effects──▶ scheduler, files
         ▲                                                    │
         └──── Waiter, future ◀───────────────────────────────┘

Rules:
- A user thread does not touch the core, and takes no lock that the I/O thread takes: it makes one complete command and
  posts it. So Ctrl-C comes before a command or after it, and leaves nothing half done.
- Arguments have been checked before; a closed client raises here.
"""

from __future__ import annotations

import os
import time
import weakref
from contextvars import copy_context
from typing import Any, Callable, Iterable, List, Optional, Sequence, Set

from scaler import blocking
from scaler.client.archives import CodeSource
from scaler.client.code import ClientCode
from scaler.client.core import commands as c
from scaler.client.core.deferring import ACTORS, PREDECESSORS, DeferredTask
from scaler.client.core.handles import NOT_NUMBERED, REFUSED
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import FunctionKey
from scaler.client.functions import FunctionRegistry
from scaler.client.placed_results import LargeResult, PlacedResults
from scaler.client.shell.client_driver import ClientDriver
from scaler.client.shell.client_object_files import has_parts
from scaler.client.shell.deferred_sender import DeferredSender
from scaler.client.shell.future_internals import AnyFuture, CancelWaiter, add_waiter, forget_waiter
from scaler.client.shell.io_thread import IoThread
from scaler.client.shell.mailbox import CLOSED
from scaler.client.shell.settling import Settling
from scaler.client.shell.transport import described
from scaler.client.shell.waiting import Waiter
from scaler.data_serving.serving_options import NOT_SERVING, ServingOptions
from scaler.exceptions import ClientFailedError, DisconnectedError
from scaler.serializer import Serializer
from scaler.values.codecs import CODECS, PYTHON_CODEC
from scaler.values.payload import Parts, parts_size
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.session.ids import object_id_of
from scaler_protocol.session.object_numbers import SECRET_BYTES, object_numbers
from scaler_protocol.session.peer_session import SessionSettings
from scaler_protocol.wire import messages as m

ANSWER_TIMEOUT_SECONDS = 10.0
SHORT_WAIT_SECONDS = 0.05  # for a longer wait, it pays to give the slot to other tasks
MAXIMUM_DEFERRED_CANCEL_SECONDS = 1.0


def client_hello() -> m.Hello:
    """Introduces a client of this process."""
    return described(
        m.Hello(role=m.Role.CLIENT, codecs=list(CODECS), name=f"{os.getpid()}", features=[PREDECESSORS, ACTORS])
    )


def client_settings(
    timeout_seconds: float, connect_timeout_seconds: float, heartbeat_interval_seconds: float
) -> SessionSettings:
    """The settings of a client's session.

    Parameters:
        timeout_seconds: how long to try to reconnect.
        connect_timeout_seconds: how long to wait for the first one.
    """
    return SessionSettings(
        heartbeat_interval_seconds,
        silence_timeout_seconds=timeout_seconds,
        give_up_seconds=timeout_seconds,
        first_timeout_seconds=connect_timeout_seconds,
        lasting_seconds=5.0,
    )


class BaseShell:
    """The part of a running client that is the same whether threads wait for it or an event loop does.

    Attributes:
        io: drives its core, and is connected.
        post: passes a command to the core.
    """

    io: ClientDriver
    post: Callable[[Any], None]

    def __init__(self, serializer: Optional[Serializer], address: str) -> None:
        self.serializer = serializer
        self.address = address
        self.value_objects: Set[int] = set()
        self._numbers = object_numbers(os.urandom(SECRET_BYTES))
        self._kept: weakref.WeakValueDictionary[int, KeptObject] = weakref.WeakValueDictionary()
        self._is_abandoned = False
        self.placed_results = PlacedResults(self._place_result, self._has_content, self._let_go)

    def _make_registries(self, code_sources: Sequence[CodeSource]) -> None:
        self.core = self.io.core
        self.code = ClientCode(code_sources, self._send_archive, self.delete_object, self._kept.get)
        self.functions = FunctionRegistry(self.serializer, self._send_function, self.delete_object, self.code)

    # What is known ---------------------------------------------------------------------------------------------------

    @property
    def welcome(self) -> m.Welcome:
        """Of the present session."""
        return self.io.welcome

    @property
    def closed_because(self) -> Optional[Exception]:
        """The error that ended this client, if any."""
        return self.io.closed_because

    @property
    def is_connected(self) -> bool:
        return self.core.is_connected

    @property
    def unfinished_count(self) -> int:
        """About how many tasks have no outcome: the most recent submissions may be missing."""
        return len(self.core.futures)

    @property
    def slots(self) -> int:
        """How many tasks the cluster runs at once, as last heard."""
        return self.core.slots

    def state(self) -> str:
        """In a few words, for people."""
        if self.closed_because is not None:
            return "disconnected"
        count = self.unfinished_count
        unfinished = f"{count} unfinished task{'' if count == 1 else 's'}"
        return unfinished if self.is_connected else f"{unfinished}, looking for its scheduler"

    def check_open(self) -> None:
        """Raise the error that ended this client, if any."""
        because = self.io.closed_because
        if isinstance(because, ClientFailedError):
            raise ClientFailedError(str(because))
        if because is not None:
            raise DisconnectedError(str(because))

    def is_own_object(self, object_id: int) -> bool:
        return self.core.objects.is_own(object_id)

    # Objects --------------------------------------------------------------------------------------------------------

    def send_object(
        self, parts: Parts, name: str, kind: m.ObjectKind = m.ObjectKind.VALUE, codec: str = PYTHON_CODEC
    ) -> int:
        """Place an object in the cluster and return its id.

        Raises ObjectStorageFullError if there is no room for it, DisconnectedError when the client is closed.
        """
        number = next(self._numbers)
        content = self.io.files.store(parts, number)
        self.check_open()
        # SCL-OBJ-001
        object_id = object_id_of(self.io.welcome.session, number)
        kept = KeptObject(number, object_id, name, kind, parts_size(parts), codec, content)
        self._kept[object_id] = kept
        self.post(c.HoldObject(kept))
        return object_id

    def _send_function(self, parts: Parts, name: str) -> int:
        return self.send_object(parts, name, m.ObjectKind.FUNCTION)

    def _send_archive(self, parts: Parts, name: str) -> int:
        return self.send_object(parts, name)

    def _with_objects(
        self, task: c.SubmitTask, parts: Optional[Parts], results: Sequence[LargeResult], codec: str
    ) -> c.SubmitTask:
        """Place a task's arguments in the cluster, which only the task holds from now on; and the results that are
        among them, unless they are there."""
        dependencies = [*task.dependencies, *self.placed_results.place(results)]
        if parts is None:
            return task._replace(dependencies=dependencies)
        arguments_id = self.send_object(parts, "", m.ObjectKind.ARGUMENTS, codec)
        return task._replace(dependencies=[arguments_id, *dependencies], arguments_bytes=parts_size(parts))

    def _place_result(self, parts: Parts) -> int:
        return self.send_object(parts, "", m.ObjectKind.ARGUMENTS)

    def _has_content(self, object_id: int, parts: Parts) -> bool:
        kept = self._kept.get(object_id)
        return kept is not None and kept.size == parts_size(parts) and has_parts(kept.content, parts)

    def _let_go(self, object_ids: List[int]) -> None:
        self.post(c.LetGo(object_ids))

    def delete_object(self, object_id: int) -> None:
        """Release an object; it lives on while unfinished tasks need it."""
        self.post(c.LetGo([object_id]))

    def release_value(self, object_id: int) -> None:
        """Invalidate the reference to a value; its object lives on while unfinished tasks need it."""
        self.value_objects.discard(object_id)
        self.delete_object(object_id)

    def kept_object(self, object_id: int) -> Optional[KeptObject]:
        """An object of this client, while it is needed."""
        return self._kept.get(object_id)

    def ask_to_cancel(self, futures: Iterable[AnyFuture]) -> None:
        """Request the cancellation of tasks that have not started, without waiting."""
        self.post(c.Cancel(list(futures), False))

    # Ending ---------------------------------------------------------------------------------------------------------

    def _start_leaving(self) -> None:
        if self.io.closed_because is None:
            self.io.closed_because = DisconnectedError("this client is disconnected: make a new Client")
        self.io.mailbox.room = CLOSED
        self.io.is_leaving = True

    def abandon(self) -> None:
        """The last reference to this client is gone: leave at the next heartbeat.

        It has no unfinished futures, because these refer to it. Called by the garbage collector, at any moment in any
        thread.
        """
        self._is_abandoned = True

    def _on_heartbeat(self) -> None:
        """Periodic checks. I/O thread."""
        self.functions.forget_dead()
        self.code.delete_unneeded()
        self.placed_results.let_go_unused()
        if self._is_abandoned and not self.value_objects:  # object references may still be in use
            self._start_leaving()

    def after_fork_in_child(self) -> None:
        """In a fork of the client's process: leave everything to the parent, send nothing, wait for no lock that a
        thread of the parent held, and end everything that would never end here.
        """
        self.io.after_fork_in_child(
            DisconnectedError(
                "this client belongs to the process that made it, and this one is a fork of that: make a new Client"
                " here"
            )
        )
        self.code.after_fork_in_child()
        self.functions.after_fork_in_child()


class ClientShell(BaseShell):
    """The running part of a client that threads use.

    Parameters:
        timeout_seconds: how long to try to reconnect.
        connect_timeout_seconds: how long to wait for the first one.
        serving: how it serves workers.

    Raises SchedulerUnreachableError, NotASchedulerError, ProtocolVersionError, SchedulerRefusedError.
    """

    io: IoThread

    def __init__(
        self,
        credentials: Credentials,
        serializer: Optional[Serializer],
        timeout_seconds: float,
        connect_timeout_seconds: float,
        heartbeat_interval_seconds: float,
        code_sources: Sequence[CodeSource] = (),
        serving: ServingOptions = NOT_SERVING,
    ) -> None:
        self._serving = serving
        super().__init__(serializer, credentials.address)
        deferred = DeferredSender(lambda content: self.send_object([content], ""), lambda each: self.post(each))
        settings = client_settings(timeout_seconds, connect_timeout_seconds, heartbeat_interval_seconds)
        self.io = self._make_io(credentials, settings, deferred.send)
        self.mailbox = self.io.mailbox
        self.commands = self.mailbox.commands
        self.post = self.mailbox.post
        self.output = self.io.output
        self.condition = self.io.settling.condition
        self._make_registries(code_sources)
        self.io.start()

    def _make_io(
        self, credentials: Credentials, settings: SessionSettings, send_deferred: Callable[[DeferredTask], None]
    ) -> IoThread:
        hello, beat = client_hello(), self._on_heartbeat
        return IoThread(credentials, hello, settings, self._numbers, beat, send_deferred, self._serving)

    def wait_for_slots(self, timeout_seconds: float) -> int:
        """How many tasks the cluster runs at once; waits until that is known."""
        self.io.first_echo.wait(timeout_seconds)
        return self.core.slots

    # Submitting -----------------------------------------------------------------------------------------------------

    def submit_plain(
        self, future: AnyFuture, function: FunctionKey, payload: bytes, options: Optional[m.TaskOptions]
    ) -> None:
        """Submit a task that consists of its payload only; wait while there is no credit.

        Raises DisconnectedError when the client is closed.
        """
        commands, mailbox = self.commands, self.mailbox
        if options is not None and options.stream_output:
            future._context = copy_context()
        if len(commands) >= mailbox.room:
            self.submit(c.SubmitTask(future, function, payload, options))
            return
        slot = self.io.slot
        task = (future, function, payload, options)
        if slot is not None and not commands:
            was_sent = slot.use(task, commands)
            if was_sent:
                return
            if was_sent is None:
                commands.append(task)
        else:
            commands.append(task)
        if mailbox.sleeping:
            mailbox.wake()

    def submit(self, task: c.SubmitTask) -> None:
        """Submit any task; wait while there is no credit.

        Raises DisconnectedError when the client is closed.
        """
        if task.arguments_bytes or len(self.commands) >= self.mailbox.room:
            self._submit_waiting(task)
            return
        self._keep_context(task)
        self.post(task)

    def _submit_waiting(self, task: c.SubmitTask) -> None:
        """Submit any task; return when it is accepted. Raises DisconnectedError when the client is closed."""
        self._keep_context(task)
        waiter = Waiter()
        self._wait_for(task._replace(asker=waiter), waiter)

    @staticmethod
    def _keep_context(task: c.SubmitTask) -> None:
        if task.options is not None and task.options.stream_output:
            future: Any = task.future
            future._context = copy_context()

    def submit_with_objects(
        self,
        task: c.SubmitTask,
        parts: Optional[Parts],
        results: Sequence[LargeResult] = (),
        codec: str = PYTHON_CODEC,
    ) -> None:
        """Submit a task that needs objects which are to be placed; wait while there is no credit.

        Parameters:
            parts: its arguments, if they are an object of their own.
            results: of other tasks, which are among its arguments.

        Raises DisconnectedError when the client is closed, ObjectStorageFullError if there is no room for them.
        """
        self.await_room()  # before they take room in the cluster
        if not results:
            self.submit(self._with_objects(task, parts, results, codec))
            return
        with self.placed_results.in_use():
            self._submit_waiting(self._with_objects(task, parts, results, codec))

    def await_room(self) -> None:
        """Return as soon as there is credit for a task. Raises DisconnectedError when the client is closed."""
        waiter = Waiter()
        self._wait_for(c.AwaitRoom(waiter), waiter)

    def _wait_for(self, command: c.Command, waiter: Waiter) -> None:
        self.check_open()
        self.io.waiting.add(waiter)
        try:
            self.post(command)
            if not waiter.wait(SHORT_WAIT_SECONDS):
                with blocking.announced():
                    waiter.wait()
        except BaseException:
            self.post(c.ForgetQuery(waiter))
            raise
        finally:
            self.io.waiting.discard(waiter)
        if waiter.answer is None:
            self.check_open()

    def was_refused(self, future: AnyFuture) -> bool:
        """Whether a submitted task was not accepted, because its function had been released before."""
        self.await_number(future)
        return future._task_id == REFUSED

    def await_number(self, future: AnyFuture) -> None:
        """Return as soon as a future has its number, or can no longer get one."""
        if future._task_id == NOT_NUMBERED and self.io.closed_because is None:
            self.flush(None)

    def flush(self, timeout_seconds: Optional[float]) -> None:
        """Return as soon as all earlier commands of this thread have been processed."""
        waiter = Waiter()
        self.io.waiting.add(waiter)
        try:
            self.post(c.Barrier(waiter))
            waiter.wait(timeout_seconds)
        finally:
            self.io.waiting.discard(waiter)

    # Cancelling -----------------------------------------------------------------------------------------------------

    def await_callbacks(self) -> None:
        """Return when the callbacks of all futures that are done have run."""
        self.flush(None)  # after it, all of them have been notified
        if isinstance(self.io.settling, Settling):
            self.io.settling.await_callbacks()

    def cancel(self, future: AnyFuture, timeout_seconds: float, force: bool) -> bool:
        """Request a task's cancellation and wait for the answer; returns whether the future is now cancelled.

        With force, a missing answer means that it is cancelled here, and that its later outcome is ignored.
        """
        waiter = CancelWaiter()
        add_waiter(future, waiter)
        try:
            self.post(c.Cancel([future], force))
            is_answered = _await_answer(future, waiter, time.monotonic() + timeout_seconds, force)
        finally:
            forget_waiter(future, waiter)
        if is_answered or not force:
            return future.cancelled()
        self.give_up([future])
        return future.cancelled()

    def give_up(self, futures: Sequence[AnyFuture]) -> None:
        """Cancel futures here, unless they have an outcome."""
        self.post(c.GiveUp(futures))
        self.flush(MAXIMUM_DEFERRED_CANCEL_SECONDS)

    def cancel_unfinished(self, timeout_seconds: float) -> int:
        """Cancel all unfinished tasks; returns how many were cancelled that had no cancellation request before.

        A task that has ended on its worker keeps its outcome: it is on its way here, and arrives before the answer.
        """
        if self.io.closed_because is not None:
            return 0
        asker = Waiter()
        self.io.waiting.add(asker)
        try:
            self.post(c.CancelAll(asker))
            asker.wait()
        finally:
            self.io.waiting.discard(asker)
        futures: List[Any] = asker.answer or []
        deadline = time.monotonic() + (timeout_seconds if self.is_connected else 0.0)
        rest = [future for future in futures if not self._is_answered(future, deadline)]
        if rest:
            self.give_up(rest)
        return sum(future.cancelled() and not future._is_unwanted for future in futures)

    def _is_answered(self, future: AnyFuture, deadline: float) -> bool:
        waiter = CancelWaiter()
        add_waiter(future, waiter)
        try:
            return _await_answer(future, waiter, deadline, force=True)
        finally:
            forget_waiter(future, waiter)

    def stop(self, futures: Sequence[AnyFuture]) -> None:
        """Cancel tasks, running ones included, without waiting: the futures are cancelled, unless they have an
        outcome."""
        self.post(c.Cancel(futures, True))
        self.post(c.GiveUp(futures))

    def clear(self) -> None:
        """Cancel all unfinished tasks and release all objects except functions."""
        self.check_open()
        objects = sorted(self.value_objects)
        self.post(c.Clear(objects))
        self.value_objects.difference_update(objects)
        self.flush(None)

    # Queries --------------------------------------------------------------------------------------------------------

    def ask(self, query: m.Member, timeout_seconds: float) -> Optional[Any]:
        """Send the scheduler a query; returns its answer, or None if it does not answer in time.

        Raises DisconnectedError when the client is closed.
        """
        self.check_open()
        waiter = Waiter()
        return self._answer(c.Ask(query, waiter), waiter, timeout_seconds)

    def ask_where(self, future: AnyFuture, timeout_seconds: float) -> Optional[Any]:
        """The answer to `core.commands.Explain`. Raises TimeoutError if the scheduler does not answer in time."""
        waiter = Waiter()
        return self._answer(c.Explain(future, waiter), waiter, timeout_seconds, TimeoutError())

    def _answer(
        self, command: c.Command, waiter: Waiter, timeout_seconds: float, otherwise: Optional[Any] = None
    ) -> Optional[Any]:
        is_answered = False
        self.io.waiting.add(waiter)
        try:
            self.post(command)
            is_answered = waiter.wait(timeout_seconds)
        finally:
            self.io.waiting.discard(waiter)
            if not is_answered:
                self.post(c.ForgetQuery(waiter))
        return waiter.answer if is_answered else otherwise

    # Ending ---------------------------------------------------------------------------------------------------------

    def start_closing(self) -> None:
        """Leave the scheduler soon: `close` waits for that."""
        self._start_leaving()
        self.mailbox.wake()

    def close(self) -> None:
        """Leave the scheduler; all unfinished futures are cancelled. Idempotent."""
        self.start_closing()
        self.io.join()


def _await_answer(future: AnyFuture, waiter: CancelWaiter, deadline: float, force: bool) -> bool:
    """Wait until a future is done or its cancellation was answered; returns whether either happened.

    If a task ends while it is being stopped, the answer is "running", and its outcome follows.
    """
    while not future.done():
        outcome = future._cancel_outcome
        if outcome is not None and not (force and outcome == m.CancelOutcome.RUNNING):
            future._cancel_outcome = None
            return True
        remaining_seconds = deadline - time.monotonic()
        if remaining_seconds <= 0:
            future._cancel_outcome = None
            return outcome is not None and not force
        waiter.wait(remaining_seconds)
    future._cancel_outcome = None
    return True
