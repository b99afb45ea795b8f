"""A worker with a key that makes a result, and lies about it to the workers that fetch it from there.

scheduler ── task ──▶ LyingHolder ── result, which it keeps ──▶ scheduler       honest, also when it is asked for it
a worker with a ticket ── ObjectRequest ──▶ LyingHolder ── a lie ──▶ that worker
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any, Callable, Dict, List

from security.data_addresses.played_workers import LIMIT_BYTES, PlayedWorker

from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_file import KeyFile
from scaler_protocol.wire.secure_zmtp import SecureZmtp, ServerSecurity
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError


def other_content(content: bytes) -> bytes:
    """As long, and as readable."""
    middle = len(content) // 2
    return content[:middle] + bytes((content[middle] ^ 1,)) + content[middle + 1 :]


Lie = Callable[[m.ObjectRequest, bytes], List[bytes]]
"""The frames of an answer to a request for a part of some content."""


def _answer(request: m.ObjectRequest, content: bytes, part: bytes, **fields: Any) -> List[bytes]:
    usual = {"id": request.id, "offset": request.offset, "size": len(content)}
    return [bytes(encode(m.ObjectResponse(**{**usual, **fields}))), part]


def _part(request: m.ObjectRequest, content: bytes) -> bytes:
    return content[request.offset : request.offset + request.length]


def too_many_bytes(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return _answer(request, content, _part(request, content) + b"x")


def far_too_many_bytes(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return _answer(request, content, bytes(LIMIT_BYTES))


def too_few_bytes(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    part = _part(request, content)
    return _answer(request, content, part[: (len(part) + 1) // 2])


def no_bytes(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return _answer(request, content, b"")


def another_object(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return _answer(request, content, _part(request, content), id=request.id + 1)


def another_part(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return _answer(request, content, _part(request, content), offset=request.offset + 1)


def another_size(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return _answer(request, content, _part(request, content), size=len(content) + 1)


def another_message(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return [bytes(encode(m.Heartbeat()))]


def not_a_message(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return [b"\x80\x05junk", b"junk"]


def that_it_has_nothing(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return _answer(request, content, b"", status=m.ObjectResponseStatus.MISSING)


def other_bytes(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return _answer(request, content, _part(request, other_content(content)))


def the_truth(request: m.ObjectRequest, content: bytes) -> List[bytes]:
    return _answer(request, content, _part(request, content))


LIES: Dict[str, Lie] = {
    "too many bytes": too_many_bytes,
    "far too many bytes": far_too_many_bytes,
    "too few bytes": too_few_bytes,
    "no bytes": no_bytes,
    "another object": another_object,
    "another part": another_part,
    "another size": another_size,
    "another message": another_message,
    "not a message": not_a_message,
    "that it has nothing": that_it_has_nothing,
    "nothing": the_truth,  # this and the following ones: see below
    "half of it": the_truth,
    "with another key": the_truth,
    "without a key": the_truth,
    "no greeting": the_truth,
    "other bytes": other_bytes,
}


class LyingHolder:
    """Parameters:
    address: of the scheduler.
    kind: one of LIES.
    capability: what it offers, so that a task is sent here.
    content: of the result that it makes.
    """

    def __init__(self, address: str, key: KeyFile, kind: str, capability: str, content: bytes) -> None:
        self._kind, self._content = kind, content
        self._listener = socket.create_server(("127.0.0.2", 0))
        self.data_address = "tcp://{}:{}".format(*self._listener.getsockname())
        self.told = 0
        """How many requests other workers have sent."""
        self._keys = load_sodium().new_keys() if kind == "with another key" else key.keys
        offer = [m.Capability(name=capability, amount=10.0)]
        self._worker = PlayedWorker(address, key, self.data_address, capabilities=offer)
        for thread in (self._work, self._accept):
            threading.Thread(target=thread, daemon=True).start()
        self._has_kept = threading.Event()

    def wait_until_kept(self) -> None:
        """The scheduler knows of the result."""
        assert self._has_kept.wait(30.0)

    def _work(self) -> None:
        self._worker.keep(len(self._content))
        self._worker.take(m.Task)  # one that needs it, which is not finished
        self._has_kept.set()
        while True:
            request, _ = self._worker.take(m.ObjectRequest)
            header, part = the_truth(request, self._content)
            self._worker.send(decode(header), part)

    def _accept(self) -> None:
        while True:
            stream, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        security = ServerSecurity(load_sodium(), [self._keys], lambda key: None)
        protocol: Zmtp = SecureZmtp(security, "ROUTER", LIMIT_BYTES)
        if self._kind == "without a key":
            protocol = Zmtp("ROUTER", LIMIT_BYTES)
        if self._kind == "no greeting":
            stream.recv(1)
            threading.Event().wait()
        with suppress(OSError, ZmtpError), stream:
            stream.sendall(protocol.take_output())
            while data := stream.recv(65536):
                requests = [decode(header) for header, *_ in protocol.feed(data)]
                stream.sendall(protocol.take_output())
                for request in requests:
                    assert isinstance(request, m.ObjectRequest)
                    self.told += 1
                    self._lie(stream, protocol, request)

    def _lie(self, stream: socket.socket, protocol: Zmtp, request: m.ObjectRequest) -> None:
        if self._kind == "nothing":
            return
        data = b"".join(map(bytes, protocol.encode(LIES[self._kind](request, self._content))))
        if self._kind == "half of it" and self.told > 1:
            stream.sendall(data[: len(data) // 2])
            stream.shutdown(socket.SHUT_RDWR)
        stream.sendall(data)
