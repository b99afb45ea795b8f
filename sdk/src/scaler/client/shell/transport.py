"""A client's connection to its scheduler: one at a time, made and used without blocking.

Rules:
- Sending never blocks and never raises: what cannot be sent at once waits here, in order. Only `receive` reports the
  end of the connection, whatever the system's error was.
- How to wait for the stream is up to its owner: a thread that polls (`polled_transport`), or an event loop
  (`scaler.aio.loop_transport`).
- One thread does everything, except that `task_sender` returns functions that send a single message from another
  thread.
- The session decides when to connect and what to send.
- A name, and a list of addresses, are connected to by `Dialing`. One numeric address needs no thread for that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from abc import ABC, abstractmethod
from typing import Callable, List, NamedTuple, Optional, Sequence

from scaler.exceptions import (
    AuthenticationError,
    DisconnectedError,
    NotASchedulerError,
    ProtocolVersionError,
    SchedulerRefusedError,
    SchedulerShuttingDownError,
    SchedulerUnreachableError,
)
from scaler.values.payload import Buffer
from scaler.version import __version__
from scaler_protocol.host.addresses import (
    Target,
    is_numeric,
    parse_addresses,
    resolve,
    why_foreign,
    why_not_connected,
    why_not_greeted,
)
from scaler_protocol.host.connection import Connection, first_words
from scaler_protocol.host.dialing import Dialing
from scaler_protocol.host.interpreter import language
from scaler_protocol.host.sodium import MissingLibraryError
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.session.effects import EndCause, Ended
from scaler_protocol.session.session_log import SessionLog
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import encode
from scaler_protocol.wire.curve import KeyRejectedError
from scaler_protocol.wire.zmtp import MechanismError, PeerGoneError, RefusedError, UnfinishedHandshakeError, ZmtpError

LINGER_SECONDS = 1.0
MAXIMUM_MESSAGE_BYTES = 1 << 40  # a client trusts its scheduler
FIRST_WORDS_TIMEOUT_SECONDS = 0.5
_OWN_ERRORS = (errno.ENOMEM, errno.ENOBUFS, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO)  # of this host


class TaskSender(NamedTuple):
    """How another thread sends one message.

    Attributes:
        encode: lays a message out.
        send: sends its bytes; the socket's own.
    """

    encode: Callable[[Sequence[Buffer]], List[Buffer]]
    send: Callable[[bytes, int], int]


class Transport(ABC):
    """Parameters:
    credentials: for the scheduler, at its address.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.address = credentials.address
        self._credentials = credentials
        self.is_connecting = False
        self.has_news = False  # something has happened at it, if it is watched by another one
        self.log: Optional[SessionLog] = None  # keeps what is sent
        self._is_muted = False
        self.has_closed = False  # a peer has closed or reset a connection
        self._addresses = list(parse_addresses(self.address))
        self._reached = self._addresses[0]  # where there is a connection, or was one
        self._connection: Optional[Connection] = None
        self._stream: Optional[socket.socket] = None
        self._dialing: Optional[Dialing] = None  # instead of a stream
        self._has_spoken = False  # the peer of the last connection
        self._is_scheduler = False  # whether the peer's name says that it is a scheduler

    # Connecting -----------------------------------------------------------------------------------------------------

    def connect(self) -> bool:
        """Begin to connect; returns whether that is already done. If not, `finish_connecting` follows.

        Raises OSError, of which AuthenticationError is one, or MemoryError; `drop` follows.
        """
        try:
            streams = map(self._credentials.local_socket, self._addresses)
            stream = next((each for each in streams if each is not None), None)
        except KeyFileError as error:
            raise AuthenticationError(str(error)) from error
        self._is_scheduler = stream is not None
        self._has_spoken = False
        if stream is not None:
            return self._began_to_connect(stream)
        first = self._reached = self._addresses[0]
        if len(self._addresses) == 1 and is_numeric(first):
            return self._connect_to(resolve(first))
        self._dialing = Dialing(self._addresses)
        self.is_connecting = True
        self._watch(self._dialing.fileno(), for_writing=False)
        return False

    def _connect_to(self, target: Target) -> bool:
        stream = self._stream = socket.socket(target[0], socket.SOCK_STREAM)
        stream.setblocking(False)
        error_number = stream.connect_ex(target[1])
        if error_number not in (0, errno.EINPROGRESS):
            raise OSError(error_number, os.strerror(error_number))
        self.is_connecting = error_number == errno.EINPROGRESS
        return self._began_to_connect(stream)

    def _began_to_connect(self, stream: socket.socket) -> bool:
        self._stream = stream
        self._watch(stream.fileno(), for_writing=self.is_connecting)
        if not self.is_connecting:
            self._start()
        return not self.is_connecting

    @abstractmethod
    def _watch(self, descriptor: int, for_writing: bool) -> None:
        """Notice from now on when something happens at a descriptor: that of the stream, or of its making."""

    @abstractmethod
    def _unwatch(self, descriptor: int) -> None:
        """Undo `_watch`, which may have failed."""

    def finish_connecting(self) -> bool:
        """Whether the connection is established now, after something has happened at the stream.

        Raises OSError, of which AuthenticationError is one, or MemoryError; `drop` follows.
        """
        if self._dialing is not None:
            return self._finish_dialing(self._dialing)
        stream = self._stream
        assert stream is not None
        error_number = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error_number:
            raise OSError(error_number, os.strerror(error_number))
        self.is_connecting = False
        self._start()
        return True

    def _finish_dialing(self, dialing: Dialing) -> bool:
        stream = dialing.finish()
        if stream is None:
            return False
        self._reached = dialing.reached
        self._stop_dialing()
        self.is_connecting = False
        return self._began_to_connect(stream)

    def _stop_dialing(self) -> None:
        dialing, self._dialing = self._dialing, None
        if dialing is not None:
            self._unwatch(dialing.fileno())
            dialing.close()

    def stop_connecting(self) -> OSError:
        """An attempt takes too long; returns what it has come to. `drop` follows."""
        dialing = self._dialing
        return OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) if dialing is None else dialing.error()

    def _start(self) -> None:
        assert self._stream is not None
        try:
            protocol = self._credentials.protocol(self._stream, "DEALER", MAXIMUM_MESSAGE_BYTES)
        except (KeyFileError, MissingLibraryError) as error:
            raise AuthenticationError(str(error)) from error
        self._connection = Connection(self._stream, protocol)
        self._connection.start()

    @property
    def is_local(self) -> bool:
        """Whether the connection is within this host, by a Unix domain socket."""
        return self._connection is not None and self._connection.is_local

    @property
    def local_host(self) -> str:
        """The host of our end; empty if there is none, or no connection."""
        return self._connection.local_host if self._connection is not None else ""

    @property
    def is_up(self) -> bool:
        """Whether the handshake of the connection is complete."""
        return self._connection is not None and self._connection.is_ready

    @property
    def has_heard(self) -> bool:
        """Whether the last call of `receive` has read anything, be it a part of a message."""
        return self._connection is not None and self._connection.read_bytes > 0

    @abstractmethod
    def another(self) -> Transport:
        """A transport to the same scheduler, which may take the place of this one. When something has happened at it,
        the owner of this one is woken, and it `has_news`."""

    def mute(self) -> None:
        """Neither read nor write any more, and leave the connection open."""
        if not self._is_muted and self._stream is not None:
            self._is_muted = True
            self._unwatch(self._stream.fileno())

    def unmute(self) -> None:
        """Undo `mute`. Raises OSError or MemoryError if the system cannot watch the stream."""
        if self._is_muted and self._stream is not None:
            self._is_muted = False
            self._watch(self._stream.fileno(), for_writing=False)

    # Messages -------------------------------------------------------------------------------------------------------

    def send(self, message: m.Member, payload: Sequence[Buffer] = ()) -> None:
        """Send a message; without a connection, and without a log, it is lost."""
        connection, log = self._connection, self.log
        if connection is None and log is None:
            return
        try:
            # SCL-TRN-003
            frames: List[Buffer] = [encode(message)]
            if payload:
                frames.append(payload[0] if len(payload) == 1 else b"".join(payload))
        except MemoryError:
            if connection is not None:
                connection.abort()
            if log is not None:
                log.give_up()
            return
        if log is not None:
            log.add(frames)
        self.send_frames(frames)

    def send_frames(self, frames: Sequence[Buffer]) -> None:
        """Send an encoded message."""
        connection = self._connection
        if connection is None or self._is_muted:
            return
        try:
            connection.send(frames)
        except OSError:
            pass  # `receive` will report it
        except MemoryError:
            connection.abort()

    def task_sender(self) -> Optional[TaskSender]:
        """How one message can be sent immediately; None if other bytes have to be sent first."""
        connection, stream = self._connection, self._stream
        if connection is None or stream is None or not connection.is_ready or connection.has_unsent or self._is_muted:
            return None
        return TaskSender(connection.lone_encoder(), stream.send)

    def keep(self, frames: Sequence[Buffer]) -> None:
        """A `task_sender` has sent a message of these frames."""
        if self.log is not None:
            self.log.add(frames)

    def send_rest(self, data: Buffer) -> None:
        """Send the rest of what a `task_sender` has begun."""
        try:
            if self._connection is not None:
                self._connection.send_encoded(data)
        except (OSError, MemoryError):
            pass  # `receive` will report it

    def receive(self) -> List[List[bytes]]:
        """The received messages, as lists of frames. Raises DisconnectedError when the connection has ended."""
        connection = self._connection
        if connection is None or self._is_muted:
            return []
        try:
            return connection.receive()
        except (OSError, ZmtpError, MemoryError) as error:
            is_own = is_own_error(error)
            self.has_closed = self.has_closed or not is_own
            why = "this host lacks resources" if is_own else "the scheduler was stopped, or the network was cut"
            text = f"the connection to the scheduler at {self.address} ended ({str(error) or 'out of memory'}): {why}"
            raise DisconnectedError(text) from error

    def _flush(self) -> None:
        try:
            if self._connection is not None:
                self._connection.flush()
        except (OSError, MemoryError):
            pass  # `receive` will report it

    def after_fork_in_child(self) -> None:
        """In a fork of the client's process: close its copies, so that the connection ends with the parent."""
        stream, self._stream, self._connection = self._stream, None, None
        dialing, self._dialing = self._dialing, None
        for each in (stream, dialing):
            if each is not None:
                each.close()

    def drop(self) -> None:
        """Close the connection as it is; what is sent from now on is lost."""
        stream, connection = self._stream, self._connection
        self._stream = self._connection = None
        self.is_connecting = self._is_muted = False
        if connection is not None:
            self._has_spoken = connection.peer_has_spoken
        self._stop_dialing()
        if stream is not None:
            if connection is not None:  # the next attempt prefers others
                self._addresses.sort(key=self._reached.__eq__)
            self._unwatch(stream.fileno())
            with contextlib.suppress(OSError):  # it is closed all the same
                stream.close()

    # Why there is no connection -------------------------------------------------------------------------------------

    def end_error(self, ended: Ended, connect_error: Optional[OSError]) -> ConnectionError:
        """The error for a session that has ended before it began.

        Parameters:
            connect_error: of the last attempt to connect, if that has failed.
        """
        if ended.refusal is not None:
            return self.refusal_error(ended.refusal)
        if ended.cause is EndCause.NOT_A_SCHEDULER:
            return self.foreign_error(ended.reason)
        return self.silence_error() if connect_error is None else self.unreachable_error(connect_error)

    def unreachable_error(self, error: OSError) -> ConnectionError:
        """The error for a failed attempt to connect."""
        if isinstance(error, AuthenticationError):
            return error  # others may have made the key meanwhile, so this is not the first attempt
        return SchedulerUnreachableError(f"{why_not_connected(self._reached, error)}; {self._what_to_do(error)}")

    def _what_to_do(self, error: OSError) -> str:
        if isinstance(error, PermissionError):
            return "run as the user that the scheduler runs as, or let it listen at a tcp:// address"
        if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
            return f"start a scheduler there with `scaler_scheduler {self.address}`, or check the address"
        return "check the address, and the firewalls in between"

    def silence_error(self) -> ConnectionError:
        """The peer has not sent Welcome in time: it is a scheduler that is busy or was stopped, or another server."""
        has_spoken = self._has_spoken
        is_unknown = not has_spoken and not self._is_scheduler
        address = self._reached
        foreign = first_words(address, FIRST_WORDS_TIMEOUT_SECONDS) if is_unknown else b""
        if foreign:
            return NotASchedulerError(f"{why_foreign(address, foreign)}; check the address and the port")
        why = why_not_greeted(address, has_spoken, self._is_scheduler, self.has_closed)
        return SchedulerUnreachableError(f"{why}; try again later, or look at its log")

    def foreign_error(self, why: object) -> NotASchedulerError:
        """The error for a peer that is not a Scaler scheduler."""
        return NotASchedulerError(
            f"the program at {self.address} is not a Scaler scheduler, or speaks an incompatible protocol: {why};"
            " check address and port, and that the scheduler speaks version 1 of the protocol"
        )

    def handshake_error(self, why: object) -> Optional[ConnectionError]:
        """The error for a handshake that has failed and would fail again; None if another attempt may help."""
        if is_about_keys(why):
            return self._authentication_error(why)
        return None if is_end_of_connection(why) else self.foreign_error(why)

    def _authentication_error(self, why: object) -> AuthenticationError:
        if isinstance(why, MechanismError):
            text = "one of the two ends has no key"
            advice = "give it one: scaler keys new -h; or, if the scheduler runs with --insecure, set SCALER_INSECURE=1"
        else:
            text, advice = "the keys do not fit", "get a new key file from where the scheduler runs: scaler keys new -h"
        return AuthenticationError(f"no connection to the scheduler at {self.address}: {text} ({why}); {advice}")

    def refusal_error(self, refusal: m.Refusal) -> ConnectionError:
        """The exception for a Refusal."""
        if refusal.reason == m.RefusalReason.VERSION_MISMATCH:
            return ProtocolVersionError(f"the scheduler at {self.address} cannot be used: {refusal.message}")
        is_ending = refusal.reason == m.RefusalReason.SHUTTING_DOWN
        kind = SchedulerShuttingDownError if is_ending else SchedulerRefusedError
        return kind(f"the scheduler at {self.address} refused this client: {refusal.message}")


def is_own_error(error: object) -> bool:
    """Whether an exception tells about this host, and nothing about the peer."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _OWN_ERRORS)


def is_about_keys(error: object) -> bool:
    """Whether an exception tells that the handshake has failed because of the keys of both ends."""
    is_refusal = isinstance(error, RefusedError) and not isinstance(error, UnfinishedHandshakeError)
    return is_refusal or isinstance(error, (MechanismError, KeyRejectedError))


def is_end_of_connection(error: object) -> bool:
    """Whether an exception tells that the connection has ended, and nothing about what kind of program the peer is.

    A scheduler that is killed, and a forwarder that cannot reach it, reset connections in the middle of the handshake.
    """
    return isinstance(error, (OSError, MemoryError, PeerGoneError, UnfinishedHandshakeError))


def described(hello: m.Hello) -> m.Hello:
    """A Hello with the name and version of this implementation."""
    hello.implementation = m.Implementation(
        name="scaler-sdk",
        version=__version__,
        language=language(),
    )
    hello.host = socket.gethostname()
    hello.process_id = os.getpid()
    return hello
