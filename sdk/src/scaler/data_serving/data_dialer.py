"""Connecting to the holders of objects: over TCP, by address or by name.

    connect ──▶ attempt, after the name was looked up ──▶ on_made
                                                     └──▶ on_failed

Rules:
- With a key we speak CURVE, with that key at both ends, and never without it.
- Any error of the system costs one connection at most.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from functools import partial
from typing import Callable, Dict, Optional, Tuple, Union

from scaler.data_serving.data_effects import ConnectData
from scaler.data_serving.rounds import Rounds
from scaler.data_serving.side_work import SMALLEST_BYTES
from scaler_protocol.host.addresses import (
    Address,
    AddressError,
    is_numeric,
    parse_address,
    resolve,
    why_not_connected,
)
from scaler_protocol.host.connection import Connection
from scaler_protocol.host.dialing import Dialing
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp
from scaler_protocol.wire.zmtp import Zmtp

ROOM_BYTES = 64 * 1024  # of an answer, besides its chunk


class DataDialer:
    """Parameters:
    on_made: called with the number of a connection and the connection, which has not been started.
    on_failed: called with the number and the reason. It must not do much at once, because `connect` may call it.
    """

    def __init__(
        self, rounds: Rounds, on_made: Callable[[int, Connection], None], on_failed: Callable[[int, str], None]
    ) -> None:
        self._rounds = rounds
        self._on_made = on_made
        self._on_failed = on_failed
        self._dialing: Dict[int, Tuple[Dialing, Address]] = {}
        self._attempts: Dict[int, Tuple[Connection, Address]] = {}  # TCP connections that are being made

    def connect(self, effect: ConnectData, security: Optional[ClientSecurity]) -> None:
        """Parameters:
        security: our key; None: keys are not used.
        """
        number = effect.connection
        try:
            if bool(effect.key) is (security is None):
                raise OSError(errno.EACCES, "one of the two ends uses a key, and the other one does not")
            address = parse_address(effect.address)
        except (OSError, AddressError) as error:
            self._on_failed(number, getattr(error, "strerror", None) or str(error))
            return
        stream: Optional[socket.socket] = None
        try:
            if not is_numeric(address):
                dialing = Dialing([address])
                self._dialing[number] = dialing, address
                self._rounds.add_reader(dialing.fileno(), partial(self._on_dialled, effect, security))
                return
            family, target = resolve(address)
            stream = socket.socket(family, socket.SOCK_STREAM)
            stream.setblocking(False)
            result = stream.connect_ex(target)
            connection = _made(stream, effect, security)
            if result == errno.EINPROGRESS:
                self._attempts[number] = connection, address
                self._rounds.add_writer(stream.fileno(), partial(self._on_attempt_ended, number))
            elif result:
                raise OSError(result, os.strerror(result))
            else:
                self._on_made(number, connection)
        except (OSError, MemoryError) as error:
            self._attempts.pop(number, None)
            if stream is not None:
                close_quietly(stream)
            self._fail(number, address, error)

    def _on_dialled(self, effect: ConnectData, security: Optional[ClientSecurity]) -> None:
        number = effect.connection
        dialing, address = self._dialing[number]
        stream: Optional[socket.socket] = None
        try:
            stream = dialing.finish()
            if stream is None:
                return
            self._stop_dialing(number)
            self._on_made(number, _made(stream, effect, security))
        except (OSError, MemoryError) as error:
            self._stop_dialing(number)
            if stream is not None:
                close_quietly(stream)
            self._fail(number, address, error)

    def _on_attempt_ended(self, number: int) -> None:
        connection, address = self._attempts.pop(number)
        self._rounds.remove_writer(connection.fileno())
        try:
            error_number = connection.take_error()
            if error_number:
                raise OSError(error_number, os.strerror(error_number))
            self._on_made(number, connection)
        except (OSError, MemoryError) as error:
            close_quietly(connection)
            self._fail(number, address, error)

    def _fail(self, number: int, address: Address, error: Exception) -> None:
        reason = why_not_connected(address, error) if isinstance(error, OSError) else str(error)
        self._on_failed(number, reason)

    def _stop_dialing(self, number: int) -> None:
        found = self._dialing.pop(number, None)
        if found is not None:
            self._rounds.remove_reader(found[0].fileno())
            found[0].close()

    def stop(self, number: int) -> None:
        """Connect no further, if that goes on."""
        self._stop_dialing(number)
        attempt = self._attempts.pop(number, None)
        if attempt is not None:
            self._rounds.remove_writer(attempt[0].fileno())
            close_quietly(attempt[0])

    def close(self) -> None:
        """End all of it."""
        for number in [*self._dialing, *self._attempts]:
            self.stop(number)


def _made(stream: socket.socket, effect: ConnectData, security: Optional[ClientSecurity]) -> Connection:
    most_bytes = effect.chunk_bytes + ROOM_BYTES
    protocol: Zmtp
    if security is None:
        protocol = Zmtp("DEALER", most_bytes)
    else:
        protocol = SecureZmtp(security._replace(server_key=effect.key), "DEALER", most_bytes)
    protocol.reused_bytes, protocol.aside_bytes = most_bytes, SMALLEST_BYTES
    return Connection(stream, protocol)


def close_quietly(thing: Union[socket.socket, Connection]) -> None:
    with contextlib.suppress(OSError):  # it is closed all the same
        thing.close()
