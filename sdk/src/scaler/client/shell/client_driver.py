"""What drives a client's core, session and connection, whether a thread waits (`io_thread`) or an event loop does.

              ┌─────────────────────── turn ────────────────────────┐
    wait ──▶ take commands ──▶ core ◀── session ◀── receive messages │
      ▲                          │                                   │
      └───── perform effects: send, settle futures, answer ──────────┘

Rules:
- It waits for nothing, makes no thread and takes no lock: its subclass waits, and calls `_turn` when there is something
  to do.
- The time that is judged is taken before reading: after a stop of this process, what waits is heard first.
- It runs no user code. What may be user's, such as loading results, callbacks, handlers of log records, and showing
  output, is done by `settling`, `output` and `_warn` of the subclass.
- One thread at a time calls it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import time
from abc import ABC, abstractmethod
from contextvars import Context
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Set, Union

from scaler.client.core import effects as e
from scaler.client.core.client_objects import missing
from scaler.client.core.commands import refused
from scaler.client.core.handles import Asker
from scaler.client.shell.client_failures import abandon_recording, end_recording, error_of, make_core, text_of_failure
from scaler.client.shell.client_object_files import ClientObjectFiles, read
from scaler.client.shell.data_service.client_serving import ClientServing
from scaler.client.shell.future_internals import set_attribute
from scaler.client.shell.lone_tasks import plain_command
from scaler.client.shell.mailbox import CLOSED
from scaler.client.shell.notices import Notices
from scaler.client.shell.resuming_link import ResumingLink
from scaler.client.shell.transport import Transport
from scaler.exceptions import ClientFailedError, ClientShutdownException, DisconnectedError
from scaler.values.code_notes import NOTICE_STREAM
from scaler_protocol.session.effects import (
    Connect,
    Disconnect,
    EndCause,
    Ended,
    Interrupted,
    Opened,
    SessionEffect,
    StopConnecting,
    Transmit,
)
from scaler_protocol.session.peer_session import PeerSession, SessionSettings
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import decode
from scaler_protocol.wire.errors import MalformedMessageError

STACK_STREAM = 3  # of a TaskLog: where a task was when it was cancelled

logger = logging.getLogger("scaler")


class Commands(Protocol):
    """Where users post commands: `mailbox.Mailbox` says what the methods do."""

    room: int
    commands: Deque[Any]

    def take(self) -> List[Any]: ...

    def close(self) -> None: ...

    def close_pipe(self) -> None: ...

    def after_fork_in_child(self) -> None: ...


class Outcomes(Protocol):
    """Gives futures their outcomes: `settling.Settling` says what the methods do."""

    def results(self, futures: Sequence[Optional[Any]], payload: bytes, sizes: Sequence[int]) -> None: ...

    def outcomes(self, outcomes: Sequence[e.Outcome]) -> None: ...

    def cancelled(self, futures: Sequence[Any]) -> None: ...

    def failed(self, futures: Sequence[Any], error: Exception) -> None: ...

    def failed_after(self, future: Any, failed: Any) -> None: ...

    def cancel_answered(self, future: Any, outcome: int) -> None: ...

    def notify(self) -> None: ...

    def unfinished(self, known: Mapping[int, Any]) -> Sequence[Any]: ...

    def close(self) -> None: ...

    def after_fork_in_child(self, futures: Sequence[Any], error: Exception) -> None: ...


class Output(Protocol):
    """Shows what tasks print."""

    def on_task_log(self, message: m.TaskLog, context: Optional[Context] = None) -> None: ...

    def close(self) -> None: ...


class ClientDriver(ABC):
    """Parameters:
    hello: introduces this client.
    settings: of its session.
    numbers: yields a new number for each object.
    on_heartbeat: called at each heartbeat, for periodic checks.
    send_deferred: sends a task that waited here.
    serving: serves workers.
    """

    transport: Transport
    mailbox: Commands
    settling: Outcomes
    output: Output
    direct_bytes: int

    def __init__(
        self,
        address: str,
        hello: m.Hello,
        settings: SessionSettings,
        numbers: Iterator[int],
        on_heartbeat: Callable[[], None],
        send_deferred: Callable[[Any], None],
        serving: ClientServing,
    ) -> None:
        self.serving, self._hello = serving, hello
        self.address = address
        self.closed_because: Optional[Exception] = None
        self.is_leaving = False
        self.waiting: Set[Asker] = set()  # users that wait for as long as it takes
        self._settings = settings
        self._numbers = numbers
        self._notices = Notices()
        self._on_heartbeat = on_heartbeat
        self._send_deferred = send_deferred
        self._is_over = False
        self._failure: Optional[Exception] = None  # a bug of ours that has ended this client
        self._lost_because = ""
        self._was_silent = False  # the session was lost because the scheduler was silent
        self._connect_error: Optional[OSError] = None
        self._has_failed = False  # the last attempt to connect that has come to its end
        self._unread: List[List[bytes]] = []  # messages that arrived together with the first Welcome
        self._session_effects: List[SessionEffect] = []
        self._session = PeerSession(hello, settings, self._session_effects, self._heartbeat, random.random)
        self._link = ResumingLink(self, self._session, self._on_frames)

    # The first connection -------------------------------------------------------------------------------------------

    def _on_first_welcome(self, welcome: m.Welcome) -> None:
        """The client is connected: from now on it has a core."""
        self.welcome = welcome = self.serving.agreed(welcome)
        self.files = ClientObjectFiles(welcome)
        self.core = make_core(welcome, self._numbers, self.address, self.direct_bytes)
        self.serving.serve(self.core.objects)
        settling = self.settling
        self._performers: Dict[type, Callable[[Any], None]] = {
            e.Send: lambda effect: self.transport.send(*effect),
            e.PlaceObject: self._place_object,
            e.SendChunk: self._send_chunk,
            e.DiscardObject: lambda effect: self.files.discard(effect.kept.content),
            e.FollowToDisk: lambda effect: self.files.follow_to_disk(effect.kept.content, effect.object_id),
            e.OpenResult: self._open_result,
            e.SettleResults: lambda effect: settling.results(*effect),
            e.SettleOutcomes: lambda effect: settling.outcomes(effect.outcomes),
            e.Cancelled: lambda effect: settling.cancelled(effect.futures),
            e.Failed: lambda effect: settling.failed(effect.futures, error_of(effect.futures, effect.error)),
            e.FailedAfter: lambda effect: settling.failed_after(effect.future, effect.failed),
            e.CancelAnswered: lambda effect: settling.cancel_answered(effect.future, effect.outcome),
            e.NoteStack: _note_stack,
            e.SendDeferred: lambda effect: self._send_deferred(effect.task),
            e.Tell: lambda effect: effect.asker.put(effect.answer),
            e.Warn: lambda effect: self._warn(effect.text),
        }
        self.mailbox.room = self.core.room

    def _perform_first(self) -> Optional[Union[m.Welcome, Ended]]:
        """Perform the session's effects until it has begun, or there will be none.

        Raises the error of a refusal.
        """
        while self._session_effects:
            effect = self._session_effects.pop(0)
            if isinstance(effect, Opened):
                return effect.welcome
            if isinstance(effect, Ended):
                return effect
            if isinstance(effect, Interrupted) and effect.refusal is not None:
                raise self.transport.refusal_error(effect.refusal)
            self._perform_session(effect)
        return None

    def _hear_first(self) -> None:
        """Finish connecting, or receive. Raises the error of a handshake that would fail again."""
        if self.transport.is_connecting:
            self._finish_connecting()
            return
        try:
            received = self.transport.receive()
            for position, (header, *_) in enumerate(received, start=1):
                message = decode(header)
                self._link.on_message(time.monotonic(), message)
                self._session.on_message(time.monotonic(), message)
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

    @abstractmethod
    def _take_commands(self) -> None:
        """Pass the commands that have gathered to the core."""

    def _hear_unread(self) -> None:
        """Process what arrived together with the first Welcome."""
        for header, *payload in self._unread:
            self._on_frames(time.monotonic(), header, payload[0] if payload else b"")
        self._unread = []

    def _turn(self, now: float, is_readable: bool) -> None:
        """Do what there is to do.

        Parameters:
            now: when the wait for it ended, or before.
            is_readable: whether to receive, or to finish connecting.
        """
        self._take_commands()  # tasks before their results
        if is_readable:
            self._receive()
        self._link.turn(now)
        if now >= self._session.next_time:
            self._session.on_time(now)
        self.serving.on_time(now)
        if self.is_leaving and not self.core.is_closed:
            self._leave()
        self._perform()
        self._link.read_on()

    @property
    def _next_time(self) -> float:
        """When a turn is due at the latest."""
        return min(self._session.next_time, self._link.next_time, self.serving.next_time)

    def _leave(self) -> None:
        self.core.on_leaving()
        self._perform()  # send earlier messages first
        self._session.leave(time.monotonic())

    def _publish_room(self) -> None:
        self.mailbox.room = self.core.room if self.closed_because is None else CLOSED

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
        if self.transport.has_heard:
            self._link.on_heard(now)
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
            self._link.on_message(now, message)
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
                self.output.on_task_log(message, getattr(self.core.futures.get(message.id), "_context", None))
            return
        self.core.on_message(message, payload)
        if isinstance(message, (m.Ticket, m.ObjectInstruction)):
            self.serving.on_message(message)
        if isinstance(message, m.HeartbeatEcho):
            self._on_echo()

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
            self._link.transmit(effect.message)
        elif isinstance(effect, Connect):
            self._connect()
        elif isinstance(effect, StopConnecting):
            self._on_connect_failed(self.transport.stop_connecting())
        elif isinstance(effect, Disconnect):
            if self.transport.is_connecting and not self._knows_why:
                self._connect_error = self.transport.stop_connecting()
            self._link.end()
            self.transport.drop()
        elif isinstance(effect, Opened):
            self._on_opened(effect.welcome)
        elif isinstance(effect, Interrupted):
            self._on_interrupted(effect)
        else:
            self._on_ended(effect)

    @property
    def _knows_why(self) -> bool:
        """Whether an earlier attempt says more than one that is cut short, perhaps as soon as it has begun."""
        return self._has_failed or self.transport.has_closed

    def _connect(self) -> None:
        if not self._knows_why:
            self._connect_error = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))  # until a better one is known
        try:
            is_connected = self._link.connect() or self.transport.connect()
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
        self._connect_error, self._has_failed = None, False
        self.serving.offer(self._hello, self.transport.local_host)
        self._session.on_connected(time.monotonic())

    def _on_connect_failed(self, error: Exception) -> None:
        self.transport.drop()
        if not isinstance(error, OSError):
            error = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        self._connect_error, self._has_failed = error, True
        self._session.on_connect_failed(time.monotonic(), error.strerror or str(error))

    def _on_opened(self, welcome: m.Welcome) -> None:
        self.welcome = welcome = self.serving.agreed(welcome)
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
        self.serving.on_lost()
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
            text = f"the cluster was shut down ({effect.reason}): start it again, and make a new Client"
            self._end(ClientShutdownException(text))
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
        self.mailbox.room = CLOSED
        self.settling.failed(self.settling.unfinished(self.core.futures), error)
        self.mailbox.close()
        self.settling.notify()
        for waiter in list(self.waiting):
            waiter.put(None)
        logger.critical("Client: %s", error, exc_info=failure)

    def _release(self) -> None:
        """It is over: nothing is held any more."""
        with contextlib.ExitStack() as steps:  # each is done, whatever happens in another
            steps.callback(end_recording, self.core, has_failed=False)
            steps.callback(self.mailbox.close_pipe)
            steps.callback(self.settling.close)
            steps.callback(self.output.close)
            steps.callback(self.files.close)
            steps.callback(self.core.objects.close)
            steps.callback(self._link.close)
            steps.callback(self.serving.close)
            steps.callback(self._close_transport)

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

    @abstractmethod
    def _on_echo(self) -> None:
        """The scheduler has answered a heartbeat, and said how many slots the cluster has."""

    @abstractmethod
    def _warn(self, text: str) -> None:
        """Log a warning of the scheduler."""

    @abstractmethod
    def _close_transport(self) -> None:
        """Close the connection for good."""

    def after_fork_in_child(self, error: Exception) -> None:
        """In a fork of the client's process: leave everything to the parent, and send nothing to the scheduler."""
        self.closed_because = error
        waiting, _ = refused(map(plain_command, list(self.mailbox.commands)))
        self.mailbox.after_fork_in_child()
        self.settling.after_fork_in_child([*list(self.core.futures.values()), *waiting], error)
        self.core.futures.clear()
        self.files.after_fork_in_child()
        self.transport.after_fork_in_child()
        self._link.after_fork_in_child()
        self.serving.after_fork_in_child()
        abandon_recording(self.core)


def _decode(header: bytes) -> m.Message:
    try:
        return decode(header)
    except MemoryError as error:  # nothing has changed yet
        raise MalformedMessageError("there is no memory to read it") from error


def _note_stack(effect: e.NoteStack) -> None:
    set_attribute(effect.future, "_stack", effect.text)
