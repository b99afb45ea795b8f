"""Connections between peers and the scheduler.

    peer ── up ──▶ scheduler        each direction keeps its order; connections are reordered against each other
    peer ◀─ down ─ scheduler

Rules:
- A connection ends for each side at a time of its own, or without a word: then only silence tells.
- A partition holds what is under way back until it has healed, in one direction or in both.
- A peer on the scheduler's host, which shares its files, has a local connection: that ends only with either program.
- Messages travel as bytes: no two programs share an object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from whole_system.simulated_world import NEVER, Pipe, Process, World
from whole_system.tenants import OWNER

from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import decode, encode

if TYPE_CHECKING:
    from whole_system.scheduler_host import SchedulerHost

UNREAD = 5  # messages, beyond which a peer is congested
LEAST_PAUSE_SECONDS = 0.03  # between two connections of a peer
SECONDS_OF_TWO_BEATS = 3.0
PARTITION_SECONDS = (0.5, 3.0, 12.0)

Item = Optional[Tuple[bytes, bytes]]  # a message; None: the end of the connection


class Peer(Process):
    """A client or worker, as its connection sees it."""

    name = ""
    is_shared = False
    """It is on the scheduler's host, and sees its files."""
    key = OWNER
    """What it is admitted as."""
    unit = ""
    """Of which a worker is a part."""
    has_finished = False
    """A worker has ended by itself, and was not killed."""
    connection: Optional[Connection] = None
    _connected_at = -NEVER  # when it last tried to, by its own clock
    _beats = 0  # heartbeats in this connection

    def on_connected(self) -> None:
        raise NotImplementedError

    def on_connect_failed(self, reason: str) -> None:
        raise NotImplementedError

    def on_disconnected(self, reason: str) -> None:
        raise NotImplementedError

    def on_message(self, message: Any, payload: bytes) -> None:
        raise NotImplementedError

    # Its connections ------------------------------------------------------------------------------------------------

    can_resume = False
    """Its sessions may go on over another connection."""

    def connections(self) -> List[Connection]:
        """All that it has."""
        return [] if self.connection is None else [self.connection]

    def uses(self, connection: Connection) -> bool:
        """Whether it has not closed a connection."""
        return self.connection is connection

    def on_established(self, connection: Connection) -> None:
        self.on_connected()

    def on_refused(self, connection: Connection) -> None:
        self.drop()
        self.on_connect_failed("connection refused")

    def on_end_of(self, connection: Connection) -> None:
        self.drop()
        self.on_disconnected("the connection was closed")

    def on_arrival(self, connection: Connection, message: Any, frames: Tuple[bytes, bytes]) -> None:
        self.on_message(message, frames[1])

    # What its shell does --------------------------------------------------------------------------------------------

    @property
    def has_session(self) -> bool:
        """Whether it has to beat."""
        return False

    def connect(self, network: Network) -> None:
        pause_seconds, self._connected_at = self.now - self._connected_at, self.now
        assert pause_seconds > LEAST_PAUSE_SECONDS, f"{self.name} reconnects after {pause_seconds:.3f} s"
        self.drop()
        self._beats = 0
        self.connection = Connection(network, self)
        self.world.after(self.world.delay(), self.connection.establish)

    def drop(self) -> None:
        """Close the connection; what was sent is still under way."""
        if self.connection is not None:
            self.connection.close_by_peer()
            self.connection = None

    def send(self, message: Any, payload: Union[bytes, bytearray, memoryview] = b"") -> None:
        if isinstance(message, m.Heartbeat):
            self._beats += 1
        if self.connection is not None:
            self.connection.up.send((encode(message), bytes(payload)))


class Connection:
    """Parameters:
    peer: who opens it.
    """

    def __init__(self, network: Network, peer: Peer) -> None:
        world = self.world = network.world
        self.network = network
        self.peer = peer
        self.name = network.new_name(peer)
        self.is_established = False
        self.is_congested = False
        self._former_results: Optional[Tuple[m.TaskResult, bytes]] = None
        reading_seconds = world.random.choice((0.01, 0.1)) if world.fault("slow_reader") else 0.0
        self.up = Pipe(network.scheduler, self._arrive_up, world.delay)
        self.down = Pipe(peer, self._arrive_down, world.delay, reading_seconds)
        self.up.held_until, self.down.held_until = network.held_until.get(peer.name, (0.0, 0.0))

    def establish(self) -> None:
        peer, network = self.peer, self.network
        if not peer.uses(self):
            return
        if self.world.now < network.partitioned_until.get(peer.name, 0.0):
            self.world.at(network.partitioned_until[peer.name], self.establish)
        elif network.scheduler.is_up:
            self.is_established = True
            network.connections[self.name] = self
            network.scheduler.on_authenticated(self.name, peer)
            peer.at(self.world.now, self._tell_connected)
        else:
            peer.at(self.world.now, self._refuse)

    def _tell_connected(self) -> None:
        if self.peer.uses(self):
            self.peer.on_established(self)

    def _refuse(self) -> None:
        if self.peer.uses(self):
            self.peer.on_refused(self)

    # Messages -------------------------------------------------------------------------------------------------------

    def _arrive_up(self, item: Item) -> None:
        if item is None:
            self.network.end(self)
        elif self.network.connections.get(self.name) is self:
            self.network.scheduler.on_arrived(self.name, item)
            message, payload = decode(item[0]), item[1]
            if isinstance(message, m.TaskResult) and self.world.rates["repeated_results"]:
                message, payload = self._with_former_results(message, payload)
            self.network.scheduler.on_message(self.name, message, payload)

    def _with_former_results(self, message: m.TaskResult, payload: bytes) -> Tuple[m.TaskResult, bytes]:
        """What a worker of another kind might send: the outcomes of its last report again, and then the new ones."""
        if message.objects:
            return message, payload
        former, self._former_results = self._former_results, (message, payload)
        if former is None or former[0].codec != message.codec or not self.world.fault("repeated_results"):
            return message, payload
        before, content = former
        both = m.TaskResult(ids=before.ids + message.ids, payload_sizes=before.payload_sizes + message.payload_sizes)
        both.codec = message.codec
        both.busy_microseconds = before.busy_microseconds + message.busy_microseconds
        if before.statuses or message.statuses:
            both.statuses = (before.statuses or bytes(len(before.ids))) + (message.statuses or bytes(len(message.ids)))
        return both, content + payload

    def _arrive_down(self, item: Item) -> None:
        peer = self.peer
        if not peer.uses(self):
            return
        if item is None:
            peer.on_end_of(self)
            return
        if self.is_congested and len(self.down.queue) <= 1:
            self._set_congested(False)
        message = decode(item[0])
        is_first = peer.connection is self
        peer.on_arrival(self, message, item)
        # Heartbeats wait for a slow disk.
        if isinstance(message, m.Welcome) and is_first and not self.world.rates["slow_disk"]:
            opened_at = self.world.now
            peer.after(SECONDS_OF_TWO_BEATS, lambda: self._check_beats(opened_at))

    def _check_beats(self, opened_at: float) -> None:
        peer = self.peer
        was_awake = peer.paused_until < opened_at and self.world.now < opened_at + SECONDS_OF_TWO_BEATS + 0.01
        if peer.connection is self and peer.has_session and was_awake:
            assert peer._beats >= 2, f"{peer.name} has beaten {peer._beats} times in {SECONDS_OF_TWO_BEATS} s"

    def send_down(self, header: bytes, payload: bytes) -> None:
        self.down.send((header, payload))
        if len(self.down.queue) > UNREAD and not self.is_congested:
            self._set_congested(True)

    def drop_unsent(self) -> None:
        """What has not left the scheduler yet never will."""
        if self.is_congested:
            del self.down.queue[UNREAD:]

    def _set_congested(self, is_congested: bool) -> None:
        self.is_congested = is_congested
        self.network.scheduler.on_congestion(self.name, is_congested)

    # Ends -----------------------------------------------------------------------------------------------------------

    def close_by_peer(self) -> None:
        self.down.cut()
        if self.is_established:
            if self._is_silent():
                self.up.cut()
            else:
                self.up.send(None)

    def close_by_scheduler(self) -> None:
        """The scheduler has died."""
        self.up.cut()
        self._end_at_peer()

    def snap(self) -> None:
        """It breaks: what is under way is lost, and each end hears of it, or does not."""
        self.up.cut()
        self._end_at_peer()
        if not self._is_silent():
            self.world.after(self.world.delay(), lambda: self.network.end(self))

    def _is_silent(self) -> bool:
        return not self.peer.is_shared and self.world.fault("silence")

    def _end_at_peer(self) -> None:
        self.down.cut()
        if not self._is_silent():
            self.peer.after(self.world.delay(), lambda: self._arrive_down(None))


class Network:
    """All connections of one scheduler."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scheduler: SchedulerHost
        self.connections: Dict[bytes, Connection] = {}  # that the scheduler has
        self.partitioned_until: Dict[str, float] = {}
        self.held_until: Dict[str, Tuple[float, float]] = {}  # up and down, of peers that can resume sessions
        self.judge: Any = None  # of sessions that go on over other connections
        self._count = 0

    def new_name(self, peer: Peer) -> bytes:
        self._count += 1
        return b"%s %d" % (peer.name.encode(), self._count)

    def send_down(self, name: bytes, header: bytes, payload: bytes) -> None:
        connection = self.connections.get(name)
        if connection is not None:
            connection.send_down(header, payload)

    def end(self, connection: Connection) -> None:
        """The scheduler learns that a connection has ended."""
        if self.connections.get(connection.name) is connection:
            del self.connections[connection.name]
            self.scheduler.on_peer_gone(connection.name)

    def take_over(self, name: bytes, newcomer: bytes) -> None:
        """What one connection was is another one now."""
        former, connection = self.connections[name], self.connections.pop(newcomer)
        former.name = b""
        former.up.cut()
        former._end_at_peer()
        connection.name, connection.is_congested = name, former.is_congested
        self.connections[name] = connection

    def end_all(self) -> None:
        """The scheduler has died."""
        connections, self.connections = list(self.connections.values()), {}
        for connection in connections:
            connection.close_by_scheduler()

    def disturb(self, peers: List[Peer]) -> None:
        """Break connections, and begin partitions."""
        for peer in peers:
            for connection in () if peer.is_shared else peer.connections():
                if connection.is_established:
                    self._disturb(peer, connection)

    def _disturb(self, peer: Peer, connection: Connection) -> None:
        if self.world.fault("break"):
            self.world.say("break", peer.name)
            connection.snap()
        both = self.world.fault("partition")
        if both or self.world.fault("one_way"):
            now = self.world.now
            until = now + self.world.random.choice(PARTITION_SECONDS)
            directions = [connection.up, connection.down]
            held = directions if both else [self.world.random.choice(directions)]
            self.world.say("partition", peer.name, "both" if both else "one way", until)
            if peer.can_resume:
                self._cut_off(peer, until, [each in held for each in directions])
                return
            for direction in held:
                direction.held_until = max(direction.held_until, until)
            if both:
                self.partitioned_until[peer.name] = until

    def _cut_off(self, peer: Peer, until: float, is_held: List[bool]) -> None:
        """Nothing passes in these directions, on no connection of a peer, and none is made. A connection that was there
        stays silent for as long again, as with systems that double the pauses between their attempts."""
        late = until + (until - self.world.now)
        for connection in peer.connections():
            for direction, held in zip((connection.up, connection.down), is_held):
                if held:
                    direction.held_until = max(direction.held_until, late)
        up, down = self.held_until.get(peer.name, (0.0, 0.0))
        self.held_until[peer.name] = max(up, until * is_held[0]), max(down, until * is_held[1])
        self.partitioned_until[peer.name] = max(self.partitioned_until.get(peer.name, 0.0), until)
