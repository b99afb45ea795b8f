"""The running part of a client: what is in flight, and the one thread that talks to the scheduler.

    user threads                                   I/O thread
    submit ──▶ Outbox ────(lock)────▶ take ──▶ Transport ──▶ scheduler
    result ◀── futures, one condition ◀──── Outcomes ◀────────┘

Rules:
- `lock` protects what user threads and the I/O thread share on the way out; the condition of `outcomes` all futures'
  states. Whoever holds one of them runs no user code, does not block, and never takes the other.
- Whoever takes from the outbox holds `_sending` until it has sent what it took: that keeps the order. It is the I/O
  thread, but for a task that is alone: its own thread sends it, for a hand-over costs more than the sending.
- The I/O thread runs no user code either: results are loaded by who asks for them, callbacks have their own thread.
- Every future ends: with its outcome, or with an error when the scheduler is lost for good or the client closes.
- Between two connections nothing is sent; what they need to know of each other is in `recovery`.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from array import array
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from scaler.client.archives import CodeSource
from scaler.client.code import ClientCode
from scaler.client.core.credit import Credit
from scaler.client.core.deferring import PREDECESSORS, DeferredTask, Deferring
from scaler.client.core.kept_objects import ObjectChannel
from scaler.client.core.outbox import FunctionKey, GraphRun, Outbox, Outgoing
from scaler.client.core.pending_futures import Outcomes
from scaler.client.core.recovery import Recovery
from scaler.client.explaining import Explaining
from scaler.client.functions import FunctionRegistry
from scaler.client.future import ScalerFuture
from scaler.client.info import Informing
from scaler.client.shell.forks import reset_lock
from scaler.client.shell.notices import Notices
from scaler.client.shell.output import OutputChannel
from scaler.client.shell.transport import Transport, refusal_error
from scaler.client.worker_shutdowns import WorkerShutdowns
from scaler.exceptions import ClientShutdownException, DisconnectedError
from scaler.serializer import Serializer
from scaler.values.code_notes import NOTICE_STREAM
from scaler.values.codecs import CODECS, PYTHON_CODEC
from scaler.values.payload import Buffer, Parts
from scaler_protocol import MalformedMessageError, decode
from scaler_protocol import messages as m

CLOSE_TIMEOUT_SECONDS = 2.0
STACK_STREAM = 3  # of a TaskLog: where a task was when it was cancelled


class ClientCore:
    def __init__(
        self,
        address: str,
        serializer: Optional[Serializer],
        timeout_seconds: float,
        connect_timeout_seconds: float,
        heartbeat_interval_seconds: float,
        code_sources: Sequence[CodeSource] = (),
    ) -> None:
        self.serializer = serializer
        self.lock = threading.Lock()
        self._sending = threading.RLock()  # which knows whose it is
        self.next_task_id = 0
        self.slots = 0  # of the whole cluster, as last heard
        self.closed_because: Optional[Exception] = None
        self.is_asleep = False
        self._timeout_seconds = timeout_seconds
        self._heartbeat_interval_seconds = heartbeat_interval_seconds
        hello = m.Hello(role=m.Role.CLIENT, codecs=list(CODECS), name=f"{os.getpid()}", features=[PREDECESSORS])
        hello.heartbeat_interval_milliseconds = int(heartbeat_interval_seconds * 1000)
        self.address = address
        self._transport = Transport(address, hello, connect_timeout_seconds)
        self.welcome = self._transport.welcome
        self.is_connected = True
        self.objects = ObjectChannel(self.welcome)
        self.output = OutputChannel()
        self.notices = Notices()
        self._outbox = Outbox(self.objects.find)
        self._outbox.set_limits(self.welcome.limits)
        self.credit = Credit(self.lock, self.welcome.limits, self._outbox)
        self.outcomes = Outcomes(self.lock, self.objects, self._transport.send)
        self.futures = self.outcomes.futures
        self.deferring = Deferring(self)
        self._recovery = Recovery(self._transport, self.objects, self._outbox, self.outcomes.needs, timeout_seconds)
        self.code = ClientCode(code_sources, self._send_archive, self.delete_object, self.objects.find)
        self.functions = FunctionRegistry(serializer, self.send_object, self.delete_object, self.code)
        self.value_objects: Set[int] = set()
        self._last_heard = time.monotonic()
        self._next_heartbeat = 0.0
        self._sequence = 0
        self._is_closing = self._is_abandoned = False
        self._is_disconnected = threading.Event()
        self._shutdown_answer: queue.SimpleQueue[m.ClientShutdownResponse] = queue.SimpleQueue()
        self._first_echo = threading.Event()
        self.explaining = Explaining()
        self.worker_shutdowns = WorkerShutdowns()
        self.informing = Informing()
        self._reactions: Dict[type, Callable[..., None]] = {
            m.TaskResult: self._on_task_result,
            m.TaskEcho: lambda message, payload: self.credit.on_task_echo(message),
            m.TaskCancelConfirm: lambda message, payload: self.outcomes.on_cancel_confirm(message),
            m.TaskLog: lambda message, payload: self._on_task_log(message),
            m.HeartbeatEcho: lambda message, payload: self._on_heartbeat_echo(message),
            m.Explanation: lambda message, payload: self.explaining.on_explanation(message),
            m.Info: lambda message, payload: self.informing.on_info(message),
            # SCL-SES-014
            m.Heartbeat: lambda message, payload: self._transport.send(m.HeartbeatEcho(sequence=message.sequence)),
            m.ObjectInstruction: lambda message, payload: self.objects.on_instruction(message, self.lock),
            m.ObjectRequest: lambda message, payload: self.objects.on_request(message, self._transport.send),
            m.ObjectResponse: self.outcomes.on_object_response,
            m.Refusal: lambda message, payload: self._on_refusal(message),
            m.DisconnectRequest: lambda message, payload: self._on_disconnect_request(message),
            m.DisconnectResponse: lambda message, payload: self._is_disconnected.set(),
            m.WorkerShutdownResponse: lambda message, payload: self.worker_shutdowns.on_response(message),
            m.ClientShutdownResponse: lambda message, payload: self._shutdown_answer.put(message),
        }
        self._thread = threading.Thread(target=self._run, name="scaler-client", daemon=True)
        self._thread.start()

    # For user threads; `lock` is held where it says so --------------------------------------------------------------

    def check_open(self) -> None:
        """Raise what ended this client, if something has."""
        if self.closed_because is not None:
            raise DisconnectedError(str(self.closed_because))

    def submit(
        self,
        function: FunctionKey,
        payload: bytes,
        dependencies: Sequence[int],
        future: ScalerFuture,
        options: Optional[m.TaskOptions] = None,
    ) -> None:
        """Give the future its id and queue its task; wait while the scheduler takes no more. The lock is held.

        Parameters:
            dependencies: ids of objects; TaskNeeds: and what it needs of other tasks.

        Raises DisconnectedError when the client's end ends such a wait.
        """
        if self.next_task_id >= self.credit.look_at:
            self.credit.await_room(self)
        is_alone = not self.futures and self.is_connected
        task_id = future._task_id = self.next_task_id
        try:
            # SCL-CLT-001
            self.next_task_id = task_id + 1
            self.futures[task_id] = future
            if dependencies:
                self.outcomes.needs[task_id] = self.objects.need(dependencies)
            future._source = self._outbox.add_task(function, task_id, payload, dependencies, options)
            if is_alone and self._send_at_once():
                return
        except BaseException:
            self._forget(task_id)
            raise
        if self.is_asleep:
            self.wake()

    def number_apart(self, future: ScalerFuture) -> None:
        """Give a future the id of a task that no scheduler knows. The lock is held."""
        future._task_id = self.next_task_id
        self.next_task_id += 1
        self._outbox.leave_out_id()
        self.futures[future.task_id] = future

    def _forget(self, task_id: int) -> None:
        """Ctrl-C came while a task was submitted: nobody has its future. The lock is held."""
        self.next_task_id = task_id + 1
        self._outbox.forget(task_id)
        self.futures.pop(task_id, None)
        self.objects.release(self.outcomes.needs.pop(task_id, ()))
        if self.is_asleep:
            self.wake()  # what was added before has not been sent yet

    def _send_at_once(self) -> bool:
        """Send what there is in the thread that submits; whether all has left. The lock is held.

        Ctrl-C may come anywhere in here. When nobody can know what was sent, the session ends: the next one has it all.
        """
        is_whole = True
        try:
            if not self._sending.acquire(blocking=False):
                return False
            is_whole = False
            self._send_all(self._outbox.take())
            is_whole = True
            return not self._transport.has_unsent
        finally:
            if self._sending._is_owned():  # type: ignore[attr-defined]
                if not is_whole:
                    self._transport.break_off()
                self._sending.release()

    def submit_graph(self, run: GraphRun, dependencies: Iterable[int], targets: Mapping[int, ScalerFuture]) -> None:
        """Number the tasks of a graph, and queue it. The lock is held.

        Parameters:
            dependencies: the objects that some task needs.
            targets: futures by position.
        """
        first = run.first_id = self.next_task_id
        self.next_task_id += len(run)
        needs = self.objects.need(dependencies, len(targets))
        for position in sorted(targets):
            future = targets[position]
            task_id = future._task_id = first + position
            future._source = run
            self.futures[task_id] = future
            if needs:
                self.outcomes.needs[task_id] = needs
        self._outbox.add_graph(run)
        if self.is_asleep:
            self.wake()

    def hand_over_arguments(self, object_id: int, size: int) -> None:
        """An object is held by the task alone from now on, whose arguments it is. The lock is held."""
        self._outbox.count_arguments(size)
        self.credit.look_at = 0
        self._delete_objects([object_id])

    def send(self, message: m.Member, payload: Tuple[Buffer, ...] = ()) -> None:
        """Queue any other message. The lock is held."""
        self._outbox.add(message, payload)
        if self.is_asleep:
            self.wake()

    def _send_all(self, outgoing: List[Outgoing]) -> None:
        for item in outgoing:
            self._transport.send(*item.message(self.objects.wire_id))

    def wake(self) -> None:
        self.is_asleep = False
        self._transport.wake()

    def send_object(
        self, parts: Parts, name: str, kind: m.ObjectKind = m.ObjectKind.FUNCTION, codec: str = PYTHON_CODEC
    ) -> int:
        """Place an object in the cluster and return its id. Writing a large one takes time: without the lock."""
        kept = self.objects.store(parts, name, kind, codec)
        with self.lock:
            self.check_open()
            self.objects.hold(kept)
            if self.is_connected:  # else the next session begins with it
                # SCL-CLT-006
                self.send(*self.objects.announcement(kept))
        return kept.object_id

    def _send_archive(self, parts: Parts, name: str) -> int:
        return self.send_object(parts, name, m.ObjectKind.VALUE)

    def delete_object(self, object_id: int) -> None:
        """Let go of an object; it lives on while unfinished tasks need it."""
        with self.lock:
            self._delete_objects([object_id])

    def _delete_objects(self, object_ids: List[int]) -> None:
        """The lock is held."""
        for object_id in object_ids:
            self.objects.let_go(object_id)
        ids = array("Q", map(self.objects.wire_id, object_ids))
        self.send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=ids))

    def cancel(self, future: ScalerFuture, timeout_seconds: float, force: bool) -> bool:
        """Ask for a task's cancellation and wait for the answer; whether the future is cancelled now.

        By force, no answer in time means that it is cancelled here, and that whatever is heard of it is ignored.
        Without a scheduler nobody runs the task, nor ever will: it is cancelled at once. So is one that waits here.
        """
        is_ours = False
        with self.lock:
            if self.closed_because is None:
                future._is_cancel_asked = True
                is_here = not self.is_connected or type(future._source) is DeferredTask
                is_ours = is_here and self.futures.pop(future.task_id, None) is not None
                if not is_ours:
                    self.send(m.TaskCancel(ids=array("Q", [future.task_id]), force=force))
        if is_ours:
            self.outcomes.settle([future], CANCELLED_AND_NOTIFIED, None)
        return self.outcomes.await_cancel(future, timeout_seconds, force)

    def cancel_unfinished(self, timeout_seconds: float) -> int:
        """Cancel all unfinished tasks; how many were cancelled that nobody had asked to cancel before.

        A task that has ended on its worker keeps its outcome: it is on its way here, and arrives before the answer.
        """
        with self.lock:
            if self.closed_because is not None or not self.futures:
                return 0
            futures = list(self.futures.values())
            if self.is_connected:
                self.send(m.TaskCancel(ids=array("Q", [future.task_id for future in futures]), force=True))
            else:
                timeout_seconds = 0.0
        deadline = time.monotonic() + timeout_seconds
        cancelled = 0
        for future in futures:
            is_cancelled = self.outcomes.await_cancel(future, max(0.0, deadline - time.monotonic()), force=True)
            cancelled += is_cancelled and not future._is_unwanted
        return cancelled

    def wait_for_slots(self, timeout_seconds: float) -> int:
        """How many tasks the cluster runs at once, after the first word about it."""
        self._first_echo.wait(timeout_seconds)
        return self.slots

    def clear(self) -> None:
        """Cancel all unfinished tasks and let go of all objects but functions."""
        with self.lock:
            self.check_open()
            futures = list(self.futures.values())
            if futures:
                self.send(m.TaskCancel(ids=array("Q", [future.task_id for future in futures]), force=True))
            if self.value_objects:
                self._delete_objects(sorted(self.value_objects))
                self.value_objects.clear()
        # First those that wait here for others, the end of a chain before what it waits for.
        waiting = [future for future in reversed(futures) if type(future._source) is DeferredTask]
        futures = [*waiting, *(future for future in futures if type(future._source) is not DeferredTask)]
        # Taken one by one: Ctrl-C leaves the others where their outcomes will find them.
        taken = (future for future in futures if self.futures.pop(future.task_id, None) is not None)
        self.outcomes.settle(taken, CANCELLED_AND_NOTIFIED, None)

    def ask_shutdown(self, timeout_seconds: float) -> m.ClientShutdownResponse:
        """Ask the scheduler to stop the cluster. Raises queue.Empty when it does not answer in time."""
        with self.lock:
            self.check_open()
            self.send(m.ClientShutdown())
        return self._shutdown_answer.get(timeout=timeout_seconds)

    def close(self) -> None:
        """Leave the scheduler; all unfinished futures are cancelled. Idempotent."""
        with self.lock:
            if self.closed_because is None:
                self.closed_because = DisconnectedError("this client is disconnected: make a new Client")
                self.credit.wake()
                # SCL-SES-019
                self.send(m.DisconnectRequest(reason=m.DisconnectReason.LEAVING))
            is_closing, self._is_closing = self._is_closing, True
            if not is_closing:
                self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def disown(self) -> None:
        """In a fork of the client's process: leave everything to the parent, say nothing to the scheduler, wait for no
        lock that a thread of the parent held, and end what would never end here.
        """
        reset_lock(self.lock)
        reset_lock(self._sending)
        self.closed_because = DisconnectedError(
            "this client belongs to the process that made it, and this one is a fork of that: make a new Client here"
        )
        self._is_closing = True
        self.code.disown()
        self.functions.disown()
        self.objects.disown()
        self.outcomes.disown(self.closed_because)
        self._transport.disown()

    def abandon(self) -> None:
        """Nobody can use this client any more, for nobody has a reference to it: leave, at the next heartbeat.

        Its unfinished futures refer to it, so there are none. Called by the garbage collector, at any moment in any
        thread, so this takes no lock.
        """
        self._is_abandoned = True

    # The I/O thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._turn()
                if self._recovery.lost_because is not None and not self._is_closing:
                    self._reconnect()
            deadline = time.monotonic() + CLOSE_TIMEOUT_SECONDS
            while not self._is_disconnected.is_set() and time.monotonic() < deadline:
                self._turn(deadline - time.monotonic())
        except Exception as error:  # a fault of ours: nobody may wait for ever because of it
            self._fail(DisconnectedError(f"the client's I/O thread failed: {type(error).__name__}: {error}"))
            raise
        finally:
            with self.lock:
                futures = self.outcomes.take_all()
            self.outcomes.settle(futures, CANCELLED_AND_NOTIFIED, None)
            self._transport.close()
            self.objects.close()
            self.output.close()
            self.outcomes.close()

    def _turn(self, timeout_seconds: float = 0.0) -> None:
        """Sleep until there is something to do, take what has arrived, send what has gathered.

        Parameters:
            timeout_seconds: how long to sleep at most while closing; before, it is until the next heartbeat.
        """
        if not self._is_closing:
            timeout_seconds = self._next_heartbeat - time.monotonic()
        if self._transport.wait(timeout_seconds):
            self._receive()
        with self._sending:
            with self.lock:
                outgoing = self._outbox.take()
                self.is_asleep = True  # whoever adds something from now on wakes us
            self._send_all(outgoing)
        now = time.monotonic()
        if now >= self._next_heartbeat and not self._is_closing:
            self._on_timer(now)

    def _receive(self) -> None:
        try:
            received = self._transport.receive()
        except DisconnectedError as error:
            self._on_lost(error)
            return
        self._last_heard = time.monotonic()
        for header, *payload in received:
            # SCL-TRN-004
            self._on_frames(header, payload[0] if payload else b"")
            if self._recovery.lost_because is not None:
                return  # the rest belongs to a session that has ended

    def _on_frames(self, header: bytes, payload: bytes) -> None:
        try:
            message = decode(header)
        except MalformedMessageError as error:
            self._on_unreadable(error)
            return
        reaction = self._reactions.get(type(message))
        # SCL-VER-001
        if reaction is not None:
            try:
                reaction(message, payload)
            except MalformedMessageError as error:
                self._on_unreadable(error)

    def _on_unreadable(self, error: MalformedMessageError) -> None:
        """What cannot be read may have been an outcome: only another session will bring it."""
        # SCL-SEC-010
        self._on_lost(DisconnectedError(f"the scheduler sent bytes that are not a message: {error}"))

    def _on_lost(self, error: Exception) -> None:
        """The session has ended; `_run` goes for another one."""
        self._is_disconnected.set()
        self._recovery.lost_because = error

    def _reconnect(self) -> None:
        with self._sending, self.lock:
            self.is_connected = self.is_asleep = False
            outcomes = self.next_task_id - len(self.futures)
            cancelled = self._recovery.take_cancelled(self.futures)
        self.outcomes.settle(cancelled, CANCELLED_AND_NOTIFIED, None)
        welcome = self._recovery.connect(outcomes, len(self.futures), lambda: not self._is_closing)
        if isinstance(welcome, Exception):
            self._fail(welcome)
            return
        if welcome is None:
            return
        with self._sending, self.lock:
            self.welcome = welcome
            self._outbox.set_limits(welcome.limits)
            self.credit.restart(welcome.limits)
            lost = self._recovery.start_session(welcome, self.futures)
            self._is_disconnected.clear()
            self.is_connected = True
        for future, error in lost:
            self.outcomes.settle([future], FINISHED, error)
        for task in self._recovery.take_deferred():
            self.deferring.defer(task)
        self._last_heard = time.monotonic()
        self._next_heartbeat = 0.0

    def _on_timer(self, now: float) -> None:
        if now - self._last_heard > self._timeout_seconds and self._transport.wait(0.0):
            self._receive()  # it was this process that stood still
        silence_seconds = now - self._last_heard
        # SCL-SES-016
        if silence_seconds > self._timeout_seconds:
            self._fail(
                DisconnectedError(
                    f"no heartbeat from the scheduler at {self._transport.address} for {silence_seconds:.0f} s:"
                    " it is down, or the network is"
                )
            )
        self._next_heartbeat = now + self._heartbeat_interval_seconds
        self._sequence += 1
        self._recovery.on_time(now, self.next_task_id - len(self.futures))
        # SCL-SES-013
        self._transport.send(m.Heartbeat(sequence=self._sequence))
        self.functions.forget_dead()
        self.code.delete_unneeded()
        if self._is_abandoned and not self.value_objects:  # of which others may have references
            self.close()

    # Reactions ------------------------------------------------------------------------------------------------------

    def _on_task_result(self, message: m.TaskResult, payload: bytes) -> None:
        self.outcomes.on_task_result(message, payload)
        given_back, self.outcomes.given_back = self.outcomes.given_back, []
        self.deferring.take_back(given_back)

    def _on_task_log(self, message: m.TaskLog) -> None:
        if message.stream == NOTICE_STREAM:
            self.notices.on_text(message.text)
            return
        if message.stream != STACK_STREAM:
            self.output.on_task_log(message)
            return
        future = self.futures.get(message.id)
        if future is not None:
            future._stack = message.text

    def _on_heartbeat_echo(self, message: m.HeartbeatEcho) -> None:
        self.slots = message.slots
        self._first_echo.set()

    def _on_refusal(self, message: m.Refusal) -> None:
        error = DisconnectedError(str(refusal_error(message, self._transport.address)))
        # SCL-SES-009
        if message.reason == m.RefusalReason.NOT_GREETED:  # it was silent for too long
            self._on_lost(error)
        else:
            self._is_disconnected.set()
            self._fail(error)

    def _on_disconnect_request(self, message: m.DisconnectRequest) -> None:
        # SCL-SES-018, SCL-VER-004
        self._transport.send(m.DisconnectResponse())
        self._is_disconnected.set()
        self._fail(ClientShutdownException(f"the cluster was shut down: {message.message}"))

    def _fail(self, error: Exception) -> None:
        """The session is over: every unfinished future gets the reason, unless this client was leaving anyway."""
        with self.lock:
            if self.closed_because is not None:
                return
            self.closed_because = error
            self.credit.wake()
            futures = self.outcomes.take_all()
            self._is_closing = True
        self.outcomes.settle(futures, FINISHED, error)
