"""A simulated operating system for one process: the calls that the shells make, counted, and one of them with a fault.

    the shell's modules ──▶ os, socket, select, time, mmap, fcntl ──▶ SimulatedSystem.enter(call) ──▶ what the call does
                             (stand-ins, put in place by `installed`)        └── the fault, if it is this call's turn

Rules:
- No real time, thread or socket: the clock moves while the process waits, or when it is stopped, and the other ends of
  its connections answer at once. Files are real ones, below a folder of the test.
- A fault is one error at one call, a call that does only a part of its work, or a stop of the process: others act, and
  the clock moves by STOP_SECONDS.
- An error in closing still closes, as on Linux. EPIPE at a socket means that the other end has gone.
- A process that makes too many calls, or waits for too long, is stuck: `StuckError`, which nothing catches.
- The modules are those of the whole test process: for its other threads, such as those of clients that earlier tests
  have left, they call the real system.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import mmap
import os
import select
import socket
import sys
import threading
import time
import weakref
from collections import Counter
from types import FrameType, ModuleType
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import pytest
from fault_injection.simulated_sockets import FakeSocket, make_pair

from scaler_protocol.host import readiness
from scaler_protocol.host import system as host_system

STOP_SECONDS = 300.0
"""More than all time-outs of a scenario."""

MAXIMUM_CALLS = 20_000
MAXIMUM_SECONDS = 3000.0
FIRST_DESCRIPTOR = 100_000

ERROR_NUMBERS = (
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOSPC,
    errno.ENOMEM,
    errno.EINTR,
    errno.EAGAIN,
    errno.EIO,
    errno.EPIPE,
)
ERROR_KINDS = (*(errno.errorcode[number] for number in ERROR_NUMBERS), "MemoryError")
KINDS = (*ERROR_KINDS, "stop", "short")


WITHOUT_MEMORY = ("close", "set_blocking", "kill", "probe", "killpg", "setpgid")
IMPOSSIBLE = {(call, "MemoryError") for call in WITHOUT_MEMORY}
"""What these calls never raise."""


STRIDE = 13
"""The fast tests inject this part of all faults, and the slow ones the others. It shares no factor with the number of
kinds."""


class Fault(NamedTuple):
    """
    Parameters:
        position: of the call, from 0.
        kind: one of KINDS.
    """

    position: int
    kind: str


class StuckError(BaseException):
    """The process turns in circles, or waits for something that does not come."""


def _site(call: str) -> Tuple[str, ...]:
    """The lines of the product that make a call, the innermost first."""
    found = [call]
    frame: Optional[FrameType] = sys._getframe(2)
    while frame is not None and len(found) < 5:
        if frame.f_globals.get("__name__", "").startswith("scaler"):
            found.append(f"{frame.f_globals['__name__']}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(found)


def distinct_calls(system: SimulatedSystem, maximum: int) -> List[int]:
    """The indexes of calls without further repetitions of what was called from the same lines so often before."""
    counts: Counter[Tuple[str, ...]] = Counter()
    found = []
    for index, site in enumerate(system.sites):
        counts[site] += 1
        if counts[site] <= maximum:
            found.append(index)
    return found


def faults_at(system: SimulatedSystem, indexes: Sequence[int]) -> List[Fault]:
    """Each fault at each of these calls of a run without one, but for those that would change nothing there."""
    return [
        Fault(index, kind)
        for index in indexes
        for kind in KINDS
        if (system.calls[index], kind) not in IMPOSSIBLE and (kind != "short" or index in system.divisible)
    ]


def some_of(faults: Sequence[Fault]) -> List[Fault]:
    """Those that the fast tests inject."""
    return list(faults[::STRIDE])


def others_of(faults: Sequence[Fault], part: int = 0, parts: int = 1) -> List[Fault]:
    """One of some parts of all those that the fast tests do not inject."""
    return [fault for position, fault in enumerate(faults) if position % STRIDE][part::parts]


def _error(kind: str) -> Exception:
    if kind == "MemoryError":
        return MemoryError()
    number = getattr(errno, kind)
    return OSError(number, os.strerror(number))


class SimulatedSystem:
    """
    Parameters:
        fault: None for a run without one.
    """

    def __init__(self, fault: Optional[Fault] = None) -> None:
        self.fault = fault
        self.now = 1000.0
        self.calls: List[str] = []
        self.sites: List[Tuple[str, ...]] = []
        """Where each call comes from: its caller and callers of that, outermost last."""
        self.divisible: Set[int] = set()
        """The positions of calls that can do a part of their work."""
        self.listeners: Dict[Any, Callable[[FakeSocket], object]] = {}
        """What accepts connections, by address."""
        self.servers: Dict[Any, FakeSocket] = {}
        """Sockets on which the process listens, by address."""
        self.actors: List[Callable[[], bool]] = []
        """Others that act while the process waits; each says whether it did anything."""
        self.on_stop: List[Callable[[], None]] = []
        self.open: Dict[int, Any] = {}
        """Simulated descriptors."""
        self.open_files: Set[int] = set()
        self.files: List[weakref.ref[Any]] = []
        self._next_descriptor = FIRST_DESCRIPTOR

    def enter(self, call: str, is_divisible: bool = False) -> bool:
        """Count a call; it raises its fault, or returns whether it is to do only a part of its work, if it can."""
        index = len(self.calls)
        self.calls.append(call)
        if is_divisible:
            self.divisible.add(index)
        if self.fault is None:
            self.sites.append(_site(call))
        if index > MAXIMUM_CALLS or self.now > 1000.0 + MAXIMUM_SECONDS:
            raise StuckError(f"after {index} calls and {self.now - 1000:.0f} s; the last: {self.calls[-12:]}")
        if self.fault is None or self.fault.position != index:
            return False
        kind = self.fault.kind
        if kind == "short":
            return is_divisible
        if kind == "stop":
            self.stop()
            return False
        if (call, kind) in IMPOSSIBLE:
            return False
        raise _error(kind)

    def stop(self) -> None:
        """The process does not run for a while; the others do."""
        for act in self.on_stop:
            act()
        self.now += STOP_SECONDS

    def wait(self, is_ready: Callable[[], bool], timeout_seconds: Optional[float]) -> None:
        """Let others act until something is ready, or the time is over."""
        while not is_ready():
            acted = [act() for act in self.actors]
            if not any(acted):
                if timeout_seconds is None:
                    raise StuckError("it waits without end, and nothing will happen")
                if not is_ready():
                    self.now += max(0.0, timeout_seconds)
                return

    def new_descriptor(self, thing: Any) -> int:
        self._next_descriptor += 1
        self.open[self._next_descriptor] = thing
        return self._next_descriptor

    def left_open(self) -> List[Any]:
        """Descriptors and files that the process has not closed."""
        files = [file for file in (reference() for reference in self.files) if file is not None and not file.closed]
        return [*self.open.values(), *self.open_files, *files]


class _Pipe:
    def __init__(self) -> None:
        self.inbox = bytearray()
        self.writers = 1

    @property
    def is_readable(self) -> bool:
        return bool(self.inbox)


class _FakeModule:
    """A module in which some names are replaced, for the thread that has made it."""

    def __init__(self, module: ModuleType, **replaced: Any) -> None:
        self._module = module
        self._thread = threading.get_ident()
        self.__dict__.update(replaced)

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__
        return getattr(own(self, "_module"), name) if own(self, "_thread") != threading.get_ident() else own(self, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Poll:
    """`select.poll` and `select.epoll` of simulated descriptors."""

    def __init__(self, system: SimulatedSystem, is_epoll: bool) -> None:
        self._system = system
        self._is_epoll = is_epoll
        self._wanted: Dict[int, int] = {}
        self._descriptor = -1
        if is_epoll:
            system.enter("epoll")
            self._descriptor = system.new_descriptor(self)

    def __repr__(self) -> str:
        return f"<poll {self._wanted}>"

    def fileno(self) -> int:
        return self._descriptor

    def register(self, descriptor: Any, events: int) -> None:
        self._system.enter("register")
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        assert number in self._system.open, f"descriptor {number} is closed"
        if self._is_epoll and number in self._wanted:
            raise FileExistsError(errno.EEXIST, "registered")
        self._wanted[number] = events

    def modify(self, descriptor: int, events: int) -> None:
        self._system.enter("modify")
        if descriptor not in self._wanted:
            raise FileNotFoundError(errno.ENOENT, "not registered")
        self._wanted[descriptor] = events

    def unregister(self, descriptor: int) -> None:
        self._system.enter("unregister")
        if self._is_epoll and descriptor not in self._wanted:
            raise FileNotFoundError(errno.ENOENT, "not registered")
        del self._wanted[descriptor]

    def ready(self) -> List[Tuple[int, int]]:
        found = []
        for number, events in list(self._wanted.items()):
            thing = self._system.open.get(number)
            if thing is None:
                del self._wanted[number]
                continue
            now = events & select.POLLIN if thing.is_readable else 0
            if events & select.POLLOUT and (not isinstance(thing, FakeSocket) or thing.is_connected or thing.is_shut):
                now |= select.POLLOUT
            if now:
                found.append((number, now))
        return found

    @property
    def is_readable(self) -> bool:
        return bool(self.ready())

    def poll(self, timeout: Optional[float] = None) -> List[Tuple[int, int]]:
        is_short = self._system.enter("poll", is_divisible=True)
        seconds = timeout if timeout is None or self._is_epoll else timeout / 1000
        self._system.wait(lambda: self.is_readable, seconds)
        return self.ready()[: 1 if is_short else None]

    def close(self) -> None:
        if self._system.open.pop(self._descriptor, None) is not None:
            self._system.enter("close")


class _FakeOs(_FakeModule):
    """Pipes are simulated; files are real ones."""

    def __init__(self, system: SimulatedSystem) -> None:
        super().__init__(os)
        self._system = system
        for name in ("unlink", "rename", "link", "symlink", "readlink", "listdir", "statvfs", "mkdir", "set_blocking"):
            setattr(self, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            self._system.enter(name)
            if name == "set_blocking":
                return None
            return call(*arguments, **keywords)

        return counted

    def pipe(self) -> Tuple[int, int]:
        self._system.enter("pipe")
        pipe = _Pipe()
        return self._system.new_descriptor(pipe), self._system.new_descriptor(pipe)

    def open(self, *arguments: Any) -> int:
        self._system.enter("open")
        descriptor = os.open(*arguments)
        self._system.open_files.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        if descriptor >= FIRST_DESCRIPTOR:
            del self._system.open[descriptor]
        else:
            os.close(descriptor)
            self._system.open_files.remove(descriptor)
        self._system.enter("close")

    def read(self, descriptor: int, size: int) -> bytes:
        self._system.enter("read")
        pipe = self._system.open[descriptor]
        if not pipe.inbox:
            raise BlockingIOError(errno.EAGAIN, "nothing there")
        data = bytes(pipe.inbox[:size])
        del pipe.inbox[:size]
        return data

    def write(self, descriptor: int, data: Any) -> int:
        is_short = self._system.enter("write", is_divisible=True)
        if descriptor >= FIRST_DESCRIPTOR:
            self._system.open[descriptor].inbox += data
            return len(data)
        return os.write(descriptor, memoryview(data)[: len(data) // 2 + 1] if is_short else data)

    def writev(self, descriptor: int, buffers: Sequence[Any]) -> int:
        is_short = self._system.enter("writev", is_divisible=True)
        if is_short:
            return os.write(descriptor, memoryview(buffers[0])[: len(buffers[0]) // 2 + 1])
        return os.writev(descriptor, buffers)

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        is_short = self._system.enter("pwrite", is_divisible=True)
        return os.pwrite(descriptor, memoryview(data)[: len(data) // 2 + 1] if is_short else data, offset)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        is_short = self._system.enter("pread", is_divisible=True)
        return os.pread(descriptor, size // 2 + 1 if is_short else size, offset)

    def preadv(self, descriptor: int, buffers: Sequence[Any], offset: int) -> int:
        is_short = self._system.enter("preadv", is_divisible=True)
        buffer = memoryview(buffers[0])
        return os.preadv(descriptor, [buffer[: len(buffer) // 2 + 1] if is_short else buffer], offset)


def _tick(system: SimulatedSystem) -> float:
    return system.now


def _sleep(system: SimulatedSystem, seconds: float) -> None:
    system.now += max(seconds, 0.0001)


@contextlib.contextmanager
def installed(system: SimulatedSystem, modules: Sequence[ModuleType]) -> Iterator[pytest.MonkeyPatch]:
    """Have these modules call the simulated system."""
    this_thread = threading.get_ident()

    def send_fds(stream: FakeSocket, buffers: Sequence[bytes], descriptors: Sequence[int]) -> int:
        is_short = stream._enter("send_fds", is_divisible=True)
        before = list(stream.passed)
        stream.passed += [system.open[number] for number in descriptors]
        try:
            return stream._send(b"".join(buffers)[: 5 if is_short else None], False)
        except OSError:
            stream.passed[:] = before
            raise

    def recv_fds(stream: FakeSocket, size: int, maximum: int) -> Tuple[bytes, List[int], int, None]:
        is_short = stream._enter("recv_fds", is_divisible=True)
        data = stream._recv(1 if is_short else size)
        passed, stream.passed = stream.passed[:maximum], stream.passed[maximum:]
        return data, [system.new_descriptor(each) for each in passed] if data else [], 0, None

    def select_(
        reading: Sequence[int], writing: Sequence[int], failing: Sequence[int], seconds: Optional[float] = None
    ) -> Tuple[List[int], List[int], List[int]]:
        system.enter("select")

        def readable() -> List[int]:
            return [number for number in reading if system.open[number].is_readable]

        system.wait(lambda: bool(readable() or writing), seconds)
        return readable(), list(writing), []

    def make_socket(family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> FakeSocket:
        system.enter("socket")
        return FakeSocket(system, family)

    def make_socketpair() -> Tuple[FakeSocket, FakeSocket]:
        system.enter("socketpair")
        return make_pair(system)

    def getaddrinfo(host: str, port: int, **_: Any) -> List[Any]:
        system.enter("getaddrinfo")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    def flock(*arguments: Any) -> None:
        system.enter("flock")
        fcntl.flock(*arguments)

    def make_map(*arguments: Any, **keywords: Any) -> Any:
        system.enter("mmap")
        return mmap.mmap(*arguments, **keywords)

    def open_file(path: Any, *arguments: Any, **keywords: Any) -> Any:
        if threading.get_ident() != this_thread:
            return builtins.open(path, *arguments, **keywords)
        system.enter("open")
        file = builtins.open(path, *arguments, **keywords)
        system.files.append(weakref.ref(file))
        return file

    def monotonic() -> float:
        return _tick(system)

    def sleep(seconds: float) -> None:
        _sleep(system, seconds)

    replaced: Dict[str, Any] = {
        "os": _FakeOs(system),
        "socket": _FakeModule(
            socket,
            socket=make_socket,
            socketpair=make_socketpair,
            send_fds=send_fds,
            recv_fds=recv_fds,
            getaddrinfo=getaddrinfo,
        ),
        "select": _FakeModule(select, select=select_, poll=lambda: _Poll(system, False)),
        "readiness": _FakeModule(readiness, poll=lambda: _Poll(system, False), epoll=lambda: _Poll(system, True)),
        "time": _FakeModule(time, monotonic=monotonic, sleep=sleep),
        "system": _FakeModule(host_system, flock=flock),
        "mmap": _FakeModule(mmap, mmap=make_map),
    }
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            for name, stand_in in replaced.items():
                if isinstance(getattr(module, name, None), ModuleType):
                    patch.setattr(module, name, stand_in)
            patch.setattr(module, "open", open_file, raising=False)
        yield patch
