"""A simulated cluster around the real core: one seed, one run.

    clients, workers ──links (ordered, delayed, pausable, breakable)──▶ core ──effects──▶ links, files

Rules:
- All chance comes from the seed, and all time from the virtual clock: a run can be repeated exactly.
- A link keeps its own order; links are reordered against each other.
- After each event, or after some, invariants of the core are checked. Whether the outcome is right is judged from
  outside: by the clients, who see only what real clients see, and by the Checker, who sees the messages of all.
- A scheduler may be killed and restarted: connections break then, messages in transit are lost, and the peers
  join again.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, NamedTuple, Sequence, Set, Tuple

from simulation.actors import ActorWorld
from simulation.checker import Checker
from simulation.monitors import Monitor
from simulation.provisioning_world import ProvisioningWorld
from simulation.transfer_world import TransferWorld

from scaler_appliance.core.effects import (
    Effect,
    Forget,
    Log,
    PeerError,
    RemoveObject,
    Send,
    SendChunk,
    SpillObject,
    Stop,
    StoreChunk,
)
from scaler_appliance.core.objects.object_memory import RETRY_SECONDS
from scaler_appliance.core.scheduler_core import WATCH_INTERVAL_SECONDS, SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_protocol import messages as m
from scaler_protocol.session.ids import SESSION_SHIFT

if TYPE_CHECKING:
    from simulation.peers import Peer

SAFETY_SECONDS = (1.5, 3.0, 6.0)
LIVENESS_SECONDS = 3000.0
TIMEOUT_SECONDS = 5.0
CHUNK_BYTES = 16
LARGE_BYTES = 12  # objects of which monitors are told one by one
MUCH_UNREAD = 5  # messages
STRETCH_EVENTS, STRETCHES = 16, 4  # the core's invariants are checked after each event of every fourth stretch
CHANGING_SHARE = 0.4  # of the seeds: their user changes options


class Rates(NamedTuple):
    """How often things go wrong, as chances for each step of a peer; drawn from the seed."""

    crash: float
    pause: float
    leave: float
    violate: float
    cancel: float
    duplicate: float
    give_back: float  # by a worker that was not asked to
    join: float  # of one more worker
    processor_death: float
    nest: float
    restart: float
    disk_full: float  # when a file is to be copied there
    memory_full: float  # when one is about to be written
    delay_seconds: float
    burst_seconds: Tuple[float, ...]  # for how long the scheduler gathers messages before it decides

    @staticmethod
    def draw(random: Random) -> Rates:
        def rate(most: float) -> float:
            return random.choice((0.0, 0.0, most / 4, most))

        return Rates(
            crash=rate(0.08),
            pause=rate(0.08),
            leave=rate(0.05),
            violate=rate(0.04),
            cancel=rate(1.0),
            duplicate=rate(0.2),
            give_back=rate(0.2),
            join=rate(0.1),
            processor_death=rate(0.1),
            nest=rate(0.3),
            restart=rate(0.5),
            disk_full=rate(0.8),
            memory_full=rate(0.5),
            delay_seconds=random.choice((0.0005, 0.01, 0.3)),
            burst_seconds=random.choice(((0.0, 0.0, 0.001), (0.0, 0.005), (0.01, 0.1))),
        )


class Link:
    """One peer's connection: what is under way in each direction."""

    def __init__(self, world: World, peer: Peer, name: bytes) -> None:
        self._world = world
        self._peer = peer
        self.name = name
        self.is_open = True
        self.epoch = 0  # of the connection: it may break and be made again
        self.paused_until = 0.0
        self.is_congested = False
        self._inbox: Deque[Tuple[object, bytes]] = deque()
        self._last_arrival = {"up": 0.0, "down": 0.0}

    def _arrival(self, direction: str) -> float:
        delay = self._world.random.expovariate(1 / self._world.rates.delay_seconds)
        arrival = max(self._world.now + delay, self._last_arrival[direction], self.paused_until)
        self._last_arrival[direction] = arrival
        return arrival

    def send_up(self, message: m.Member, payload: bytes) -> None:
        """From the peer to the scheduler; what was sent before a crash still arrives."""
        epoch = self.epoch
        self._world.under_way += 1
        self._world.at(self._arrival("up"), lambda: self._arrive(epoch, message, payload))

    def _arrive(self, epoch: int, message: m.Member, payload: bytes) -> None:
        self._world.under_way -= 1
        if epoch == self.epoch:
            self._world.deliver(self.name, message, payload)

    def break_off(self) -> None:
        """What is under way is lost; the peer makes the connection again."""
        self.epoch += 1
        self._inbox.clear()
        if self.is_open:
            self._peer.on_connection_lost()

    def send_down(self, message: object, payload: bytes) -> None:
        self._inbox.append((message, payload))
        if len(self._inbox) > MUCH_UNREAD and not self.is_congested:
            self._set_congested(True)
        epoch = self.epoch
        self._world.under_way += 1
        self._world.at(self._arrival("down"), lambda: self._read_next(epoch))

    def _read_next(self, epoch: int) -> None:
        """The peer reads a message, unless it sleeps or is dead."""
        if self._world.now < self.paused_until:
            self._world.at(self.paused_until, lambda: self._read_next(epoch))
            return
        self._world.under_way -= 1
        if self.is_open and epoch == self.epoch:
            if self.is_congested and len(self._inbox) <= 1:
                self._set_congested(False)
            self._peer.on_message(*self._inbox.popleft())

    def _set_congested(self, is_congested: bool) -> None:
        self.is_congested = is_congested
        self._world.under_way += 1
        self._world.at(self._world.now, lambda: self._tell_congestion(is_congested))

    def _tell_congestion(self, is_congested: bool) -> None:
        self._world.under_way -= 1
        self._world.tell_congestion(self.name, is_congested)


class World:
    """Clock, links, files, and the core.

    Parameters:
        seed: decides everything.
        events_per_check: outside of stretches that are checked closely.
        has_stretches: there are some; which ones depends on the seed.
    """

    def __init__(self, seed: int, events_per_check: int = 1, has_stretches: bool = False) -> None:
        self.events_per_check, self.has_stretches = events_per_check, has_stretches
        self.random = Random(seed)
        self._seed = seed
        self.rates = Rates.draw(self.random)
        self.needs_random = Random(f"tasks that need others: {seed}")  # histories without them stay what they were
        self.needs = self.needs_random.choice((0.0, 0.0, 0.3, 0.9))  # how often a client submits such tasks
        self.tenants_random = Random(f"tenants: {seed}")  # histories without them stay what they were
        self.leaving_random = Random(f"leaving: {seed}")
        self.drain_rate = self.leaving_random.choice((0.0, 0.0, 0.01, 0.05))  # of workers that ask to be drained
        self.has_tenants = self.tenants_random.random() < 0.4
        self.actors = ActorWorld(seed)
        self.tenants: Dict[bytes, str] = {}  # by link, of those that have keys
        self.kept_random = Random(f"kept results: {seed}")  # histories without them stay what they were
        self.kept_rate = self.kept_random.choice((0.0, 0.0, 0.5, 1.0))  # of large results that stay with their workers
        self.transfers = TransferWorld(seed)
        self.provisioning = ProvisioningWorld(seed)
        if self.transfers.loses_no_worker:
            self.rates = self.rates._replace(crash=0.0, pause=0.0, leave=0.0, violate=0.0, restart=0.0)
            self.drain_rate = 0.0  # one that is asked a second time leaves at once
        self.now = 0.0
        self.is_calm = False  # faults have stopped
        self.stopped = ""
        self.links: Dict[bytes, Link] = {}
        self.files: Dict[int, bytearray] = {}
        self.on_disk: Set[int] = set()  # those of the files that are not in memory
        self.spills: Set[int] = set()  # those that are being copied
        self.disk_was_full = -RETRY_SECONDS
        self.starts: Dict[Tuple[int, bytes], int] = {}  # how often each task was started, by client and payload
        self.events = 0
        self.under_way = 0  # messages, and news of who reads
        self.results: Dict[int, bytes] = {}  # content of large results
        self.shared_objects: List[int] = []  # ids that clients told each other
        self.all_objects: List[int] = []  # ids of clients' objects, as if all could be guessed
        self._heap: List[Tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self.tick_is_due = False
        self.settings = Settings(
            client_timeout_seconds=TIMEOUT_SECONDS,
            worker_timeout_seconds=TIMEOUT_SECONDS,
            heartbeat_interval_seconds=2.0,
            maximum_attempts=self.random.choice((1, 2, 4)),
            client_tasks_in_flight=self.random.choice((0, 30, 1 << 20)),
            max_number_of_tasks_waiting=self.random.choice((-1, -1, -1, 30)),
            object_memory_limit_bytes=self.random.choice((0, 1, 40, 200)),
            chunk_bytes=CHUNK_BYTES,
            inline_bytes=LARGE_BYTES,
            tenants=self._draw_limits(),
            work_per_call=Random(f"work in parts: {seed}").choice((60, 250, 4000)),
        )
        self.outcomes = 0
        self.start_scheduler()
        self.every(1.0, self._tick)
        self.every(0.7, self._look)
        self.changes_random = Random(f"options change: {seed}")  # histories without that stay what they were
        if self.changes_random.random() < CHANGING_SHARE:
            self.every(self.changes_random.choice((1.3, 4.1)), self._change_options)

    def _draw_limits(self) -> List[List[Any]]:
        """Weights and quotas of tenants."""
        draw = self.tenants_random.choice
        names = ("a", "b") if self.has_tenants else ()
        return [[name, draw((1.0, 1.0, 5.0)), -1, draw((-1, -1, 2, 9)), -1] for name in names]

    def start_scheduler(self) -> None:
        self.stopped = ""
        self._has_changed_options = False
        self.files.clear()
        self.on_disk.clear()
        self.spills.clear()
        self.disk_was_full = -RETRY_SECONDS
        self.results.clear()
        self.shared_objects.clear()
        self.all_objects.clear()
        self.starts.clear()
        self.actors.clear()
        self.core = SchedulerCore(self.settings)
        self.monitor = Monitor(self._seed, "a" if self.has_tenants else "")
        self.checker = Checker(
            TIMEOUT_SECONDS,
            self.settings.maximum_attempts,
            self.settings.max_number_of_tasks_waiting >= 0,
            self.tenants,
            {name: running for name, _, _, running, _ in self.settings.tenants if running >= 0},
        )
        for name, link in self.links.items():
            if link.is_open:
                self._authenticate(name)

    def _change_options(self) -> None:
        """The user changes options; once faults have stopped, to those without which all tasks can end."""
        if self.stopped or (self.is_calm and not self._has_changed_options):
            return
        self._finish_work()
        self._has_changed_options = not self.is_calm
        draw, names = self.changes_random.choice, ("a", "b") if self.has_tenants else ()
        running = (-1,) if self.is_calm else (-1, 1, 2, 5)
        tenants: List[List[Any]] = [
            [name, draw((1.0, 3.0)), -1, draw(running), -1] for name in names if draw((True, True, False))
        ]
        limit = self.settings.max_number_of_tasks_waiting
        changes: Dict[str, Any] = {
            "tenants": tenants,
            "client_tasks_in_flight": draw((0, 5, 30, 1 << 20)),
            "per_worker_queue_size": draw((1, 2, 1000)),
            "max_number_of_tasks_waiting": limit if limit < 0 else draw((limit, 3, 100)),
        }
        self.checker.most_running = {name: running for name, _, _, running, _ in tenants if running >= 0}
        self.checker.queue_limit = changes["per_worker_queue_size"]
        self.core.on_options_changed(self.now, changes)
        self._decide_soon()

    def restart_scheduler(self) -> None:
        """It is killed; another one takes its place, and knows nothing."""
        self.outcomes += self.checker.outcomes
        self.start_scheduler()
        for link in list(self.links.values()):
            link.break_off()

    def shut_down(self, why: str) -> None:
        self.checker.shut_down()
        self.core.shut_down(self.now, why)
        self._tick()

    # Clock ----------------------------------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (max(time, self.now), self._sequence, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def every(self, seconds: float, action: Callable[[], None]) -> None:
        def step() -> None:
            action()
            self.after(seconds, step)

        self.after(seconds, step)

    def run(self, until: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Let things happen until the time has come or `is_done` says so."""
        while not is_done() and self._heap and self._heap[0][0] <= until:
            self.now, _, action = heapq.heappop(self._heap)
            action()

    def chance(self, rate: float) -> bool:
        """Whether a fault happens now."""
        return not self.is_calm and self.random.random() < rate

    def keeps(self, rate: float) -> bool:
        """Whether a worker keeps a result; also in calm."""
        return self.kept_random.random() < rate

    # The core -------------------------------------------------------------------------------------------------------

    def open_link(self, peer: Peer, tenants: Sequence[str]) -> Link:
        """A connection.

        Parameters:
            tenants: of which its key may be; none: it has none.
        """
        name = b"link %d" % (len(self.links) + 1)
        self.links[name] = Link(self, peer, name)
        if tenants:
            self.tenants[name] = self.tenants_random.choice(tenants)
            self._authenticate(name)
        return self.links[name]

    def _authenticate(self, name: bytes) -> None:
        if name in self.tenants:
            role = "worker" if self.tenants[name] == "*" else "owner"
            self.core.on_authenticated(self.now, name, role, self.tenants[name], "key")

    def deliver(self, name: bytes, message: Any, payload: bytes) -> None:
        """A message reaches the scheduler; the decision on it comes with the next tick."""
        self._finish_work()
        if self.stopped:
            return
        self.checker.received(self.now, name, message, payload)
        if isinstance(message, PeerError):  # bytes that are no message
            self.core.on_peer_error(self.now, name, message)
        else:
            self.core.on_message(self.now, name, message, payload)
        self._decide_soon()

    def tell_congestion(self, name: bytes, is_congested: bool) -> None:
        """The scheduler learns that a peer reads little, or reads again."""
        self._finish_work()
        if self.stopped:
            return
        self.checker.congested(name, is_congested)
        self.core.on_congestion(self.now, name, is_congested)
        self._decide_soon()

    def _decide_soon(self) -> None:
        self._check()
        if not self.tick_is_due:
            self.tick_is_due = True
            self.after(self.random.choice(self.rates.burst_seconds), self._tick)

    def _check(self) -> None:
        self.events += 1
        is_close = self.has_stretches and (self.events // STRETCH_EVENTS + self._seed) % STRETCHES == 0
        if is_close or self.events % self.events_per_check == 0:
            self.core.state.check_invariants()

    def _tick(self) -> None:
        self.tick_is_due = False
        if self.stopped:
            return
        self._work()
        gone: List[bytes] = []
        effects = self.core.take_effects()
        while effects:
            for effect in effects:
                self._perform(effect, gone)
            for name in gone:
                self.checker.gone(name)
                self.core.on_peer_gone(self.now, name)
                self._check()
            if gone:
                gone.clear()
                self._work()
            effects = self.core.take_effects()
        speeds = self.core._placement.speeds
        workers = self.core.state.workers.items() if speeds.usual.differ else ()
        self.checker.round_ended({number for number, each in workers if speeds.usual.of(each) > speeds.usual.cheapest})
        self._check_memory()

    def _finish_work(self) -> None:
        """What the scheduler does in parts ends before it gets the next message: the checker knows of rounds only."""
        if not self.stopped and self.core.has_work:
            self._tick()

    def _work(self) -> None:
        """The scheduler decides, and does all that it does in parts."""
        self.core.tick(self.now)
        self._check()
        while self.core.has_work:
            self.core.tick(self.now)
            self._check()

    def _look(self) -> None:
        if not self.stopped:
            self.monitor.look(self.core, self.now)

    def _perform(self, effect: Effect, gone: List[bytes]) -> None:
        if isinstance(effect, Send):
            self._send(effect.peer, effect.message, b"".join(effect.payload), gone)
        elif isinstance(effect, SendChunk):
            if effect.object_id not in self.files:  # its maker and all who held it left in this round
                assert effect.peer not in self.core.state.sessions, f"{effect.peer!r} waits for a file that is gone"
                return
            chunk = bytes(self.files[effect.object_id][effect.offset : effect.offset + effect.length])
            response = m.ObjectResponse(id=effect.object_id, offset=effect.offset, size=effect.size)
            self._send(effect.peer, response, chunk, gone)
        elif isinstance(effect, StoreChunk):
            self._store_chunk(effect)
        elif isinstance(effect, SpillObject):
            core = self.core
            assert effect.object_id in self.files and effect.object_id not in self.spills
            self.spills.add(effect.object_id)
            self.after(self.random.choice((0.0, 0.02, 0.3, 3.0)), lambda: self._spill(core, effect.object_id))
        elif isinstance(effect, RemoveObject):
            self._remove_file(effect.object_id)
        elif isinstance(effect, Stop):
            assert not self.stopped, "the scheduler stops once"
            self.stopped = effect.reason
        elif isinstance(effect, Forget):
            left = [each for each in self.files if each >> SESSION_SHIFT == effect.session]
            for object_id in left:
                if self.core.state.objects.find(object_id) is None:
                    self._remove_file(object_id)
        else:
            assert isinstance(effect, Log)

    def _store_chunk(self, effect: StoreChunk) -> None:
        object_id = effect.object_id
        if not effect.offset and effect.on_disk:
            if self.chance(self.rates.disk_full):
                self.disk_was_full = self.now
                self.core.on_object_spill_failed(self.now, object_id, "no space left")
            else:
                self.on_disk.add(object_id)
        elif not effect.offset and self.chance(self.rates.memory_full):
            self.on_disk.add(object_id)
            self.core.on_object_spilled(self.now, object_id)
        file = self.files.setdefault(object_id, bytearray())
        assert len(file) == effect.offset
        file += effect.chunk
        assert effect.is_last == (len(file) == effect.size)

    def _spill(self, core: SchedulerCore, object_id: int) -> None:
        """A file has been copied to the disk, or could not be; if it is gone in the meantime, this is not reported."""
        if core is not self.core or self.stopped or object_id not in self.spills:
            return
        self.spills.discard(object_id)
        if self.chance(self.rates.disk_full):
            self.disk_was_full = self.now
            self.core.on_object_spill_failed(self.now, object_id, "no space left")
        else:
            self.on_disk.add(object_id)
            self.core.on_object_spilled(self.now, object_id)
        self._decide_soon()

    def _remove_file(self, object_id: int) -> None:
        self.files.pop(object_id, None)
        self.on_disk.discard(object_id)
        self.spills.discard(object_id)

    def _check_memory(self) -> None:
        """Once all files have left that had to, what is in memory is within the limit."""
        limit_bytes = self.settings.object_memory_limit_bytes
        is_settled = self.now > self.disk_was_full + RETRY_SECONDS + 2 * WATCH_INTERVAL_SECONDS
        if not limit_bytes or self.spills or not is_settled:
            return
        records = filter(None, map(self.core.state.objects.find, self.files.keys() - self.on_disk))
        sizes = [len(self.files[record.object_id]) for record in records if record.arrived == record.size]
        assert sum(sizes) <= limit_bytes, f"{sum(sizes)} bytes are in memory, whose limit is {limit_bytes}"

    def _send(self, name: bytes, message: object, payload: bytes, gone: List[bytes]) -> None:
        link = self.links[name]
        self.checker.sent(self.now, name, message, payload)
        if self.provisioning.is_used:
            self.provisioning.on_sent(message, self.checker.workers.values())
        if link.is_open:
            link.send_down(message, payload)
        else:
            gone.append(name)


def column(values: Any) -> array[int]:
    return array("Q", values)
