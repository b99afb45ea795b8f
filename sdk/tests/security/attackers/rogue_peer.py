"""A peer with an admitted key that sends what no honest one sends."""

from __future__ import annotations

import socket
from array import array
from contextlib import suppress
from typing import Any, Dict, List, Sequence, Tuple

from security.attackers.pickle_bombs import Bombs

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_file import KeyFile
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp
from scaler_protocol.wire.zmtp import ZmtpError

TIMEOUT_SECONDS = 30.0
LIMIT_BYTES = 1 << 24


class RoguePeer:
    """One connection at a time, which it makes again when the scheduler has ended it.

    Parameters:
        address: of the scheduler.
        key: that the scheduler admits.
        bombs: that it sends.
    """

    def __init__(self, address: str, key: KeyFile, bombs: Bombs) -> None:
        parsed, self._bombs = parse_address(address), bombs
        self._address: Tuple[str, int] = (parsed.host, parsed.port)
        self._security = ClientSecurity(load_sodium(), key.keys, key.server_keys[0])
        self._waiting: List[Any] = []
        self._connect()

    def __enter__(self) -> RoguePeer:
        return self

    def __exit__(self, *details: object) -> None:
        self._stream.close()

    def _connect(self) -> None:
        self._stream = socket.create_connection(self._address, TIMEOUT_SECONDS)
        self._protocol = SecureZmtp(self._security, "DEALER", LIMIT_BYTES)
        self._waiting.clear()
        while not self._protocol.is_ready:
            self._stream.sendall(self._protocol.take_output())
            self._read()

    def _read(self) -> None:
        data = self._stream.recv(65536)
        if not data:
            raise ConnectionResetError("the scheduler has ended the connection")
        for frames in self._protocol.feed(data):
            self._waiting.append(decode(frames[0]))
        self._stream.sendall(self._protocol.take_output())

    def send(self, message: Any, payload: bytes = b"") -> None:
        frames = [bytes(encode(message)), *([payload] if payload else [])]
        self._stream.sendall(b"".join(map(bytes, self._protocol.encode(frames))))

    def receive(self, message_class: type) -> List[Any]:
        """The messages of this type that have come, at least one."""
        while not any(isinstance(each, message_class) for each in self._waiting):
            self._read()
        found = [each for each in self._waiting if isinstance(each, message_class)]
        self._waiting = [each for each in self._waiting if not isinstance(each, message_class)]
        return found

    def say_hello(self, role: m.Role, **fields: Any) -> Any:
        """Say Hello, and wait for the answer: a Welcome, or a Refusal."""
        versions: Dict[str, Any] = {
            "major": PROTOCOL_MAJOR,
            "minor_min": PROTOCOL_MINOR_MIN,
            "minor_max": PROTOCOL_MINOR_MAX,
        }
        self.send(
            m.Hello(**versions, role=role, host="elsewhere", name="rogue", slots=fields.pop("slots", 1), **fields)
        )
        while True:
            for each in self._waiting:
                if isinstance(each, (m.Welcome, m.Refusal)):
                    self._waiting.remove(each)
                    return each
            self._read()

    def tell(self, role: m.Role, but: Tuple[type, ...] = ()) -> int:
        """Send all messages with bombs, each with a bomb as its payload, after a Hello in a role; how many they were.

        Parameters:
            but: types of messages that are not sent.

        Before it returns, the scheduler has read all of them, or has ended the connection on which they were sent.
        """
        count = 0
        for message in self._bombs.messages(role=role, codec="cloudpickle"):
            if isinstance(message, but):
                continue
            with suppress(OSError, ZmtpError):
                self._waiting.clear()
                self.say_hello(role)
                self.send(message, self._bombs.data)
                count += 1
                self._waiting.clear()
                self.say_hello(role)
                continue
            self._stream.close()
            self._connect()
        return count

    def return_bombs(self, ids: Sequence[int]) -> None:
        """Answer tasks with bombs: as results of different codecs, and in failures."""
        bombs = self._bombs
        kinds = [("json", m.TaskStatus.SUCCESS), ("cloudpickle", m.TaskStatus.SUCCESS), (bombs.text, 0)]
        for place, task_id in enumerate(ids):
            codec, status = kinds[place] if place < len(kinds) else ("", m.TaskStatus.FAILED)
            payload = bombs.failure if status == m.TaskStatus.FAILED else bombs.data
            sizes = array("I", [len(payload)])
            self.send(
                m.TaskResult(ids=array("Q", [task_id]), statuses=bytes([status]), payload_sizes=sizes, codec=codec),
                payload,
            )
