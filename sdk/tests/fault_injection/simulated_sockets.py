"""Sockets of the simulated operating system: two ends that are joined, and whose calls it counts."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from fault_injection.simulated_system import SimulatedSystem


class FakeSocket:
    """A stream socket, whose other end is another one, or an object that gets its bytes."""

    def __init__(self, system: SimulatedSystem, family: int = socket.AF_INET, counted: bool = True) -> None:
        self.system = system
        self.family = family
        self.inbox = bytearray()
        self.other: Optional[FakeSocket] = None
        self.passed: List[FakeSocket] = []  # descriptors that went with the bytes, and were not taken yet
        self.has_ended = False  # the other end sends no more
        self.is_connected = False
        self.is_shut = False
        self.callers: List[Callable[[FakeSocket], object]] = []  # who wait to be accepted
        self._name = ("10.0.0.9", 40_000)  # of our end
        self.on_bytes: Callable[[bytes], None] = lambda data: None
        self.on_end: Callable[[], None] = lambda: None
        self._is_counted = counted
        self._is_closed = False
        self._descriptor = system.new_descriptor(self) if counted else -1

    def __repr__(self) -> str:
        return f"<socket {self._descriptor}>"

    def _enter(self, call: str, is_divisible: bool = False) -> bool:
        if not self._is_counted:
            return False
        try:
            return self.system.enter(call, is_divisible)
        except BrokenPipeError:
            if self.is_connected and not self.has_ended:
                self.has_ended = True
                self.on_end()
            raise

    @property
    def is_readable(self) -> bool:
        return bool(self.inbox or self.callers) or self.has_ended or self.is_shut

    # What the process calls -----------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._descriptor

    def setblocking(self, is_blocking: bool) -> None:
        self._enter("setblocking")

    def setsockopt(self, *arguments: Any) -> None:
        self._enter("setsockopt")

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        self._enter("getsockopt")
        return bytes(size) if size else 0

    def getsockname(self) -> Tuple[str, int]:
        self._enter("getsockname")
        return self._name

    def bind(self, address: Any) -> None:
        self._enter("bind")
        self._name = address[0], address[1] or 40_001

    def listen(self, backlog: int) -> None:
        self._enter("listen")
        self.system.servers[self._name] = self

    def accept(self) -> Tuple[FakeSocket, Any]:
        self._enter("accept")
        if not self.callers:
            raise BlockingIOError(errno.EAGAIN, "no caller waits")
        stream = FakeSocket(self.system, self.family)
        stream.is_connected = True
        self.callers.pop(0)(stream)
        return stream, ("10.0.0.3", 50_000)

    def connect(self, address: Any) -> None:
        self._enter("connect")
        number = self._connect(address)
        if number:
            raise OSError(number, os.strerror(number))

    def connect_ex(self, address: Any) -> int:
        self._enter("connect_ex")
        number = self._connect(address)
        return number or errno.EINPROGRESS

    def _connect(self, address: Any) -> int:
        accept = self.system.listeners.get(address)
        if accept is None:
            return errno.ECONNREFUSED
        self.is_connected = True
        accept(self)
        return 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        is_short = self._enter("recv", is_divisible=True)
        return self._recv(min(size, max(1, len(self.inbox) // 2)) if is_short else size)

    def _recv(self, size: int) -> bytes:
        if not self.inbox:
            if self.has_ended or self.is_shut:
                return b""
            raise BlockingIOError(errno.EAGAIN, "nothing there")
        data = bytes(self.inbox[:size])
        del self.inbox[:size]
        return data

    def recv_into(self, buffer: memoryview, size: int = 0, flags: int = 0) -> int:
        data = self.recv(size or len(buffer), flags)
        buffer[: len(data)] = data
        return len(data)

    def send(self, data: Any, flags: int = 0) -> int:
        is_short = self._enter("send", is_divisible=True)
        return self._send(bytes(data), is_short)

    def sendmsg(self, buffers: Sequence[Any]) -> int:
        is_short = self._enter("sendmsg", is_divisible=True)
        return self._send(b"".join(map(bytes, buffers)), is_short)

    def sendall(self, data: Any) -> None:
        self._enter("sendall")
        self._send(bytes(data), False)

    def _send(self, data: bytes, is_short: bool) -> int:
        if self.is_shut or self.has_ended or self._is_closed or not self.is_connected:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if is_short:
            data = data[: len(data) // 2]
            if not data:
                raise BlockingIOError(errno.EAGAIN, "no room")
        self.on_bytes(data)
        return len(data)

    def shutdown(self, how: int) -> None:
        self._enter("shutdown")
        if not self.is_shut:
            self.is_shut = True
            self.on_end()

    def close(self) -> None:
        was_closed, self._is_closed = self._is_closed, True
        if was_closed:
            return
        self.system.open.pop(self._descriptor, None)
        if self.system.servers.get(self._name) is self:
            del self.system.servers[self._name]
        self._descriptor = -1
        if not self.is_shut:
            self.is_shut = True
            self.on_end()
        self._enter("close")

    def in_another_process(self) -> FakeSocket:
        """The same end in another process, to which its descriptor was passed: closing this one changes nothing."""
        copy = FakeSocket(self.system, self.family, counted=False)
        assert self.other is not None
        join(self.other, copy)
        copy.inbox, self.inbox = self.inbox, bytearray()
        self.on_end = lambda: None
        return copy

    def __enter__(self) -> FakeSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What the other end does ----------------------------------------------------------------------------------------

    def deliver(self, data: bytes) -> None:
        if not self._is_closed:
            self.inbox += data

    def end(self) -> None:
        self.has_ended = True


def make_pair(system: SimulatedSystem) -> Tuple[FakeSocket, FakeSocket]:
    first, second = FakeSocket(system, socket.AF_UNIX), FakeSocket(system, socket.AF_UNIX)
    join(first, second)
    return first, second


def join(first: FakeSocket, second: FakeSocket) -> None:
    """Connect two ends."""
    first.on_bytes, second.on_bytes = second.deliver, first.deliver
    first.on_end, second.on_end = second.end, first.end
    first.is_connected = second.is_connected = True
    first.other, second.other = second, first
