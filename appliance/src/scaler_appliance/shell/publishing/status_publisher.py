"""The socket that publishes to monitors: to any ZeroMQ library, an XPUB socket; its peers are SUB sockets.

    monitors ──subscriptions──▶ Subscriptions ◀── publish ── the reporter
       ▲                             │ next
       └──────── Connection ◀────────┘   in `serve`, when a monitor has read what was sent before

Rules:
- Publishing never blocks, and writes nothing: `serve` does, while the event loop says that a monitor can take more.
- What a monitor does not read is dropped, in whole messages: see `subscriptions`. It delays no other monitor.
- A round of `serve` takes SERVING_SECONDS and one monitor more; who has waited longest is served first. What a monitor
  costs is charged to the same allowances as what peers send that is no work: beyond that, it is not served for a while.
  What callers and the ends of connections cost is added up in `newcomer_seconds`: beyond the allowance that the owner
  charges for it, no caller is accepted.
- A caller has HANDSHAKE_SECONDS for its handshake, and may send 64 KiB in it. If all places are taken, the caller whose
  handshake has taken longest gives its place away; a connected monitor keeps its own.
- What a monitor sends besides subscriptions is ignored; if it is longer than MAXIMUM_MESSAGE_BYTES, the monitor is
  disconnected. A monitor that does not read the answers to what it sends is not read.
- Only its owner can access the socket's file. Who else calls needs a key that may read the status: see `admission`.
- A scheduler that was killed leaves its monitor's socket file behind; the next one to start removes it.
"""

from __future__ import annotations

import os
import re
import socket
import time
from contextlib import suppress
from typing import Callable, Dict, List, Optional, Tuple

from scaler_appliance.core.peers.authority import view_of
from scaler_appliance.shell.acceptor import Acceptor, RejectedError
from scaler_appliance.shell.admission import Admission, Caller
from scaler_appliance.shell.allowances import Allowances
from scaler_appliance.shell.caller_origins import CallerOrigins
from scaler_appliance.shell.connection_ends import FAULT_SECONDS, ConnectionEnds, is_fault
from scaler_appliance.shell.fair_turns import at_work
from scaler_appliance.shell.listening import listen, remove_socket_file, sweep_abandoned
from scaler_appliance.shell.publishing.subscriptions import Interest, Subscriptions
from scaler_protocol.host import readiness
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.host.connection import Connection
from scaler_protocol.keys.allow_list import ANY_TENANT, READ_STATUS
from scaler_protocol.wire.curve import KeyRejectedError
from scaler_protocol.wire.secure_zmtp import SecureZmtp

MAXIMUM_MONITORS = 64  # with callers that are not connected yet
MAXIMUM_MESSAGE_BYTES = 1024  # from a monitor
MAXIMUM_WAITING_BYTES = 256 * 1024 * 1024
UNREAD_ANSWER_BYTES = 64 * 1024
HANDSHAKE_SECONDS = 5.0
SERVING_SECONDS = 0.002
STOOD_STILL_SECONDS = 3.0
"""After a longer time between two sweeps this process was stopped, and heard no monitor."""

_DEFAULT_NAME = re.compile(r"[0-9a-z.]+_\d+_monitor")
_OTHER_ADDRESS = "choose another --monitor-address"
_ADVICE = "close other monitors, or raise the limit of open files (ulimit -n)"


class _Monitor:
    """One connection and its state."""

    __slots__ = ("name", "label", "origin", "connection", "caller", "deadline", "events", "last_turn", "resumes_at")

    def __init__(
        self, name: bytes, label: str, origin: str, connection: Connection, caller: Caller, deadline: float, turn: int
    ) -> None:
        self.name = name
        self.label = label  # for the log
        self.origin = origin
        self.connection = connection
        self.caller = caller
        self.deadline: Optional[float] = deadline  # of its handshake; None: it is connected
        self.events = readiness.EPOLLIN
        self.last_turn = turn
        self.resumes_at: Optional[float] = None  # until then it is not served


class StatusPublisher:
    """A listening socket for monitors, and all monitors.

    Parameters:
        address: where to listen.
        maximum_waiting_bytes: of publications that wait for monitors, all together.
        maximum_monitors: further callers are rejected.
        admission: decides about callers; None: all of them may do everything.

    Attributes:
        address: where monitors connect.
        acceptor: accepts callers, unless the owner pauses it.
        newcomer_seconds: what callers and the ends of connections have cost; the owner charges it, and sets it to zero.

    Raises OSError when one cannot listen at the address, AddressError if it is malformed.
    """

    def __init__(
        self,
        address: str,
        maximum_waiting_bytes: int = MAXIMUM_WAITING_BYTES,
        maximum_monitors: int = MAXIMUM_MONITORS,
        admission: Optional[Admission] = None,
    ) -> None:
        self.newcomer_seconds = 0.0
        self._origins = CallerOrigins()
        self._ends = ConnectionEnds()
        self._now = 0.0  # when it was last asked to serve
        self._maximum_monitors = maximum_monitors
        self._admission = admission or Admission()
        self._subscriptions = Subscriptions(maximum_waiting_bytes)
        self._monitors: Dict[bytes, _Monitor] = {}
        self._by_descriptor: Dict[int, _Monitor] = {}
        self._connecting: Dict[bytes, _Monitor] = {}  # oldest first
        self._paused: Dict[bytes, _Monitor] = {}
        self._gone: Dict[bytes, None] = {}  # whose allowances are not settled
        self._last_number = 0
        self._turn = self._last_acceptance = 0
        self._last_sweep: Optional[float] = None
        try:
            sweep_abandoned(os.path.dirname(parse_address(address).path), _DEFAULT_NAME)
        except OSError as error:
            raise OSError(
                f"cannot look for stale sockets beside {address}: {error.strerror}; {_OTHER_ADDRESS}"
            ) from error
        listener, self.address = listen(parse_address(address), is_private=True, advice=_OTHER_ADDRESS)
        self._epoll = readiness.epoll()
        self.acceptor = Acceptor(self.address, [listener], self._epoll, self._add, _ADVICE)

    def fileno(self) -> int:
        """Readable whenever `serve` has something to do."""
        return self._epoll.fileno()

    def interest(self) -> Interest:
        """The current subscriptions of monitors."""
        return self._subscriptions.interest()

    def views(self, topic: bytes) -> List[str]:
        """What the subscribers to a topic may see: tenants, or ANY_TENANT."""
        return self._subscriptions.views(topic)

    def publish(self, topic: bytes, header: bytes, view: str = ANY_TENANT) -> None:
        """Let a message wait for the subscribers of a topic that have a view."""
        # SCL-MON-002
        for name in self._subscriptions.publish(topic, header, view):
            self._try(self._monitors[name], self._watch)
        self._make_room()

    def _make_room(self) -> None:
        name = self._subscriptions.to_disconnect()
        while name is not None:
            self._lose(
                self._monitors[name], TimeoutError("it has not read its messages, and no room is left for others")
            )
            name = self._subscriptions.to_disconnect()

    # A round --------------------------------------------------------------------------------------------------------

    def serve(self, now: float, allowances: Allowances) -> None:
        """Accept, read and write for a short while, where that is possible without waiting.

        Parameters:
            now: the time before this call, in seconds of any monotonic clock.
            allowances: to charge monitors for what they cost.
        """
        self._now = now
        clock = time.perf_counter
        end = begin = clock()
        try:
            ready = sorted(self._epoll.poll(0.0), key=self._turn_of)
        except (OSError, MemoryError):
            return  # those who are ready stay so
        for descriptor, events in ready:
            if end - begin > SERVING_SECONDS:
                break
            before = end
            self._turn += 1
            monitor = self._by_descriptor.get(descriptor)
            if monitor is not None:
                monitor.last_turn = self._turn
                self._serve_monitor(monitor, events)
            elif descriptor in self.acceptor:
                self._last_acceptance = self._turn
                self.acceptor.accept(descriptor, now)
            end = clock()
            seconds = at_work(end - before)
            if monitor is None or monitor.deadline is not None or monitor.name not in self._monitors:
                self.newcomer_seconds += seconds
            else:
                self._charge(monitor, now, seconds, allowances)
        self._settle(now, allowances)

    def _turn_of(self, each: Tuple[int, int]) -> int:
        """Sorts what is ready: who has waited longest is first. Callers have one turn together."""
        monitor = self._by_descriptor.get(each[0])
        return monitor.last_turn if monitor is not None else self._last_acceptance

    def _charge(self, monitor: _Monitor, now: float, seconds: float, allowances: Allowances) -> None:
        pause_seconds = allowances.charge(monitor.name, now, seconds)
        if pause_seconds:
            monitor.resumes_at = now + pause_seconds
            self._paused[monitor.name] = monitor
            self._try(monitor, self._watch)

    def _settle(self, now: float, allowances: Allowances) -> None:
        """What monitors had used that have gone is charged to callers: connecting again does not help."""
        while self._gone:
            name, _ = self._gone.popitem()
            self.newcomer_seconds += allowances.forget(name, now)

    def _serve_monitor(self, monitor: _Monitor, events: int) -> None:
        if events & ~readiness.EPOLLOUT:
            self._try(monitor, self._read)
        if monitor.name in self._monitors:
            self._try(monitor, self._write)

    def _try(self, monitor: _Monitor, act: Callable[[_Monitor], None]) -> None:
        """Whatever fails for one monitor, out of memory included, costs that monitor its connection, and no other."""
        try:
            act(monitor)
        except Exception as error:
            self._lose(monitor, error)

    def _read(self, monitor: _Monitor) -> None:
        connection = monitor.connection
        messages = connection.receive()
        if monitor.deadline is not None and connection.is_ready:
            grant = self._admission.authenticate(monitor.caller)
            if not grant.may(READ_STATUS):
                raise KeyRejectedError(f"a key with the role {grant.role} cannot be used by a monitor")
            monitor.deadline = None
            del self._connecting[monitor.name]
            self._subscriptions.admit(monitor.name, view_of(grant))
        for frames in messages:
            self._subscriptions.on_message(monitor.name, frames)

    def _write(self, monitor: _Monitor) -> None:
        connection, subscriptions = monitor.connection, self._subscriptions
        connection.flush()
        while not connection.has_unsent:
            frames = subscriptions.next(monitor.name)
            if frames is None:
                break
            connection.send(frames)
        if isinstance(connection.protocol, SecureZmtp):  # sealed for this monitor alone
            subscriptions.copied(monitor.name, connection.unsent_bytes)
            self._make_room()
        if monitor.name in self._monitors:
            self._watch(monitor)

    def _watch(self, monitor: _Monitor) -> None:
        """Wait for what is possible now.

        Raises OSError if it cannot be watched.
        """
        connection, subscriptions = monitor.connection, self._subscriptions
        events = 0
        if monitor.resumes_at is None:
            answer_bytes = connection.unsent_bytes - subscriptions.size_on_its_way(monitor.name)
            events = readiness.EPOLLIN if answer_bytes <= UNREAD_ANSWER_BYTES else 0
            if connection.has_unsent or subscriptions.has_waiting(monitor.name):
                events |= readiness.EPOLLOUT
        if events == monitor.events:
            return
        if not events:  # not even for the connection's end, which would be reported again and again
            self._epoll.unregister(connection.fileno())
        elif monitor.events:
            self._epoll.modify(connection.fileno(), events)
        else:
            self._epoll.register(connection.fileno(), events)
        monitor.events = events

    # Callers --------------------------------------------------------------------------------------------------------

    def _add(self, stream: socket.socket, label: str, origin: str, now: float) -> None:
        if self._origins.is_blocked(origin, now):
            raise RejectedError(f"callers from {origin} have made too many faults")
        if len(self._monitors) >= self._maximum_monitors and self._connecting:
            oldest = next(iter(self._connecting.values()))
            self._lose(oldest, TimeoutError("its handshake takes long, and others call"))
        if len(self._monitors) >= self._maximum_monitors:
            raise RejectedError(f"there are {len(self._monitors)} monitors; {_ADVICE}")
        caller = self._admission.caller(stream, "XPUB", MAXIMUM_MESSAGE_BYTES)
        connection = Connection(stream, caller.protocol)
        connection.start()
        self._last_number += 1
        name, deadline = b"monitor %d" % self._last_number, now + HANDSHAKE_SECONDS
        monitor = _Monitor(name, f"{label} (monitor)", origin, connection, caller, deadline, self._turn)
        self._epoll.register(connection.fileno(), readiness.EPOLLIN)
        self._subscriptions.add(name, view=None)
        self._monitors[name] = self._connecting[name] = self._by_descriptor[connection.fileno()] = monitor

    def sweep(self, now: float) -> None:
        """Disconnect callers whose handshake takes too long, and serve those again whose pause is over.

        To be called about once a second, with the time before reading.
        """
        before, self._last_sweep = self._last_sweep, now
        has_stood_still = before is not None and now - before > STOOD_STILL_SECONDS
        for monitor in list(self._connecting.values()):
            if has_stood_still:
                monitor.deadline = now + HANDSHAKE_SECONDS
            elif monitor.deadline is not None and now > monitor.deadline:
                self._lose(monitor, TimeoutError("its handshake has taken too long"))
        for monitor in list(self._paused.values()):
            if monitor.resumes_at is not None and now >= monitor.resumes_at:
                del self._paused[monitor.name]
                monitor.resumes_at = None
                self._try(monitor, self._watch)
        self.acceptor.sweep()
        self._ends.report()

    # Ends -----------------------------------------------------------------------------------------------------------

    def review(self) -> None:
        """Disconnect monitors whose keys are not admitted any more."""
        for monitor in list(self._monitors.values()):
            try:
                self._admission.check(monitor.caller)
            except KeyRejectedError as error:
                self._lose(monitor, error)

    def _lose(self, monitor: _Monitor, error: Exception) -> None:
        if monitor.name not in self._monitors:
            return
        if is_fault(error) and not self._origins.charge(monitor.origin, self._now, FAULT_SECONDS):
            self.newcomer_seconds += FAULT_SECONDS
        self._ends.log(monitor.label, error, monitor.connection.peer_has_spoken, monitor.deadline is None)
        self._remove(monitor)

    def _remove(self, monitor: _Monitor) -> None:
        del self._monitors[monitor.name]
        self._connecting.pop(monitor.name, None)
        self._paused.pop(monitor.name, None)
        self._subscriptions.remove(monitor.name)
        self._gone[monitor.name] = None
        del self._by_descriptor[monitor.connection.fileno()]
        with suppress(OSError):
            self._epoll.unregister(monitor.connection.fileno())
        with suppress(OSError):  # the descriptor is closed nevertheless
            monitor.connection.close()

    def close(self) -> None:
        """Stop listening, and disconnect all monitors; what waits for them is dropped."""
        self.acceptor.close()
        remove_socket_file(self.address)
        for monitor in list(self._monitors.values()):
            self._remove(monitor)
        self._epoll.close()
