"""A ZmtpServer with keys: the mechanism CURVE (ZeroMQ RFC 26), and which key each connection has proved.

    client ──HELLO──▶ ◀──WELCOME── ──INITIATE──▶ ◀──READY──     and then every frame in a sealed MESSAGE

Rules:
- One method, one duty: so that a mutant can break just that.
- It is correct, and not protected against peers that open many connections.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Dict, List, NamedTuple

from nacl import bindings
from nacl.exceptions import CryptoError
from zmq.utils import z85

from mutants.servers.zmtp_server import LARGE, Connection, ZmtpError, ZmtpServer
from scaler_conformance.configuration.toml_files import load_toml
from scaler_conformance.playing.curve_keys import AUTHORIZED_KEYS, SCHEDULER_KEY

_MORE, _COMMAND = 1, 2  # flags of a sealed frame
_COOKIE = bytes(96)


class Sealed(NamedTuple):
    """What a connection has after CURVE's WELCOME."""

    own: bytes  # the key of this connection that both ends have in common
    secret: bytes  # S'
    client: bytes  # C'


class CurveServer(ZmtpServer):
    """Listens at an address, for peers with keys.

    Parameters:
        folder: with the files of keys; see scaler_conformance.playing.curve_keys.
    """

    def __init__(self, address: str, header_limit: int, message_limit: int, folder: str) -> None:
        self.folder = Path(folder)
        table = load_toml(self.folder / SCHEDULER_KEY)
        self.public = _decoded(table["public_keys"][0])
        self.secret = _decoded(table["secret_keys"][0])
        self.roles: Dict[bytes, str] = {}
        self.sealed: Dict[Connection, Sealed] = {}
        self.counts: Dict[Connection, int] = {}
        self.peer_keys: Dict[Connection, bytes] = {}  # that were proved
        self.read_roles()
        super().__init__(address, header_limit, message_limit)

    def read_roles(self) -> None:
        """Read the list of admitted keys."""
        lines = (self.folder / AUTHORIZED_KEYS).read_text().splitlines()
        words = [line.split() for line in lines]
        self.roles = {_decoded(each[0]): each[1].partition("=")[2] for each in words}

    def role_of(self, connection: Connection) -> str:
        """What the key of a connection is admitted as; empty if it is not."""
        return self.roles.get(self.peer_keys.get(connection, b""), "")

    # The handshake --------------------------------------------------------------------------------------------------

    def greeting(self) -> bytes:
        return b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + b"\1" + bytes(31)

    def check_mechanism(self, mechanism: bytes) -> None:
        if mechanism != b"CURVE":
            raise ZmtpError("another mechanism")

    def on_greeted(self, connection: Connection) -> None:
        """READY follows later."""

    def on_command(self, connection: Connection, body: bytes) -> None:
        try:
            if connection in self.peer_keys:
                raise ZmtpError("a command that is not sealed")
            if connection not in self.sealed:
                self.on_curve_hello(connection, body)
            else:
                self.on_initiate(connection, body, self.sealed[connection])
        except (CryptoError, ValueError) as error:
            raise ZmtpError("what was sealed cannot be opened") from error

    def on_curve_hello(self, connection: Connection, body: bytes) -> None:
        if len(body) != 200 or not body.startswith(b"\x05HELLO\x01\x00"):
            raise ZmtpError("no HELLO")
        client = body[80:112]
        shared = bindings.crypto_box_beforenm(client, self.secret)
        bindings.crypto_box_open_afternm(body[120:], b"CurveZMQHELLO---" + body[112:120], shared)
        public, secret = bindings.crypto_box_keypair()
        self.sealed[connection] = Sealed(bindings.crypto_box_beforenm(client, secret), secret, client)
        nonce = os.urandom(16)
        box = bindings.crypto_box_afternm(public + _COOKIE, b"WELCOME-" + nonce, shared)
        self.send_plain_command(connection, b"WELCOME", nonce + box)

    def on_initiate(self, connection: Connection, body: bytes, sealed: Sealed) -> None:
        at = 9 + len(_COOKIE)
        if not body.startswith(b"\x08INITIATE" + _COOKIE):
            raise ZmtpError("no INITIATE")
        opened = bindings.crypto_box_open_afternm(body[at + 8 :], b"CurveZMQINITIATE" + body[at : at + 8], sealed.own)
        key, nonce, vouch = opened[:32], opened[32:48], opened[48:128]
        shared = bindings.crypto_box_beforenm(key, sealed.secret)
        if bindings.crypto_box_open_afternm(vouch, b"VOUCH---" + nonce, shared) != sealed.client + self.public:
            raise ZmtpError("another key's vouch")
        self.check_key(key)
        self.peer_keys[connection] = key
        ready = b"\x0bSocket-Type\0\0\0\x06ROUTER"
        number = self.next_number(connection)
        box = bindings.crypto_box_afternm(ready, b"CurveZMQREADY---" + number, sealed.own)
        self.send_plain_command(connection, b"READY", number + box)
        super().on_command(connection, b"\x05READY" + opened[128:])

    def check_key(self, key: bytes) -> None:
        if key not in self.roles:
            raise ZmtpError("a key that is not admitted")

    def send_plain_command(self, connection: Connection, name: bytes, data: bytes) -> None:
        ZmtpServer.send_command(self, connection, name, data)

    def next_number(self, connection: Connection) -> bytes:
        count = self.counts[connection] = self.counts.get(connection, 0) + 1
        return struct.pack(">Q", count)

    # Afterwards -----------------------------------------------------------------------------------------------------

    def check_header_size(self, size: int) -> None:
        """What is sealed is not limited here."""

    def check_unregistered(self, connection: Connection, size: int) -> None:
        """Likewise."""

    def on_frame(self, connection: Connection, body: bytes, more: bool) -> None:
        sealed = self.sealed.get(connection)
        if sealed is None or not body.startswith(b"\x07MESSAGE"):
            raise ZmtpError("a frame that is not sealed")
        try:
            opened = bindings.crypto_box_open_afternm(body[16:], b"CurveZMQMESSAGEC" + body[8:16], sealed.own)
        except CryptoError as error:
            raise ZmtpError("what was sealed cannot be opened") from error
        if opened[0] & _COMMAND:
            super().on_command(connection, opened[1:])
        else:
            super().on_frame(connection, opened[1:], bool(opened[0] & _MORE))

    def send(self, connection: Connection, frames: List[bytes]) -> None:
        for index, frame in enumerate(frames):
            self.send_sealed(connection, _MORE if index + 1 < len(frames) else 0, frame)

    def send_command(self, connection: Connection, name: bytes, data: bytes) -> None:
        self.send_sealed(connection, _COMMAND, bytes([len(name)]) + name + data)

    def send_sealed(self, connection: Connection, flags: int, content: bytes) -> None:
        number = self.next_number(connection)
        box = bindings.crypto_box_afternm(
            bytes([flags]) + content, b"CurveZMQMESSAGES" + number, self.sealed[connection].own
        )
        body = b"\x07MESSAGE" + number + box
        is_large = len(body) > 255
        self.write(connection, (struct.pack(">BQ", LARGE, len(body)) if is_large else bytes([0, len(body)])) + body)

    def close_connection(self, connection: Connection) -> None:
        super().close_connection(connection)
        self.sealed.pop(connection, None)
        self.counts.pop(connection, None)
        self.peer_keys.pop(connection, None)

    def end_revoked(self) -> None:
        """End the connections whose key is not admitted any more."""
        for connection, key in list(self.peer_keys.items()):
            if key not in self.roles:
                self.close_connection(connection)


def _decoded(text: str) -> bytes:
    """A key of 32 bytes from its Z85."""
    return z85.decode(text)
