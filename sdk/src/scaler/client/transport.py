"""A client's connection to its scheduler.

Rules:
- Connecting takes a bounded time and ends in a Welcome or in an error that says what is wrong at that address.
- Sending never blocks and never raises: what the scheduler does not take at once waits here, in order. The end of the
  connection is an error of `receive`, and of nothing else.
- Any thread may send; one thread, always the same, does everything else.
"""

from __future__ import annotations

import os
import platform
import select
import socket
import threading
import time
from typing import List, Sequence

from scaler.exceptions import (
    DisconnectedError,
    NotASchedulerError,
    ProtocolVersionError,
    SchedulerRefusedError,
    SchedulerUnreachableError,
)
from scaler.payload import Buffer
from scaler.version import __version__
from scaler_protocol import (
    PROTOCOL_MAJOR,
    PROTOCOL_MINOR_MAX,
    PROTOCOL_MINOR_MIN,
    MalformedMessageError,
    decode,
    encode,
)
from scaler_protocol import messages as m
from scaler_protocol.addresses import parse_address, resolve
from scaler_protocol.connection import Connection, connect_by_shortcut
from scaler_protocol.zmtp import Zmtp, ZmtpError

LINGER_SECONDS = 1.0
MAXIMUM_MESSAGE_BYTES = 1 << 40  # a client trusts its scheduler
_ATTEMPT_INTERVAL_SECONDS = 0.05
_READABLE = ~select.POLLOUT  # data, the end of the stream, errors


class Transport:
    """A connection.

    Parameters:
        address: of the scheduler.
        hello: who we are; versions are filled in here.
        timeout_seconds: how long nobody may listen, and how long the answer to Hello may take.

    Raises SchedulerUnreachableError, NotASchedulerError, ProtocolVersionError, SchedulerRefusedError, ValueError.
    """

    def __init__(self, address: str, hello: m.Hello, timeout_seconds: float) -> None:
        self.address = address
        deadline = time.monotonic() + timeout_seconds
        self._connection = Connection(_connect(address, deadline), Zmtp("DEALER", MAXIMUM_MESSAGE_BYTES))
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._poll = select.poll()
        self._poll.register(self._wake_reader, select.POLLIN)
        self._poll.register(self._connection.fileno(), select.POLLIN)
        self._waits_for_room = False
        self._lock = threading.Lock()  # of what the connection has to send
        try:
            self.welcome = self._greet(hello, deadline)
        except BaseException:
            self.close()
            raise

    def _greet(self, hello: m.Hello, deadline: float) -> m.Welcome:
        hello.major, hello.minor_min, hello.minor_max = PROTOCOL_MAJOR, PROTOCOL_MINOR_MIN, PROTOCOL_MINOR_MAX
        hello.implementation = m.Implementation(
            name="scaler-sdk",
            version=__version__,
            language=f"Python {platform.python_version()} ({platform.python_implementation()})",
        )
        hello.host = socket.gethostname()
        hello.process_id = os.getpid()
        try:
            self._connection.start()
            self.send(hello)
            while True:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise TimeoutError("it does not answer as one does")
                if not self.wait(remaining):
                    continue
                for header, *_ in self._connection.receive():
                    answer = decode(header)
                    if isinstance(answer, m.Welcome):
                        return answer
                    if isinstance(answer, m.Refusal):
                        raise refusal_error(answer, self.address)
        except (ProtocolVersionError, SchedulerRefusedError):
            raise
        except (OSError, ZmtpError, MalformedMessageError) as error:
            raise NotASchedulerError(
                f"what listens at {self.address} is no Scaler scheduler, or one of an incompatible generation: {error};"
                " check the address and the port, and that the scheduler is of version 1 of the protocol"
            ) from error

    def send(self, message: m.Member, payload: Sequence[Buffer] = ()) -> None:
        frames: List[Buffer] = [encode(message)]
        if payload:
            frames.append(payload[0] if len(payload) == 1 else b"".join(payload))
        try:
            with self._lock:
                self._connection.send(frames)
        except OSError:
            pass  # `receive` will say so

    @property
    def has_unsent(self) -> bool:
        """Whether something waits for room, which only `wait` notices."""
        return self._connection.has_unsent

    def receive(self) -> List[List[bytes]]:
        """The messages that have come, as lists of frames.

        Raises DisconnectedError when the connection has ended.
        """
        try:
            with self._lock:  # what is received may ask for an answer
                return self._connection.receive()
        except (OSError, ZmtpError) as error:
            raise DisconnectedError(
                f"the connection to the scheduler at {self.address} ended ({error}):"
                " the scheduler was stopped, or the network was cut"
            ) from error

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until something arrives, `wake` is called, or the time is over; whether to call `receive`."""
        if self._connection.has_unsent is not self._waits_for_room:
            self._waits_for_room = self._connection.has_unsent
            events = select.POLLIN | select.POLLOUT if self._waits_for_room else select.POLLIN
            self._poll.modify(self._connection.fileno(), events)
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
                self._connection.flush()
        except OSError:
            pass  # `receive` will say so

    def wake(self) -> None:
        """End `wait` early; may be called by any thread."""
        try:
            os.write(self._wake_writer, b"\0")
        except BlockingIOError:
            pass  # the pipe is full of wake-ups

    def close(self) -> None:
        """Close the connection; what was sent has LINGER_SECONDS to leave."""
        deadline = time.monotonic() + LINGER_SECONDS
        try:
            while not self._connection.flush() and time.monotonic() < deadline:
                self.wait(deadline - time.monotonic())
        except OSError:
            pass  # nobody is there to be told
        self._connection.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)


def refusal_error(refusal: m.Refusal, address: str) -> ConnectionError:
    """The exception that says what a Refusal says."""
    if refusal.reason == m.RefusalReason.VERSION_MISMATCH:
        return ProtocolVersionError(f"the scheduler at {address} cannot be used: {refusal.message}")
    return SchedulerRefusedError(f"the scheduler at {address} refused this client: {refusal.message}")


def _connect(address: str, deadline: float) -> socket.socket:
    """A connected socket. Somebody who is about to listen there is waited for."""
    parsed = parse_address(address)
    while True:
        stream = connect_by_shortcut(parsed)
        if stream is not None:
            return stream
        try:
            family, target = resolve(parsed)
            stream = socket.socket(family, socket.SOCK_STREAM)
            stream.settimeout(max(_ATTEMPT_INTERVAL_SECONDS, deadline - time.monotonic()))
            stream.connect(target)
            return stream
        except OSError as error:
            if stream is not None:
                stream.close()
            if time.monotonic() + _ATTEMPT_INTERVAL_SECONDS >= deadline:
                raise SchedulerUnreachableError(
                    f"nobody listens at {address} ({error.strerror or error}): start a scheduler there with"
                    f" `scaler_scheduler {address}`, or check the address"
                ) from error
        except BaseException:
            if stream is not None:
                stream.close()
            raise
        time.sleep(_ATTEMPT_INTERVAL_SECONDS)
