"""The agent's one connection to the scheduler, on an event loop.

Rules:
- A new session is a new connection: what the old one had not sent yet must not reach the scheduler under a new name.
- Attempts to connect go on for ever, ever more slowly; who gives up is the session.
- Nothing is dropped and nothing blocks: what does not fit is kept and sent when there is room. It is bounded by what
  the scheduler has granted: tasks for which it waits, and chunks that it asked for.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
import time
from typing import Callable, List, Optional

from scaler.worker.rounds import Rounds
from scaler_protocol import MalformedMessageError, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address, resolve, why_not_connected
from scaler_protocol.host.connection import Connection, connect_to_local_socket
from scaler_protocol.wire.zmtp import Buffer, Zmtp, ZmtpError

logger = logging.getLogger("scaler")

CONGESTED_BYTES = 16 * 1024 * 1024
"""When so much waits for room, processors are not read any more until all has left."""

MAXIMUM_MESSAGE_BYTES = 1 << 40  # a worker trusts its scheduler

_ATTEMPT_INTERVAL_SECONDS = 0.1
_MAXIMUM_ATTEMPT_INTERVAL_SECONDS = 2.0


class SchedulerConnection:
    """Hands messages to `on_message(message, payload)`.

    Parameters:
        on_lost: called with the reason when an established connection has ended; `open` makes a new one.
        on_congestion: called with True when too much waits for room, and with False when all of it has left.

    Raises AddressError when the address is none.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rounds: Rounds,
        address: str,
        on_message: Callable[[m.Message, bytes], None],
        on_congestion: Callable[[bool], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._rounds = rounds
        self._address = parse_address(address)
        self._on_message = on_message
        self._on_congestion = on_congestion
        self._on_lost = on_lost
        self.congested = False  # more is kept than should be: whoever can shall wait
        self._connection: Optional[Connection] = None
        self._is_connected = False
        self._is_refused = False  # by whoever has the address: nobody listens there
        self._is_watched_for_room = False
        self._early: List[List[Buffer]] = []  # messages that wait for the connection
        self._attempt: Optional[asyncio.TimerHandle] = None
        self._attempt_interval_seconds = _ATTEMPT_INTERVAL_SECONDS
        self._next_attempt_at = 0.0

    # Connecting -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, or connect anew: nothing that was under way arrives any more."""
        self._close_connection()
        self._early.clear()
        self._schedule_attempt()

    def _schedule_attempt(self) -> None:
        wait = self._next_attempt_at - self._loop.time()
        self._attempt = self._loop.call_later(max(0.0, wait), self._try_to_connect)

    def _try_to_connect(self) -> None:
        self._attempt = None
        self._next_attempt_at = self._loop.time() + self._attempt_interval_seconds
        # SCL-TRN-009
        self._attempt_interval_seconds = min(2 * self._attempt_interval_seconds, _MAXIMUM_ATTEMPT_INTERVAL_SECONDS)
        error_number = 0
        try:
            stream = connect_to_local_socket(self._address)
            if stream is None:
                family, target = resolve(self._address)
                stream = socket.socket(family, socket.SOCK_STREAM)
                stream.setblocking(False)
                error_number = stream.connect_ex(target)
        except OSError as error:
            self._on_attempt_failed(error)
            return
        self._connection = Connection(stream, Zmtp("DEALER", MAXIMUM_MESSAGE_BYTES))
        if error_number == errno.EINPROGRESS:
            self._rounds.add_writer(stream.fileno(), self._on_attempt_ended)
        else:
            self._finish_attempt(error_number)

    def _on_attempt_ended(self) -> None:
        connection = self._connection
        assert connection is not None
        self._rounds.remove_writer(connection.fileno())
        self._finish_attempt(connection.take_error())

    def _finish_attempt(self, error_number: int) -> None:
        connection = self._connection
        assert connection is not None
        try:
            if error_number:
                raise OSError(error_number, os.strerror(error_number))
            connection.start()
            for frames in self._early:
                connection.send(frames)
        except OSError as error:
            self._close_connection()
            self._on_attempt_failed(error)
            return
        self._early.clear()
        self._is_connected = True
        self._is_refused = False
        self._rounds.add_reader(connection.fileno(), self._read)
        self._watch_for_room(connection)

    def _on_attempt_failed(self, error: OSError) -> None:
        # Once: the session says from time to time that it is still so.
        level = logging.DEBUG if self._is_refused else logging.WARNING
        self._is_refused = True
        logger.log(level, "Worker: %s: trying again", why_not_connected(self._address, error))
        self._schedule_attempt()

    # Messages -------------------------------------------------------------------------------------------------------

    def send(self, message: m.Member, payload: Buffer = b"") -> None:
        """Send a message, now or as soon as there is room."""
        # SCL-TRN-003
        frames: List[Buffer] = [encode(message), payload] if len(payload) else [encode(message)]
        connection = self._connection
        if connection is None or not self._is_connected:
            self._early.append(frames)
            return
        try:
            connection.send(frames)
        except OSError:
            return  # reading will say so
        if connection.unsent_bytes:
            self._watch_for_room(connection)

    def _watch_for_room(self, connection: Connection) -> None:
        """Be told when there is room, as long as something waits for it."""
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
            except OSError as error:
                self._lose(error)
                return
            self._watch_for_room(connection)

    def _set_congested(self, congested: bool) -> None:
        if congested != self.congested:
            self.congested = congested
            self._on_congestion(congested)

    def _read(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            received = connection.receive()
        except (OSError, ZmtpError) as error:
            self._lose(error)
            return
        for header, *payload in received:
            self._attempt_interval_seconds = _ATTEMPT_INTERVAL_SECONDS
            # SCL-TRN-004
            self._receive(header, payload[0] if payload else b"")
            if self._connection is not connection:
                return  # a new session was started

    def _receive(self, header: bytes, payload: bytes) -> None:
        try:
            message = decode(header)
        # SCL-SEC-010
        except MalformedMessageError as error:
            logger.error("the scheduler sent a message that cannot be read: %s", error)
            return
        self._on_message(message, payload)

    # Ends -----------------------------------------------------------------------------------------------------------

    def _lose(self, error: Exception) -> None:
        self._close_connection()
        self._on_lost(str(error))

    def _close_connection(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        if self._connection is not None:
            self._rounds.remove_reader(self._connection.fileno())
            self._rounds.remove_writer(self._connection.fileno())
            self._connection.close()
            self._connection = None
        self._is_connected = self._is_watched_for_room = False
        self._set_congested(False)

    def close(self, linger_seconds: float) -> None:
        """Close for good; what is under way has so long to leave."""
        connection = self._connection
        if connection is not None and self._is_connected:
            _flush(connection, time.monotonic() + linger_seconds)
        self._close_connection()


def _flush(connection: Connection, deadline: float) -> None:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLOUT)
    try:
        while not connection.flush() and time.monotonic() < deadline:
            poll.poll(max(1, int(1000 * (deadline - time.monotonic()))))
    except OSError:
        pass  # nobody is there to be told
