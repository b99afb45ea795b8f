"""The thread that drives a client and owns its core, session and connection.

              ┌──────────────────────── turn ────────────────────────┐
    sleep ──▶ take commands ──▶ core ◀── session ◀── receive messages │
      ▲                          │          │                         │
      └── offer a slot ◀── perform effects: send, settle futures ... ─┘

Rules:
- No other thread uses the core, the session or the connection, except for the first connection, which the thread that
  makes the client waits for before this one starts.
- It never waits for a user thread, and runs no user code: results are loaded by the threads that ask for them;
  callbacks and output have their own threads.
- The time that is judged is taken before reading: after a stop of this process, what waits is heard first.
- It holds `turn_lock` except while it sleeps. Forks take that lock, so that no future is half way from one place to
  another in the copy.
- KeyboardInterrupt does not reach it, because it is not the main thread: it finishes what it has begun.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

from scaler.client.core import effects as e
from scaler.client.core.client_objects import missing
from scaler.client.core.commands import refused
from scaler.client.shell.client_failures import (
    abandon_recording,
    end_recording,
    make_core,
    text_of_failure,
    unfinished_futures,
)
from scaler.client.shell.client_object_files import ClientObjectFiles, read
from scaler.client.shell.lone_tasks import Slot, plain_command, sort_out
from scaler.client.shell.mailbox import CLOSED, Mailbox
from scaler.client.shell.notices import Notices
from scaler.client.shell.output import OutputChannel
from scaler.client.shell.settling import Settling
from scaler.client.shell.transport import LINGER_SECONDS, Transport
from scaler.client.shell.waiting import Gate, Waiter
from scaler.exceptions import ClientFailedError, ClientShutdownException, DisconnectedError
from scaler.values.code_notes import NOTICE_STREAM
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.session.effects import (
    Connect,
    Disconnect,
    EndCause,
    Ended,
    Interrupted,
    Opened,
    SessionEffect,
    Transmit,
)
from scaler_protocol.session.peer_session import PeerSession, SessionSettings
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import decode
from scaler_protocol.wire.errors import MalformedMessageError

STACK_STREAM = 3  # of a TaskLog: where a task was when it was cancelled
CLOSE_TIMEOUT_SECONDS = 2.0

logger = logging.getLogger("scaler")


class IoThread:
    """Parameters:
    credentials: for the scheduler, at its address.
    hello: introduces this client.
    settings: of its session.
    numbers: yields a new number for each object.
    on_heartbeat: called at each heartbeat, for periodic checks.
    send_deferred: sends a task that waited here.

    Raises SchedulerUnreachableError, NotASchedulerError, AuthenticationError, ProtocolVersionError,
    SchedulerRefusedError.
    """

    def __init__(
        self,
        credentials: Credentials,
        hello: m.Hello,
        settings: SessionSettings,
        numbers: Iterator[int],
        on_heartbeat: Callable[[], None],
        send_deferred: Callable[[Any], None],
    ) -> None:
        self.address = credentials.address
        self.closed_because: Optional[Exception] = None
        self.slot: Optional[Slot] = None
        self.is_leaving = False
        self.turn_lock = threading.Lock()
        self.waiting: Set[Waiter] = set()  # user threads that wait for as long as it takes
        self.first_echo = Gate()
        self.settling = Settling()
        self.output = OutputChannel()
        self.mailbox = Mailbox(self._refuse)
        self._settings = settings
        self._notices = Notices()
        self._on_heartbeat = on_heartbeat
        self._has_started = False
        self._is_over = False
        self._failure: Optional[Exception] = None  # a bug of ours that has ended this client
        self._lost_because = ""
        self._was_silent = False  # the session was lost because the scheduler was silent
        self._connect_error: Optional[OSError] = None
        self._unread: List[List[bytes]] = []  # messages that arrived together with the first Welcome
        self._session_effects: List[SessionEffect] = []
        with contextlib.ExitStack() as after_error:
            after_error.callback(self.mailbox.close_pipe)
            self.transport = Transport(credentials, self.mailbox.waker)
            after_error.callback(self.transport.drop)
            self._session = PeerSession(hello, settings, self._session_effects, self._heartbeat, random.random)
            self.welcome = self._connect_first()
            self.files = ClientObjectFiles(self.welcome)
            self.core = make_core(self.welcome, numbers, self.address)
            after_error.pop_all()
        self.mailbox.room = self.core.room
        self._performers: Dict[type, Callable[[Any], None]] = {
            e.Send: lambda effect: self.transport.send(*effect),
            e.PlaceObject: self._place_object,
            e.SendChunk: self._send_chunk,
            e.DiscardObject: lambda effect: self.files.discard(effect.kept.content),
            e.FollowToDisk: lambda effect: self.files.follow_to_disk(effect.kept.content, effect.object_id),
            e.OpenResult: self._open_result,
            e.SettleResults: lambda effect: self.settling.results(*effect),
            e.SettleOutcomes: lambda effect: self.settling.outcomes(effect.outcomes),
            e.Cancelled: lambda effect: self.settling.cancelled(effect.futures),
            e.Failed: lambda effect: self.settling.failed(effect.futures, effect.error),
            e.FailedAfter: lambda effect: self.settling.failed_after(effect.future, effect.failed),
            e.CancelAnswered: lambda effect: self.settling.cancel_answered(effect.future, effect.outcome),
            e.NoteStack: _note_stack,
            e.SendDeferred: lambda effect: send_deferred(effect.task),
            e.Tell: lambda effect: effect.asker.put(effect.answer),
            e.Warn: _warn,
        }
        self.thread = threading.Thread(target=self._run, name="scaler-client", daemon=True)

    def start(self) -> None:
        """Begin to take commands. Raises RuntimeError if the system has no room for another thread."""
        try:
            self.thread.start()
        except BaseException:
            self._release()
            raise
        self._has_started = True

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._has_started and threading.current_thread() is not self.thread:
            self.thread.join()

    # The first connection; in the thread that makes the client ------------------------------------------------------

    def _connect_first(self) -> m.Welcome:
        self._session.start(time.monotonic())
        while True:
            welcome = self._perform_first()
            if welcome is not None:
                return welcome
            now = time.monotonic()
            if self.transport.wait(self._session.next_time - now):
                self._hear_first()
            if not self._session.is_open:
                self._session.on_time(now)

    def _perform_first(self) -> Optional[m.Welcome]:
        while self._session_effects:
            effect = self._session_effects.pop(0)
            if isinstance(effect, Opened):
                return effect.welcome
            if isinstance(effect, Interrupted) and effect.refusal is not None:
                raise self.transport.refusal_error(effect.refusal)
            if isinstance(effect, Ended):
                raise self.transport.end_error(effect, self._connect_error)
            self._perform_session(effect)
        return None

    def _hear_first(self) -> None:
        if self.transport.is_connecting:
            self._finish_connecting()
            return
        try:
            received = self.transport.receive()
            for position, (header, *_) in enumerate(received, start=1):
                self._session.on_message(time.monotonic(), decode(header))
                if self._session.is_open:
                    self._unread = received[position:]
                    return
        except (DisconnectedError, MalformedMessageError) as error:
            why = error.__cause__ if isinstance(error, DisconnectedError) else error
            failure = self.transport.handshake_error(why)
            if failure is not None:
                raise failure from error
            self._session.on_disconnected(time.monotonic(), str(error))

    # Turns ----------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self.turn_lock.acquire()
        try:
            for header, *payload in self._unread:
                self._on_frames(time.monotonic(), header, payload[0] if payload else b"")
            while not self._is_over:
                self._turn()
            self._end(None)
        except Exception as failure:  # a bug of ours must not make users wait for ever
            self._fail(failure)
        finally:
            self._release()
            self.turn_lock.release()

    def _turn(self) -> None:
        """Sleep until there is something to do, and do it."""
        now = time.monotonic()
        is_readable = self._sleep(now)
        self._take_commands()  # tasks before their results
        if is_readable:
            self._receive()
        if now >= self._session.next_time:
            self._session.on_time(now)
        if self.is_leaving and not self.core.is_closed:
            self._leave()
        self._perform()

    def _sleep(self, now: float) -> bool:
        """Sleep until there is something to do; whether to receive, or to finish connecting."""
        timeout_seconds = self._session.next_time - now
        self._publish_room()
        if timeout_seconds > 0 and self.mailbox.room > 0:
            self._offer_slot()
        is_idle = self.mailbox.sleep()
        if not is_idle or self._session_effects or (self.is_leaving and not self.core.is_closed):
            timeout_seconds = 0.0
        # At the very end: a thread that is woken takes the interpreter lock, which this thread no longer needs.
        self.settling.notify()
        self.files.remove_discarded()
        self.turn_lock.release()
        try:
            is_readable = self.transport.wait(timeout_seconds)
        finally:
            self.turn_lock.acquire()
        self.mailbox.awake()
        return is_readable

    def _take_commands(self) -> None:
        slot, self.slot = self.slot, None
        was_claimed = slot is not None and slot.withdraw()
        commands = self.mailbox.take()
        if not commands:
            return
        try:
            lone, commands = sort_out(commands, was_claimed)
        except TimeoutError:
            self._session.interrupt(time.monotonic(), "it is unknown what was sent")
            self._perform()  # the next session gets all of them
            lone, commands = None, list(map(plain_command, commands))
        if lone is not None:
            self.core.on_sent(lone.task)
            if lone.sent[0] < len(lone.data):
                self.transport.send_rest(memoryview(lone.data)[lone.sent[0] :])
        if commands:
            self.core.apply(commands)

    def _publish_room(self) -> None:
        self.mailbox.room = self.core.room if self.closed_because is None else CLOSED

    def _offer_slot(self) -> None:
        """Let a user thread send its next task by itself, if there is nothing else to do."""
        core = self.core
        if core.is_idle and not self.mailbox.commands and self._session.is_open:
            sender = self.transport.task_sender()
            if sender is not None:
                self.slot = Slot(core.next_task_id, sender, core.objects)

    def _leave(self) -> None:
        self.core.on_leaving()
        self._perform()  # send earlier messages first
        self._session.leave(time.monotonic())

    # The scheduler --------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        if self.transport.is_connecting:
            self._finish_connecting()
            return
        try:
            received = self.transport.receive()
        except DisconnectedError as error:
            self._session.on_disconnected(time.monotonic(), str(error))
            return
        now = time.monotonic()
        for header, *payload in received:
            # SCL-TRN-004
            self._on_frames(now, header, payload[0] if payload else b"")
            if not self._session.is_open and self._session_effects:
                self._perform()
                if not self._session.is_open:
                    return  # the rest belongs to a session that has ended

    def _on_frames(self, now: float, header: bytes, payload: bytes) -> None:
        try:
            message = _decode(header)
            if self._session.on_message(now, message):
                self._on_message(now, message, payload)
        except MalformedMessageError as error:
            # What cannot be read may have been an outcome: it is received only in a new session.
            # SCL-SEC-010
            self._session.interrupt(now, f"the scheduler sent bytes that cannot be read as a message: {error}")
        if self._session_effects:
            self._perform()

    def _on_message(self, now: float, message: Any, payload: bytes) -> None:
        if isinstance(message, m.TaskResult):
            self._session.made_progress(now)
        elif isinstance(message, m.TaskLog) and message.stream != STACK_STREAM:
            if message.stream == NOTICE_STREAM:
                self._notices.on_text(message.text)
            else:
                self.output.on_task_log(message)
            return
        self.core.on_message(message, payload)
        if isinstance(message, m.HeartbeatEcho):
            self.first_echo.open()

    def _heartbeat(self, now: float) -> m.Heartbeat:
        self._on_heartbeat()
        return m.Heartbeat()

    # Performing -----------------------------------------------------------------------------------------------------

    def _perform(self) -> None:
        """Perform the effects of core and session until there are no more."""
        while True:
            effects = self.core.take_effects()
            for effect in effects:
                self._performers[type(effect)](effect)
            if not effects:
                if not self._session_effects:
                    return
                self._perform_session(self._session_effects.pop(0))

    def _perform_session(self, effect: SessionEffect) -> None:
        if isinstance(effect, Transmit):
            self.transport.send(effect.message)
        elif isinstance(effect, Connect):
            self._connect()
        elif isinstance(effect, Disconnect):
            self.transport.drop()
        elif isinstance(effect, Opened):
            self._on_opened(effect.welcome)
        elif isinstance(effect, Interrupted):
            self._on_interrupted(effect)
        else:
            self._on_ended(effect)

    def _connect(self) -> None:
        if not self.transport.has_closed:
            self._connect_error = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))  # until a better one is known
        try:
            is_connected = self.transport.connect()
        except (OSError, MemoryError) as error:
            self._on_connect_failed(error)
            return
        if is_connected:
            self._on_connected()

    def _finish_connecting(self) -> None:
        try:
            is_connected = self.transport.finish_connecting()
        except (OSError, MemoryError) as error:
            self._on_connect_failed(error)
            return
        if is_connected:
            self._on_connected()

    def _on_connected(self) -> None:
        self._connect_error = None
        self._session.on_connected(time.monotonic())

    def _on_connect_failed(self, error: Exception) -> None:
        self.transport.drop()
        if not isinstance(error, OSError):
            error = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        self._connect_error = error
        self._session.on_connect_failed(time.monotonic(), error.strerror or str(error))

    def _on_opened(self, welcome: m.Welcome) -> None:
        self.welcome = welcome
        self.files.start_session(welcome)
        count = self.core.on_welcome(welcome)
        logger.warning("Client: connected again as session %d, %d tasks were sent again", welcome.session, count)

    def _on_interrupted(self, effect: Interrupted) -> None:
        if not effect.was_open:
            return
        refusal = effect.refusal
        silence_seconds = time.monotonic() - self._session.heard_at
        self._was_silent = silence_seconds >= self._settings.give_up_seconds
        self._lost_because = str(self.transport.refusal_error(refusal)) if refusal is not None else effect.reason
        self.core.on_lost()
        if any(isinstance(each, Ended) for each in self._session_effects):
            return  # it is not tried again
        logger.warning(
            "Client: %s; trying to connect again for %.0f seconds, %d tasks are unfinished",
            self._lost_because,
            max(0.0, self._session.heard_at + self._settings.give_up_seconds - time.monotonic()),
            len(self.core.futures),
        )

    def _on_ended(self, effect: Ended) -> None:
        """No session follows: unfinished futures fail with the reason, unless this client was leaving anyway."""
        self._is_over = True
        if effect.cause is EndCause.LEFT:
            return
        if effect.cause is EndCause.SHUT_DOWN:
            self._end(ClientShutdownException(f"the cluster was shut down: {effect.reason}"))
        elif effect.refusal is not None:
            error = self.transport.refusal_error(effect.refusal)
            self._end(DisconnectedError(str(error) if effect.was_open else f"{self._lost_because}; then {error}"))
        else:
            self._end(DisconnectedError(self._why_given_up(effect.reason)))

    def _why_given_up(self, last_failure: str) -> str:
        silence_seconds = time.monotonic() - self._session.heard_at
        if self._was_silent:
            return (
                f"no heartbeat from the scheduler at {self.address} for {silence_seconds:.0f} s:"
                " it is down, or the network is"
            )
        return (
            f"{self._lost_because}; no scheduler took this client back within {self._settings.give_up_seconds:g} s"
            f" (timeout_seconds), the last attempt ended with: {last_failure}. Start one with"
            f" `scaler_scheduler {self.address}`, then make a new Client"
        )

    def _place_object(self, effect: e.PlaceObject) -> None:
        instruction = effect.instruction
        if self.files.share(effect.kept.content, instruction.ids[0]):
            instruction.storages = bytes([m.ObjectStorage.SHARED])
        self.transport.send(instruction)

    def _send_chunk(self, effect: e.SendChunk) -> None:
        kept, request = effect
        try:
            chunk = read(kept.content, request.offset, request.length)
        except (OSError, MemoryError):
            self.transport.send(missing(request))
            return
        self.transport.send(m.ObjectResponse(id=request.id, offset=request.offset, size=kept.size), (chunk,))

    def _open_result(self, effect: e.OpenResult) -> None:
        content = self.files.open_result(effect.object_id)
        self.core.on_result_opened(effect.object_id, effect.outcome, content)

    # Ending ---------------------------------------------------------------------------------------------------------

    def _end(self, error: Optional[Exception]) -> None:
        """End every future and every wait. May be called more than once."""
        self._is_over = True
        if self.closed_because is None:
            self.closed_because = error or DisconnectedError("this client is disconnected: make a new Client")
        self.mailbox.room = CLOSED
        self._take_commands()
        self.core.on_end(error)
        for effect in self.core.take_effects():
            self._performers[type(effect)](effect)
        self.settling.notify()
        self.files.remove_discarded()
        self.mailbox.close()

    def _fail(self, failure: Exception) -> None:
        """The core, or what performs its effects, has a bug: its state is not trusted any more."""
        self._is_over = True
        kept = end_recording(self.core, has_failed=True)
        error = self.closed_because = self._failure = ClientFailedError(text_of_failure(failure, kept))
        self.slot = None
        self.mailbox.room = CLOSED
        self.settling.failed(unfinished_futures(self.settling.condition, self.core.futures), error)
        self.mailbox.close()
        self.settling.notify()
        for waiter in list(self.waiting):
            waiter.put(None)
        logger.critical("Client: %s", error, exc_info=failure)

    def _release(self) -> None:
        """The thread ends: nothing is held any more."""
        with contextlib.ExitStack() as steps:  # each is done, whatever happens in another
            steps.callback(end_recording, self.core, has_failed=False)
            steps.callback(self.mailbox.close_pipe)
            steps.callback(self.settling.close)
            steps.callback(self.output.close)
            steps.callback(self.files.close)
            steps.callback(self.core.objects.close)
            steps.callback(self.transport.close, LINGER_SECONDS, time.monotonic)

    def _refuse(self, commands: List[Any]) -> None:
        """Commands came too late. Any thread."""
        futures, askers = refused(map(plain_command, commands))
        if futures:
            if self._failure is None:
                self.settling.cancelled(futures)
            else:
                self.settling.failed(futures, self._failure)
            self.settling.notify()
        for asker in askers:
            asker.put(None)

    def after_fork_in_child(self, error: Exception) -> None:
        """In a fork of the client's process: leave everything to the parent, and send nothing to the scheduler."""
        self.closed_because = error
        self.slot = None
        self.turn_lock = threading.Lock()  # taken for the fork, and not to be released here
        waiting, _ = refused(map(plain_command, list(self.mailbox.commands)))
        self.mailbox.after_fork_in_child()
        self.settling.after_fork_in_child([*list(self.core.futures.values()), *waiting], error)
        self.core.futures.clear()
        self.files.after_fork_in_child()
        self.transport.after_fork_in_child()
        abandon_recording(self.core)


def _decode(header: bytes) -> m.Message:
    try:
        return decode(header)
    except MemoryError as error:  # nothing has changed yet
        raise MalformedMessageError("there is no memory to read it") from error


def _note_stack(effect: e.NoteStack) -> None:
    future: Any = effect.future
    future._stack = effect.text


def _warn(effect: e.Warn) -> None:
    """Log handlers are user code, which the I/O thread must not run."""
    thread = threading.Thread(target=logger.warning, args=("%s", effect.text), name="scaler-warning", daemon=True)
    with contextlib.suppress(RuntimeError, MemoryError):  # no room for a thread
        thread.start()
