"""The ends of data connections that the suite plays: a worker that fetches, and one that is fetched from."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

import zmq
from zmq.utils import z85

from scaler_conformance.codec.schema_codec import SCHEMA, Message
from scaler_conformance.judging.verdicts import Violation
from scaler_conformance.playing.quiet_ports import quiet_port
from scaler_conformance.playing.transports import open_socket

Lie = Callable[[bytes, int], Tuple[bytes, int]]
"""What is said instead of a part of an object, and of its size."""


def tell_truth(part: bytes, size: int) -> Tuple[bytes, int]:
    return part, size


def _use_new_key(socket: zmq.Socket[bytes]) -> bytes:
    """Give a socket a key of its own; returns the public part."""
    public, socket.curve_secretkey = zmq.curve_keypair()
    socket.curve_publickey = public
    return z85.decode(public)


class PlayedFetcher:
    """A worker that fetches objects from the one under test.

    Parameters:
        address: of that worker, from its Hello.
        holder_key: its public key there, from its Hello; empty: it uses none.
        seconds: how long to wait for an answer.

    Attributes:
        key: its own public key; empty: it has none.
    """

    def __init__(self, address: str, holder_key: bytes, seconds: float) -> None:
        self._socket = open_socket(zmq.DEALER)
        self._seconds = seconds
        self.key = _use_new_key(self._socket) if holder_key else b""
        if holder_key:
            self._socket.curve_serverkey = z85.encode(holder_key)
        self._socket.connect(address)

    def request(self, object_id: int, offset: int, length: int, ticket: bytes) -> None:
        fields: Dict[str, Any] = {"id": object_id, "offset": offset, "length": length, "ticket": ticket}
        self._socket.send_multipart([SCHEMA.encode("ObjectRequest", fields)])

    def answer(self) -> Message:
        """The next answer. Raises Violation if there is none in time."""
        if not self._socket.poll(int(self._seconds * 1000)):
            raise Violation("an answer on the data connection", "none came", "SCL-OBJ-030")
        frames = self._socket.recv_multipart()
        type_, fields = SCHEMA.decode(frames)
        return Message(type_, fields, b"".join(frames[1:2]))

    def close(self) -> None:
        self._socket.close()


class PlayedHolder:
    """A worker that has an object, as the one under test fetches it.

    Parameters:
        has_key: it speaks with those only that know its key.
        lie: what `serve` says.

    Attributes:
        key: its public key; empty: it has none.
    """

    def __init__(self, content: bytes, has_key: bool, lie: Lie = tell_truth) -> None:
        self.content, self._lie = content, lie
        self._socket = open_socket(zmq.ROUTER)
        self.key = _use_new_key(self._socket) if has_key else b""
        if has_key:
            self._socket.curve_server = True
        self.address = f"tcp://127.0.0.1:{quiet_port()}"
        self._socket.bind(self.address)
        self.offsets: List[int] = []
        self.tickets: List[bytes] = []
        self.open: Deque[Tuple[bytes, Message]] = deque()  # requests without an answer, each with who sent it

    def serve(self, most_answers: int, seconds: float, lie: Optional[Lie] = None) -> None:
        """Answer requests, and then no more. Raises Violation if they do not come in time."""
        deadline = time.monotonic() + seconds
        for _ in range(most_answers):
            self.gather(max(0.0, deadline - time.monotonic()))
            self.answer_next(lie)

    def serve_rest(self, quiet_seconds: float = 0.5) -> None:
        """Answer requests with the truth, until no more come."""
        while self.open or self._socket.poll(int(quiet_seconds * 1000)):
            self.gather(quiet_seconds)
            self.answer_next(tell_truth)

    def gather(self, seconds: float) -> None:
        """Take the requests that are there. Raises Violation if all are answered, and no other one comes in time."""
        while self._socket.poll(0 if self.open else int(seconds * 1000)):
            identity, *frames = self._socket.recv_multipart()
            request = Message(*SCHEMA.decode(frames), b"")
            self.offsets.append(request.offset)
            self.tickets.append(request.ticket)
            self.open.append((identity, request))
        if not self.open:
            raise Violation("an ObjectRequest at the holder of the Ticket", "none came", "SCL-OBJ-028")

    def answer_next(self, lie: Optional[Lie] = None) -> int:
        """Answer the request that came first; returns with how many bytes."""
        identity, request = self.open.popleft()
        part = self.content[request.offset : request.offset + request.length]
        chunk, size = (lie or self._lie)(part, len(self.content))
        fields = {"id": request.id, "offset": request.offset, "status": "ok", "size": size}
        self._socket.send_multipart([identity, SCHEMA.encode("ObjectResponse", fields), chunk])
        return len(chunk)

    def leave(self, requests: int, quiet_seconds: float = 1.0) -> None:
        """Be gone, when so many requests have come, or when no more do.

        What is unread when a connection is closed resets it, and then the other end may lose what it has not read.
        """
        while len(self.offsets) < requests and self._socket.poll(int(quiet_seconds * 1000)):
            _, *frames = self._socket.recv_multipart()
            self.offsets.append(Message(*SCHEMA.decode(frames), b"").offset)
        self._socket.close(1000)

    def close(self) -> None:
        self._socket.close(0)
