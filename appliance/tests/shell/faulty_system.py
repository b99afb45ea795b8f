"""An operating system for the scheduler's connections that fails where a test wants it to.

    SimulatedPeer ◀── bytes ──▶ SimulatedStream ◀── recv, send ── Connection ◀── Connections ◀── Server ◀── core
                                     │
                      each call asks `SimulatedSystem.call`: go on, raise, or stop for a while

Rules:
- All calls are counted, so that a test can repeat a run with a fault at each of them, one after another.
- No real time, socket, thread or chance: a run is repeated exactly.
- Streams accept and deliver only as many bytes at once as the test says: short reads and writes are the rule.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from types import SimpleNamespace
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

FIRST_DESCRIPTOR = 1000
FIRST_PORT = 40_000

Fault = Union[BaseException, float]
"""What a call raises, or for how many seconds the process is stopped within it."""


class Call(NamedTuple):
    """One call of the scheduler: what, and of which stream; 0: of none."""

    name: str
    port: int


class SimulatedSystem:
    """
    Parameters:
        piece_bytes: the most bytes of one read or write.
        room_bytes: how many bytes a stream holds in each direction.
        fault_at: the number of the call that fails.
        fault: how.
    """

    def __init__(self, piece_bytes: int, room_bytes: int, fault_at: int = -1, fault: Fault = 0.0) -> None:
        self.now = 1000.0
        self.piece_bytes = piece_bytes
        self.room_bytes = room_bytes
        self.calls: List[Call] = []
        self.open_descriptors: Dict[int, Any] = {}
        self.listener = SimulatedListener(self, 1)
        self.listener_for_monitors = SimulatedListener(self, 3)
        self._fault_at, self._fault = fault_at, fault
        self._next = FIRST_DESCRIPTOR
        self._ports = FIRST_PORT
        self._processor_seconds = 0.0

    @property
    def faulted(self) -> Optional[Call]:
        """The call that has failed."""
        return self.calls[self._fault_at] if 0 <= self._fault_at < len(self.calls) else None

    def call(self, name: str, port: int = 0) -> None:
        """The scheduler calls the system."""
        self.calls.append(Call(name, port))
        if len(self.calls) - 1 != self._fault_at:
            return
        if isinstance(self._fault, BaseException):
            raise self._fault
        self.now += self._fault

    def descriptor_of(self, thing: Any) -> int:
        self._next += 1
        self.open_descriptors[self._next] = thing
        return self._next

    def connect(self, is_monitor: bool = False) -> SimulatedStream:
        """A peer connects, or a monitor."""
        self._ports += 1
        stream = SimulatedStream(self, self._ports)
        (self.listener_for_monitors if is_monitor else self.listener).waiting.append(stream)
        return stream

    def as_os(self) -> Any:
        """In place of the module `os`."""

        def open_(path: str, flags: int) -> int:
            self.call("open")
            return self.descriptor_of(path)

        return SimpleNamespace(open=open_, close=self.open_descriptors.pop, devnull="/dev/null", O_RDONLY=0)

    def as_readiness(self) -> Any:
        """In place of the module `readiness`."""
        return SimpleNamespace(epoll=lambda: SimulatedEpoll(self), EPOLLIN=select.EPOLLIN, EPOLLOUT=select.EPOLLOUT)

    def as_time(self) -> Any:
        """In place of the module `time`: each call takes a little."""

        def perf_counter() -> float:
            self._processor_seconds += 0.0001
            return self._processor_seconds

        return SimpleNamespace(perf_counter=perf_counter)


class SimulatedListener:
    def __init__(self, system: SimulatedSystem, descriptor: int) -> None:
        self._system = system
        self._descriptor = descriptor
        self.waiting: Deque[SimulatedStream] = deque()

    @property
    def is_readable(self) -> bool:
        return bool(self.waiting)

    is_writable = False

    def fileno(self) -> int:
        return self._descriptor

    def accept(self) -> Tuple[SimulatedStream, Tuple[str, int]]:
        if not self.waiting:
            raise BlockingIOError
        self._system.call("accept", self.waiting[0].port)
        stream = self.waiting.popleft()
        stream.descriptor = self._system.descriptor_of(stream)
        return stream, ("127.0.0.1", stream.port)

    def close(self) -> None:
        pass


class SimulatedStream:
    """Both ends of one connection: the methods of `socket.socket` are the scheduler's."""

    family = socket.AF_INET

    def __init__(self, system: SimulatedSystem, port: int) -> None:
        self._system = system
        self.port = port
        self.descriptor = -1
        self.to_scheduler = bytearray()
        self.to_peer = bytearray()
        self.is_closed = False  # by the scheduler, or shut down: the peer reads the end
        self.is_shut = False  # by the scheduler, in both directions
        self.is_left = False  # by the peer

    @property
    def is_readable(self) -> bool:
        return bool(self.to_scheduler) or self.is_left or self.is_shut

    @property
    def is_writable(self) -> bool:
        return self.is_left or len(self.to_peer) < self._system.room_bytes

    def fileno(self) -> int:
        return self.descriptor

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self._system.call("setsockopt", self.port)

    def recv(self, size: int) -> bytes:
        self._system.call("recv", self.port)
        if not self.to_scheduler:
            if self.is_left or self.is_shut:
                return b""
            raise BlockingIOError
        taken = min(size, self._system.piece_bytes)
        data = bytes(self.to_scheduler[:taken])
        del self.to_scheduler[:taken]
        return data

    def send(self, data: Any) -> int:
        self._system.call("send", self.port)
        return self._take(bytes(data))

    def sendmsg(self, buffers: Sequence[Any]) -> int:
        self._system.call("sendmsg", self.port)
        return self._take(b"".join(map(bytes, buffers)))

    def _take(self, data: bytes) -> int:
        if self.is_left or self.is_shut:
            raise BrokenPipeError
        taken = min(len(data), self._system.piece_bytes, self._system.room_bytes - len(self.to_peer))
        if taken <= 0:
            raise BlockingIOError
        self.to_peer += data[:taken]
        return taken

    def shutdown(self, how: int) -> None:
        self.is_closed = True
        self.is_shut = self.is_shut or how == socket.SHUT_RDWR

    def close(self) -> None:
        self.is_closed = True
        if self._system.open_descriptors.pop(self.descriptor, None) is not None:
            self._system.call("close", self.port)


class SimulatedEpoll:
    """Level-triggered, as the default is."""

    def __init__(self, system: SimulatedSystem) -> None:
        self._system = system
        self._wanted: Dict[int, int] = {}

    def fileno(self) -> int:
        return 2

    def register(self, descriptor: int, events: int) -> None:
        self._system.call("epoll_ctl", self._port_of(descriptor))
        self._wanted[descriptor] = events

    def modify(self, descriptor: int, events: int) -> None:
        self._system.call("epoll_ctl", self._port_of(descriptor))
        self._wanted[descriptor] = events

    def unregister(self, descriptor: int) -> None:
        if self._wanted.pop(descriptor, None) is None:
            raise FileNotFoundError

    def close(self) -> None:
        self._wanted.clear()

    def poll(self, timeout_seconds: float) -> List[Tuple[int, int]]:
        self._system.call("epoll_wait")
        return self.ready()

    def ready(self) -> List[Tuple[int, int]]:
        """What is ready, of what is wanted."""
        found = []
        for descriptor, wanted in self._wanted.items():
            thing = self._thing(descriptor)
            events = (select.EPOLLIN if thing.is_readable else 0) | (select.EPOLLOUT if thing.is_writable else 0)
            if events & wanted:
                found.append((descriptor, events & wanted))
        return found

    def _thing(self, descriptor: int) -> Any:
        for listener in (self._system.listener, self._system.listener_for_monitors):
            if descriptor == listener.fileno():
                return listener
        return self._system.open_descriptors[descriptor]

    def _port_of(self, descriptor: int) -> int:
        return getattr(self._thing(descriptor), "port", 0)


class SimulatedLoop:
    """An event loop that a test turns by hand."""

    def __init__(self, system: SimulatedSystem) -> None:
        self._system = system
        self.soon: Deque[Callable[[], None]] = deque()

    def time(self) -> float:
        return self._system.now

    def stop(self) -> None:
        pass  # the test turns it no more

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        pass  # the test calls the timer's callback itself
