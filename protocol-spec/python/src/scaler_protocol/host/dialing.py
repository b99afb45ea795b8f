"""Connecting to the first that answers of all places where a scheduler may be: "happy eyeballs" (RFC 8305).

    Dialing ─▶ a thread for each name: getaddrinfo ─┐
        ▲                                           ▼
        └── fileno() is readable ◀── a thread: Race, sockets that connect, poll

Rules:
- Neither resolving names nor connecting makes the caller wait: threads do that, and a descriptor tells the end. So one
  way fits a thread that polls and an event loop, and a name server that is silent delays no heartbeat.
- Names are resolved again at each attempt, since a scheduler that was started elsewhere has another address.
- `Race` decides which place is tried when. It has no socket, clock or thread.
- An owner that gives up closes its end, and the threads clean up. A resolver's thread ends when the system's resolver
  does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections import deque
from typing import Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from scaler_protocol.host import readiness
from scaler_protocol.host.addresses import Address, AttemptsFailedError, Target, is_numeric, resolve_all

ATTEMPT_DELAY_SECONDS = 0.25
"""How long a place has before the next one is tried as well: RFC 8305, section 5."""

_LONGEST_POLL_SECONDS = 1.0
"""After that, the thread looks whether its owner is still there: a fork of it may hold the owner's end open."""


class Place(NamedTuple):
    """One place where the scheduler may be.

    Attributes:
        position: of its address in the list.
        rank: among the places of that address.
    """

    position: int
    rank: int
    target: Target


class Race:
    """Which place is tried when.

    Parameters:
        count: of addresses, in order of preference.
        now: seconds of any monotonic clock, here and below.

    Attributes:
        failures: the position of the address, the place (None: the name was not resolved), and what happened.
    """

    def __init__(self, count: int, now: float) -> None:
        self.failures: List[Tuple[int, Optional[Place], OSError]] = []
        self._unresolved: Set[int] = set(range(count))
        self._waiting: List[Place] = []
        self._running: Dict[Place, None] = {}
        self._next_at = now
        self._hold_until = now + ATTEMPT_DELAY_SECONDS  # for names of preferred addresses

    def on_resolved(self, position: int, targets: Sequence[Target]) -> None:
        """An address stands for these places."""
        self._unresolved.discard(position)
        self._waiting += [Place(position, rank, target) for rank, target in enumerate(targets)]
        self._waiting.sort(key=lambda place: place[:2])

    def on_unresolved(self, position: int, error: OSError) -> None:
        """The name of an address cannot be resolved."""
        self._unresolved.discard(position)
        self.failures.append((position, None, error))

    def on_failed(self, place: Place, error: OSError, now: float) -> None:
        """An attempt has failed: the next one begins at once."""
        del self._running[place]
        self.failures.append((place.position, place, error))
        self._next_at = now

    def take_due(self, now: float) -> Optional[Place]:
        """A place to be tried now; None if there is none yet."""
        if now < self.next_time:
            return None
        place = self._waiting.pop(0)
        self._running[place] = None
        self._next_at = now + ATTEMPT_DELAY_SECONDS
        return place

    @property
    def next_time(self) -> float:
        """When the next place is to be tried; infinite if that depends on events."""
        if not self._waiting:
            return float("inf")
        at = self._next_at if self._running else min(self._next_at, self._hold_until)
        is_preferred_unknown = any(position < self._waiting[0].position for position in self._unresolved)
        return max(at, self._hold_until) if is_preferred_unknown else at

    @property
    def is_lost(self) -> bool:
        """Whether all has failed."""
        return not (self._unresolved or self._waiting or self._running)

    def end(self) -> None:
        """Time is over: what is under way has failed."""
        timeout = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        for place in (*self._running, *self._waiting):
            self.failures.append((place.position, place, timeout))
        silent = socket.gaierror(socket.EAI_AGAIN, "no answer in time")
        self.failures += [(position, None, silent) for position in sorted(self._unresolved)]
        self._running.clear()
        self._waiting.clear()
        self._unresolved.clear()


class Dialing:
    """An attempt to connect, which is under way.

    Parameters:
        addresses: where the scheduler may be; the first is preferred.

    Attributes:
        reached: the address that has answered, once `finish` has returned a stream.

    Raises OSError or MemoryError if the system has no room for a thread or a descriptor.
    """

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.reached = addresses[0]
        self._addresses = addresses
        self._race = Race(len(addresses), time.monotonic())
        self._lock = threading.Lock()  # of the race
        self._connected: Deque[Tuple[Address, socket.socket]] = deque()
        self._is_abandoned = False
        self._reader, writer = socket.socketpair()
        try:
            self._reader.setblocking(False)
            threading.Thread(target=self._run, args=(writer,), name="scaler-connect", daemon=True).start()
        except (RuntimeError, OSError) as error:
            writer.close()
            self._reader.close()
            raise OSError(errno.EAGAIN, f"no room for a thread: {error}") from error

    def fileno(self) -> int:
        """Readable when `finish` has something to say."""
        return self._reader.fileno()

    def finish(self) -> Optional[socket.socket]:
        """The connected stream, which belongs to the caller from now on; None: not yet.

        Raises OSError if there will be none.
        """
        try:
            self._reader.recv(1)
        except (BlockingIOError, InterruptedError):
            return None
        if not self._connected:
            raise self.error()
        self.reached, stream = self._connected.pop()
        return stream

    def error(self) -> OSError:
        """What has happened at each place; those that have not answered count as silent."""
        with self._lock:
            if not self._race.is_lost:
                self._race.end()
            failures = [(self._addresses[at], _host(place), error) for at, place, error in self._race.failures]
        return AttemptsFailedError(failures) if failures else OSError(errno.EAGAIN, "this host lacks resources")

    def close(self) -> None:
        """Give up, if it is still under way. Idempotent."""
        self._is_abandoned = True
        self._close_connected()
        self._reader.close()

    def _close_connected(self) -> None:
        with contextlib.suppress(IndexError, OSError):  # one of two threads gets it
            self._connected.pop()[1].close()

    # In threads -----------------------------------------------------------------------------------------------------

    def _run(self, owner: socket.socket) -> None:
        attempts = _Attempts(owner)
        try:
            place = self._dial(attempts)
            if place is not None:
                self._connected.append((self._addresses[place.position], attempts.take(place)))
        except (OSError, MemoryError, RuntimeError):
            pass  # `finish` says that this host lacks resources
        finally:
            attempts.close()
            with contextlib.suppress(OSError):
                owner.send(b"\0")
            owner.close()
            if self._is_abandoned:
                self._close_connected()

    def _dial(self, attempts: _Attempts) -> Optional[Place]:
        for position, address in enumerate(self._addresses):
            parts = position, address, attempts.waker()
            if is_numeric(address):
                self._resolve(*parts)
            else:
                threading.Thread(target=self._resolve, args=parts, name="scaler-resolve", daemon=True).start()
        while not self._is_abandoned:
            with self._lock:
                now = time.monotonic()
                place = self._race.take_due(now)
                timeout_seconds = min(self._race.next_time - now, _LONGEST_POLL_SECONDS)
                is_lost = self._race.is_lost
            if is_lost:
                return None
            if place is not None:
                ended = attempts.begin(place)
            else:
                ended = attempts.wait(max(0.0, timeout_seconds))
            for each, error in ended:
                if error is None:
                    return each
                with self._lock:
                    if not self._race.is_lost:  # it may have been ended meanwhile
                        self._race.on_failed(each, error, time.monotonic())
            if attempts.is_abandoned:
                return None
        return None

    def _resolve(self, position: int, address: Address, waker: socket.socket) -> None:
        error: Optional[OSError] = None
        targets: List[Target] = []
        try:
            targets = resolve_all(address)
        except OSError as failure:
            error = failure
        except MemoryError:
            error = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        with self._lock:
            if not self._race.is_lost:
                if error is None:
                    self._race.on_resolved(position, targets)
                else:
                    self._race.on_unresolved(position, error)
        with contextlib.suppress(OSError):  # the race is over
            waker.send(b"\0")
        waker.close()


class _Attempts:
    """The sockets of one race, of which one may win.

    Parameters:
        owner: becomes readable when the owner has given up.
    """

    def __init__(self, owner: socket.socket) -> None:
        self.is_abandoned = False
        self._owner = owner
        self._awake, self._waker = socket.socketpair()
        self._awake.setblocking(False)
        self._streams: Dict[int, Tuple[Place, socket.socket]] = {}
        self._poll = readiness.poll()
        self._poll.register(owner.fileno(), readiness.POLLIN)
        self._poll.register(self._awake.fileno(), readiness.POLLIN)

    def waker(self) -> socket.socket:
        """Ends `wait` when something is written to it; belongs to the caller."""
        return self._waker.dup()

    def begin(self, place: Place) -> List[Tuple[Place, Optional[OSError]]]:
        """Try a place; returns what is known of it already."""
        stream: Optional[socket.socket] = None
        try:
            stream = socket.socket(place.target[0], socket.SOCK_STREAM)
            stream.setblocking(False)
            number = stream.connect_ex(place.target[1])
        except OSError as error:
            if stream is not None:
                stream.close()
            return [(place, error)]
        if number not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            stream.close()
            return [(place, OSError(number, os.strerror(number)))]
        self._streams[stream.fileno()] = place, stream
        if not number:
            return [(place, None)]
        self._poll.register(stream.fileno(), readiness.POLLOUT)
        return []

    def wait(self, timeout_seconds: float) -> List[Tuple[Place, Optional[OSError]]]:
        """Wait for something to happen; returns the attempts that have ended, and how."""
        ended: List[Tuple[Place, Optional[OSError]]] = []
        for descriptor, _ in self._poll.poll(timeout_seconds * 1000):
            if descriptor == self._owner.fileno():
                self.is_abandoned = True
            elif descriptor == self._awake.fileno():
                self._awake.recv(64)
            else:
                place, stream = self._streams[descriptor]
                number = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not number:
                    return [*ended, (place, None)]
                self._poll.unregister(descriptor)
                del self._streams[descriptor]
                stream.close()
                ended.append((place, OSError(number, os.strerror(number))))
        return ended

    def take(self, place: Place) -> socket.socket:
        """The stream that has won."""
        (found,) = [descriptor for descriptor, (each, _) in self._streams.items() if each == place]
        return self._streams.pop(found)[1]

    def close(self) -> None:
        for _, stream in self._streams.values():
            with contextlib.suppress(OSError):
                stream.close()
        self._awake.close()
        self._waker.close()


def _host(place: Optional[Place]) -> str:
    """The host of a place, as a number; empty if there is none."""
    return "" if place is None or isinstance(place.target[1], str) else place.target[1][0]
