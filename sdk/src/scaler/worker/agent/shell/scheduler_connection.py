"""A connection of the agent to the scheduler, on an event loop. `resuming_connection` has one, or two for a while.

Rules:
- There is one attempt to connect at a time, and only on request: the session decides when to try again. Names, and
  lists of addresses, are connected to by `Dialing`, which delays nothing here.
- Sending neither drops data nor blocks: what does not fit is kept and sent when there is room. It is bounded, because
  the scheduler limits the tasks at a worker and the chunks that it requests.
- Any error of the system costs the connection at most. An error in sending is reported afterwards, because the owner
  may be in the middle of something.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import time
from typing import List, Optional, Protocol, Union

from scaler.data_serving.rounds import Rounds
from scaler_protocol import MalformedMessageError, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import is_numeric, parse_addresses, resolve, why_not_connected
from scaler_protocol.host.connection import Connection
from scaler_protocol.host.dialing import Dialing
from scaler_protocol.host.sodium import MissingLibraryError
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.session.session_log import Frames, SessionLog
from scaler_protocol.wire.zmtp import Buffer, ZmtpError

logger = logging.getLogger("scaler")

CONGESTED_BYTES = 16 * 1024 * 1024
"""When more than this waits to be sent, processors are not read until all of it has been sent."""

MAXIMUM_MESSAGE_BYTES = 1 << 40  # a worker trusts its scheduler


class ConnectionOwner(Protocol):
    """Notified about a connection."""

    def on_connected(self) -> None:
        """An attempt to connect has succeeded."""

    def on_connect_failed(self, reason: str) -> None:
        """An attempt to connect has failed."""

    def on_disconnected(self, reason: str) -> None:
        """An established connection has ended."""

    def on_message(self, message: m.Message, payload: bytes) -> None:
        """A message has come."""

    def on_congestion(self, is_congested: bool) -> None:
        """Too much waits to be sent, or all of it has been sent."""


class WatchedConnectionOwner(ConnectionOwner, Protocol):
    """Notified of more."""

    def on_up(self) -> None:
        """The handshake of the connection is complete."""

    def on_heard(self) -> None:
        """Something has come, be it a part of a message."""


class SchedulerConnection:
    """Connects to the scheduler when asked, and exchanges messages with it.

    Raises AddressError when the address is malformed.
    """

    def __init__(self, rounds: Rounds, credentials: Credentials, owner: WatchedConnectionOwner) -> None:
        self._rounds = rounds
        self._credentials = credentials
        self._addresses = list(parse_addresses(credentials.address))
        self._reached = self._addresses[0]  # where there is a connection, or was one
        self.owner: WatchedConnectionOwner = owner
        self.congested = False  # too much waits to be sent: senders should pause
        self._connection: Optional[Connection] = None
        self._dialing: Optional[Dialing] = None  # before there is a connection
        self._is_connected = False
        self._is_up = False  # the handshake is complete
        self._is_watched_for_room = False
        self._loss: Optional[Exception] = None  # an error in sending, which has not been reported yet

    # Connecting -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Try to connect; the owner is notified of the result."""
        self.drop()
        stream: Optional[socket.socket] = None
        error_number = 0
        try:
            streams = map(self._credentials.local_socket, self._addresses)
            stream = next((each for each in streams if each is not None), None)
            if stream is None and (len(self._addresses) > 1 or not is_numeric(self._addresses[0])):
                self._dialing = Dialing(self._addresses)
                self._rounds.add_reader(self._dialing.fileno(), self._on_dialled)
                return
            self._reached = self._addresses[0]
            if stream is None:
                family, target = resolve(self._reached)
                stream = socket.socket(family, socket.SOCK_STREAM)
                stream.setblocking(False)
                error_number = stream.connect_ex(target)
            self._connection = Connection(stream, self._credentials.protocol(stream, "DEALER", MAXIMUM_MESSAGE_BYTES))
            if error_number == errno.EINPROGRESS:
                self._rounds.add_writer(stream.fileno(), self._on_attempt_ended)
                return
        except (OSError, MemoryError, KeyFileError, MissingLibraryError) as error:
            if stream is not None and self._connection is None:
                _close(stream)
            self._fail(error)
            return
        self._finish_attempt(error_number)

    def _on_dialled(self) -> None:
        dialing = self._dialing
        assert dialing is not None
        stream: Optional[socket.socket] = None
        try:
            stream = dialing.finish()
            if stream is None:
                return
            self._reached = dialing.reached
            self._stop_dialing()
            self._connection = Connection(stream, self._credentials.protocol(stream, "DEALER", MAXIMUM_MESSAGE_BYTES))
        except (OSError, MemoryError, KeyFileError, MissingLibraryError) as error:
            if stream is not None:
                _close(stream)
            self._fail(error)
            return
        self._finish_attempt(0)

    def _stop_dialing(self) -> None:
        dialing, self._dialing = self._dialing, None
        if dialing is not None:
            self._rounds.remove_reader(dialing.fileno())
            dialing.close()

    def stop_connecting(self) -> None:
        """Give up an attempt that takes too long; the owner is notified."""
        dialing = self._dialing
        self._fail(OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) if dialing is None else dialing.error())

    def _on_attempt_ended(self) -> None:
        connection = self._connection
        assert connection is not None
        self._rounds.remove_writer(connection.fileno())
        try:
            error_number = connection.take_error()
        except (OSError, MemoryError) as error:
            self._fail(error)
            return
        self._finish_attempt(error_number)

    def _finish_attempt(self, error_number: int) -> None:
        connection = self._connection
        assert connection is not None
        try:
            if error_number:
                raise OSError(error_number, os.strerror(error_number))
            connection.start()
            self._is_connected = True
            self._rounds.add_reader(connection.fileno(), self._read)
            self._watch_for_room(connection)
        except (OSError, MemoryError) as error:
            self._fail(error)
            return
        self.owner.on_connected()

    def _fail(self, error: Exception) -> None:
        self.drop()
        if isinstance(error, (KeyFileError, MissingLibraryError)):
            self.owner.on_connect_failed(str(error))
            return
        known = error if isinstance(error, OSError) else OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        self.owner.on_connect_failed(why_not_connected(self._reached, known))

    @property
    def is_local(self) -> bool:
        """Whether the connection is within this host, by a Unix domain socket."""
        return self._connection is not None and self._connection.is_local

    @property
    def local_host(self) -> str:
        """The host of our end; empty if there is none, or no connection."""
        return self._connection.local_host if self._connection is not None else ""

    # Messages -------------------------------------------------------------------------------------------------------

    def send(self, message: m.Member, payload: Buffer = b"", log: Optional[SessionLog] = None) -> None:
        """Send a message, now or as soon as there is room.

        Parameters:
            log: keeps it, too.
        """
        try:
            # SCL-TRN-003
            frames: List[Buffer] = [encode(message), payload] if len(payload) else [encode(message)]
        except MemoryError as error:
            self._lose_soon(error)
            return
        if log is not None:
            log.add(frames)
        self.send_frames(frames)

    def send_frames(self, frames: Frames) -> None:
        """Send an encoded message, now or as soon as there is room."""
        connection = self._connection
        if connection is None or not self._is_connected:
            return  # it has ended, which is reported or was reported
        try:
            connection.send(frames)
            if connection.unsent_bytes:
                self._watch_for_room(connection)
        except (OSError, MemoryError) as error:
            self._lose_soon(error)

    def _lose_soon(self, error: Exception) -> None:
        if self._is_connected:
            self.drop()
            self._loss = error
            self._rounds.call_soon(self._report_loss)

    def _report_loss(self) -> None:
        if self._loss is not None:
            self._lose(self._loss)

    def _watch_for_room(self, connection: Connection) -> None:
        """Watch for room while something waits to be sent."""
        if connection.unsent_bytes > CONGESTED_BYTES:
            self._set_congested(True)
        elif not connection.has_unsent:
            self._set_congested(False)
        if connection.has_unsent is not self._is_watched_for_room:
            self._is_watched_for_room = connection.has_unsent
            if self._is_watched_for_room:
                self._rounds.add_writer(connection.fileno(), self._write)
            else:
                self._rounds.remove_writer(connection.fileno())

    def _write(self) -> None:
        connection = self._connection
        if connection is not None:
            try:
                connection.flush()
                self._watch_for_room(connection)
            except (OSError, MemoryError) as error:
                self._lose(error)

    def _set_congested(self, congested: bool) -> None:
        if congested != self.congested:
            self.congested = congested
            self.owner.on_congestion(congested)

    def _read(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            received = connection.receive()
        except (OSError, ZmtpError, MemoryError) as error:
            self._lose(error)
            return
        if connection.read_bytes:
            self.owner.on_heard()
            if not self._is_up and connection.is_ready:
                self._is_up = True
                self.owner.on_up()
        for header, *payload in received:
            # SCL-TRN-004
            self._receive(header, payload[0] if payload else b"")
            if self._connection is not connection:
                return  # it was dropped

    def _receive(self, header: bytes, payload: bytes) -> None:
        try:
            message = decode(header)
        # SCL-SEC-010
        except MalformedMessageError as error:
            logger.error("the scheduler sent a message that cannot be read: %s", error)
            return
        except MemoryError as error:
            self._lose(error)
            return
        self.owner.on_message(message, payload)

    # Ends -----------------------------------------------------------------------------------------------------------

    def mute(self) -> None:
        """Neither read nor write any more, and leave the connection open."""
        self._loss = None
        if self._connection is not None:
            self._rounds.remove_reader(self._connection.fileno())
            self._rounds.remove_writer(self._connection.fileno())

    def _lose(self, error: Exception) -> None:
        self.drop()
        self.owner.on_disconnected(str(error) or "out of memory")

    def drop(self) -> None:
        """Close the connection, if there is one, and drop what it has not sent."""
        self._loss = None
        self._stop_dialing()
        if self._connection is not None:
            self._addresses.sort(key=self._reached.__eq__)  # the next attempt prefers others
            self._rounds.remove_reader(self._connection.fileno())
            self._rounds.remove_writer(self._connection.fileno())
            _close(self._connection)
            self._connection = None
        self._is_connected = self._is_up = self._is_watched_for_room = False
        self._set_congested(False)

    def close(self, linger_seconds: float) -> None:
        """Close for good, after at most `timeout_seconds` to send what is waiting."""
        connection = self._connection
        if connection is not None and self._is_connected:
            _flush(connection, time.monotonic() + linger_seconds)
        self.drop()


def _flush(connection: Connection, deadline: float) -> None:
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLOUT)
        while not connection.flush() and time.monotonic() < deadline:
            poll.poll(max(1, int(1000 * (deadline - time.monotonic()))))
    except (OSError, MemoryError):
        pass  # the connection has already ended


def _close(stream: Union[socket.socket, Connection]) -> None:
    with contextlib.suppress(OSError):  # it is closed all the same
        stream.close()
