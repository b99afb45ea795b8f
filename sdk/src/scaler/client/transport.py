"""A client's connection to its scheduler.

Rules:
- Connecting takes a bounded time and ends in a Welcome or in an error that says what is wrong at that address. It can
  be done again when a connection has ended, and be broken off.
- Sending never blocks and never raises: what the scheduler does not take at once waits here, in order. The end of the
  connection is an error of `receive`, and of nothing else.
- Any thread may send; one thread, always the same, does everything else.
"""

from __future__ import annotations

import errno
import os
import platform
import random
import select
import socket
import threading
import time
from typing import Callable, List, Optional, Sequence

from scaler.client.forks import reset_lock
from scaler.exceptions import (
    DisconnectedError,
    NotASchedulerError,
    ProtocolVersionError,
    SchedulerRefusedError,
    SchedulerShuttingDownError,
    SchedulerUnreachableError,
)
from scaler.values.payload import Buffer
from scaler.version import __version__
from scaler_protocol import (
    MAXIMUM_SESSION,
    PROTOCOL_MAJOR,
    PROTOCOL_MINOR_MAX,
    PROTOCOL_MINOR_MIN,
    MalformedMessageError,
    decode,
    encode,
)
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address, resolve, why_foreign, why_not_connected, why_not_greeted
from scaler_protocol.host.connection import Connection, connect_to_local_socket, first_words
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError

LINGER_SECONDS = 1.0
MAXIMUM_MESSAGE_BYTES = 1 << 40  # a client trusts its scheduler
WELCOME_TIMEOUT_SECONDS = 10.0  # of one attempt to come back
FIRST_WORDS_TIMEOUT_SECONDS = 0.5
_ATTEMPT_INTERVAL_SECONDS = 0.05
_MAXIMUM_ATTEMPT_INTERVAL_SECONDS = 1.0
_READABLE = ~select.POLLOUT  # data, the end of the stream, errors


class NotWantedError(Exception):
    """Nobody wants the connection any more that was being made."""


class Transport:
    """A connection.

    Parameters:
        address: of the scheduler.
        hello: who we are; versions are filled in here.
        timeout_seconds: how long to wait for a listener, and for its answer to Hello.

    Raises SchedulerUnreachableError, NotASchedulerError, ProtocolVersionError, SchedulerRefusedError.
    """

    def __init__(self, address: str, hello: m.Hello, timeout_seconds: float) -> None:
        self.address = address
        self._parsed = parse_address(address)
        self._hello = _complete(hello)
        self._connection: Optional[Connection] = None
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._poll = select.poll()
        self._poll.register(self._wake_reader, select.POLLIN)
        self._waits_for_room = False
        self._interval_seconds = _ATTEMPT_INTERVAL_SECONDS  # between attempts to come back
        self._lock = threading.Lock()  # of what the connection has to send
        self._unread: List[List[bytes]] = []  # what came together with the Welcome
        self._is_scheduler = False  # what is connected to, as its name tells
        try:
            self.welcome = self._connect_first(time.monotonic() + timeout_seconds)
        except BaseException:
            self.close()
            raise

    # Connecting -----------------------------------------------------------------------------------------------------

    def _connect_first(self, deadline: float) -> m.Welcome:
        """Somebody who is about to listen at the address is waited for."""
        while True:
            try:
                self._connect(deadline, _always)
                break
            except OSError as error:
                if time.monotonic() + _ATTEMPT_INTERVAL_SECONDS >= deadline:
                    text = f"{why_not_connected(self._parsed, error)}; {self._what_to_do(error)}"
                    raise SchedulerUnreachableError(text) from error
            time.sleep(_ATTEMPT_INTERVAL_SECONDS)
        return self._greet(deadline, _always)

    def _what_to_do(self, error: OSError) -> str:
        if isinstance(error, PermissionError):
            return "run as the user that the scheduler runs as, or let it listen at a tcp:// address"
        if isinstance(error, ConnectionRefusedError) or error.errno == errno.ENOENT:
            return f"start a scheduler there with `scaler_scheduler {self.address}`, or check the address"
        return "check the address, and the firewalls in between"

    def connect_again(self, deadline: float, is_wanted: Callable[[], bool]) -> m.Welcome:
        """Connect anew, with ever longer pauses between attempts, so that a scheduler that starts finds no crowd.

        Parameters:
            deadline: by `time.monotonic()`.
            is_wanted: asked after each `wake`.

        Raises ProtocolVersionError, SchedulerRefusedError, NotWantedError, and SchedulerUnreachableError when the time
        is over, with what the last attempt met.
        """
        self._hello.previous_session = self.welcome.session
        last_error = ""
        while True:
            self.drop()
            pause = self._interval_seconds * random.uniform(0.75, 1.25)
            if time.monotonic() + pause >= deadline:
                raise SchedulerUnreachableError(last_error or "there was no time for an attempt")
            self._pause(pause, is_wanted)
            # SCL-TRN-009
            self._interval_seconds = min(2 * self._interval_seconds, _MAXIMUM_ATTEMPT_INTERVAL_SECONDS)
            attempt_deadline = min(deadline, time.monotonic() + WELCOME_TIMEOUT_SECONDS)
            try:
                self._connect(attempt_deadline, is_wanted)
                self.welcome = self._greet(attempt_deadline, is_wanted)
                return self.welcome
            # SCL-SES-023
            except SchedulerShuttingDownError as error:  # its successor may come
                last_error = str(error)
            # SCL-SES-008
            except (ProtocolVersionError, SchedulerRefusedError):
                raise
            except OSError as error:
                last_error = error.strerror or str(error)

    def came_to_stay(self) -> None:
        """The connection is of use: when it ends, the first attempt to come back is soon."""
        self._interval_seconds = _ATTEMPT_INTERVAL_SECONDS

    def _pause(self, seconds: float, is_wanted: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not is_wanted():
                raise NotWantedError
            self.wait(deadline - time.monotonic())

    def _connect(self, deadline: float, is_wanted: Callable[[], bool]) -> None:
        """Connect to who listens. Raises OSError, NotWantedError."""
        stream = connect_to_local_socket(self._parsed)
        self._is_scheduler = stream is not None
        if stream is None:
            family, target = resolve(self._parsed)
            stream = socket.socket(family, socket.SOCK_STREAM)
            try:
                stream.setblocking(False)
                self._finish_connecting(stream, stream.connect_ex(target), deadline, is_wanted)
            except BaseException:
                stream.close()
                raise
        with self._lock:
            self._connection = Connection(stream, Zmtp("DEALER", MAXIMUM_MESSAGE_BYTES))
        self._poll.register(self._connection.fileno(), select.POLLIN)
        self._waits_for_room = False

    def _finish_connecting(
        self, stream: socket.socket, error_number: int, deadline: float, is_wanted: Callable[[], bool]
    ) -> None:
        if error_number == errno.EINPROGRESS:
            poll = select.poll()
            poll.register(stream, select.POLLOUT)
            poll.register(self._wake_reader, select.POLLIN)
            error_number = errno.ETIMEDOUT
            while time.monotonic() < deadline:
                ready = [descriptor for descriptor, _ in poll.poll(int(1000 * (deadline - time.monotonic())) + 1)]
                if stream.fileno() in ready:
                    error_number = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    break
                if ready:
                    os.read(self._wake_reader, 4096)
                if not is_wanted():
                    raise NotWantedError
        if error_number:
            raise OSError(error_number, os.strerror(error_number))

    def _greet(self, deadline: float, is_wanted: Callable[[], bool]) -> m.Welcome:
        assert self._connection is not None
        try:
            self._connection.start()
            # SCL-SES-001
            self.send(self._hello)
            while True:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise self._silence_error(self._connection.peer_has_spoken)
                if not is_wanted():
                    raise NotWantedError
                if not self.wait(remaining):
                    continue
                received = self._connection.receive()
                for position, (header, *_) in enumerate(received, start=1):
                    answer = decode(header)
                    if isinstance(answer, m.Welcome):
                        # SCL-SES-007
                        if not 0 < answer.session <= MAXIMUM_SESSION:
                            raise MalformedMessageError(
                                f"it grants session {answer.session}, and sessions are from 1 to {MAXIMUM_SESSION}"
                            )
                        self._unread = received[position:]
                        return answer
                    if isinstance(answer, m.Refusal):
                        raise refusal_error(answer, self.address)
        except (ProtocolVersionError, SchedulerRefusedError, SchedulerUnreachableError, NotASchedulerError):
            raise
        except (OSError, ZmtpError, MalformedMessageError) as error:
            raise NotASchedulerError(
                f"the program at {self.address} is not a Scaler scheduler, or speaks an incompatible protocol: {error};"
                " check address and port, and that the scheduler speaks version 1 of the protocol"
            ) from error

    def _silence_error(self, has_spoken: bool) -> ConnectionError:
        """Who took the connection has not said Welcome in time: a scheduler that is busy, or another kind of server."""
        foreign = b"" if has_spoken or self._is_scheduler else first_words(self._parsed, FIRST_WORDS_TIMEOUT_SECONDS)
        if foreign:
            return NotASchedulerError(f"{why_foreign(self._parsed, foreign)}; check the address and the port")
        why = why_not_greeted(self._parsed, has_spoken, self._is_scheduler)
        return SchedulerUnreachableError(f"{why}; try again later, or look at its log")

    # Messages -------------------------------------------------------------------------------------------------------

    def send(self, message: m.Member, payload: Sequence[Buffer] = ()) -> None:
        # SCL-TRN-003
        frames: List[Buffer] = [encode(message)]
        if payload:
            frames.append(payload[0] if len(payload) == 1 else b"".join(payload))
        try:
            with self._lock:
                if self._connection is not None:
                    self._connection.send(frames)
        except OSError:
            pass  # `receive` will say so

    @property
    def has_unsent(self) -> bool:
        """Whether something waits for room, which only `wait` notices."""
        connection = self._connection
        return connection is not None and connection.has_unsent

    def receive(self) -> List[List[bytes]]:
        """The messages that have come, as lists of frames.

        Raises DisconnectedError when the connection has ended.
        """
        connection = self._connection
        if connection is None:
            return []
        if self._unread:
            unread, self._unread = self._unread, []
            return unread
        try:
            with self._lock:  # what is received may ask for an answer
                return connection.receive()
        except (OSError, ZmtpError) as error:
            raise DisconnectedError(
                f"the connection to the scheduler at {self.address} ended ({error}):"
                " the scheduler was stopped, or the network was cut"
            ) from error

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until something arrives, `wake` is called, or the time is over; whether to call `receive`."""
        connection = self._connection
        if self._unread:
            return True
        if connection is not None and connection.has_unsent is not self._waits_for_room:
            self._waits_for_room = connection.has_unsent
            events = select.POLLIN | select.POLLOUT if self._waits_for_room else select.POLLIN
            self._poll.modify(connection.fileno(), events)
        is_readable = False
        for descriptor, events in self._poll.poll(max(0, int(timeout_seconds * 1000) + 1)):
            if descriptor == self._wake_reader:
                os.read(self._wake_reader, 4096)
                continue
            if events & select.POLLOUT:
                self._flush()
            is_readable = bool(events & _READABLE)
        return is_readable

    def _flush(self) -> None:
        try:
            with self._lock:
                if self._connection is not None:
                    self._connection.flush()
        except OSError:
            pass  # `receive` will say so

    def wake(self) -> None:
        """End `wait` early; may be called by any thread."""
        try:
            os.write(self._wake_writer, b"\0")
        except OSError:
            pass  # the pipe is full of wake-ups, or closed: there is nobody to be woken

    def disown(self) -> None:
        """In a fork of the client's process: close its copies, so that the connection ends with the parent."""
        reset_lock(self._lock)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._close_wake_pipe()

    def _close_wake_pipe(self) -> None:
        descriptors = self._wake_reader, self._wake_writer
        self._wake_reader = self._wake_writer = -1  # before others may have these numbers
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def break_off(self) -> None:
        """Send nothing more, and let the scheduler end the connection."""
        connection = self._connection
        if connection is not None:
            connection.finish()

    def drop(self) -> None:
        """Close the connection as it is; what is sent from now on is lost."""
        with self._lock:
            connection, self._connection = self._connection, None
        self._unread = []
        if connection is not None:
            self._poll.unregister(connection.fileno())
            connection.close()

    def close(self) -> None:
        """Close the connection for good; what was sent has LINGER_SECONDS to leave."""
        deadline = time.monotonic() + LINGER_SECONDS
        connection = self._connection
        try:
            while connection is not None and not connection.flush() and time.monotonic() < deadline:
                self.wait(deadline - time.monotonic())
        except OSError:
            pass  # nobody is there to be told
        self.drop()
        self._close_wake_pipe()


def refusal_error(refusal: m.Refusal, address: str) -> ConnectionError:
    """The exception that says what a Refusal says."""
    if refusal.reason == m.RefusalReason.VERSION_MISMATCH:
        return ProtocolVersionError(f"the scheduler at {address} cannot be used: {refusal.message}")
    is_ending = refusal.reason == m.RefusalReason.SHUTTING_DOWN
    kind = SchedulerShuttingDownError if is_ending else SchedulerRefusedError
    return kind(f"the scheduler at {address} refused this client: {refusal.message}")


def _always() -> bool:
    return True


def _complete(hello: m.Hello) -> m.Hello:
    """A Hello that says which versions and which implementation this is."""
    hello.major, hello.minor_min, hello.minor_max = PROTOCOL_MAJOR, PROTOCOL_MINOR_MIN, PROTOCOL_MINOR_MAX
    hello.implementation = m.Implementation(
        name="scaler-sdk",
        version=__version__,
        language=f"Python {platform.python_version()} ({platform.python_implementation()})",
    )
    hello.host = socket.gethostname()
    hello.process_id = os.getpid()
    return hello
