"""What all parts of a simulated system share: chance, time, and what goes wrong.

Rules:
- All chance comes from the seed, and all time from the virtual clock: a run can be repeated exactly.
- Swarm testing: each seed draws which faults happen and which features are used, each with a rate of its own. Whether
  one is drawn does not depend on the others, so that the shrinker can switch them off one by one.
- First comes a phase with faults, then a calm one, in which everything must finish.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappop, heappush
from math import log
from random import Random
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple, TypeVar

from whole_system.judges.calls_judge import Calls
from whole_system.themes import CHOICES, theme_of

from scaler.worker.agent.core.heartbeats import LARGE_BYTES

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

Item = TypeVar("Item")

FAULTS: Dict[str, float] = {
    "break": 0.08,  # of a connection, which both ends learn
    "silence": 0.5,  # an end does not learn that a connection has broken
    "partition": 0.05,
    "one_way": 0.05,
    "slow_reader": 0.3,
    "pause": 0.05,
    "scheduler_pause": 0.05,
    "client_crash": 0.02,
    "worker_crash": 0.03,
    "processor_death": 0.1,
    "restart": 0.1,
    "disk_full": 0.3,
    "memory_full": 0.3,
    "storage_lost": 0.2,
    "slow_disk": 1.0,
    "worker_disk_full": 0.1,
    "result_lost": 0.2,
    "stop_worker": 0.02,
    "clock_step": 0.02,
    "repeated_results": 0.3,  # a worker of another kind reports outcomes again, together with new ones
    "early_death": 0.3,  # of a processor that has run nothing
    "data_refused": 0.4,  # a connection between workers
    "data_break": 0.1,  # of one, with each message
    "data_silence": 0.3,  # an end of one does not learn that it has broken
    "data_slow_connect": 0.2,
    "holder_crash": 0.03,  # of a worker that has just sent a part of an object to another one
    "maker_crash": 0.0,  # of a client that has just sent a part of an object; only in a theme
    "long_restart": 0.3,  # no scheduler for longer than some look for one
}
"""What goes wrong, and the highest rate of each: a chance for each step of a peer, message or file."""

FEATURES: Dict[str, float] = {
    "objects": 0.6,
    "large_objects": 0.5,
    "large_arguments": 0.3,
    "large_functions": 0.2,
    "predecessors": 0.6,
    "graphs": 0.3,
    "cancel": 0.4,
    "force": 0.5,
    "cancel_all": 0.05,
    "give_up": 0.1,
    "clear": 0.05,
    "let_go": 0.3,
    "leave": 0.03,
    "at_most_once": 0.3,
    "retries": 0.5,
    "raising": 0.2,
    "large_results": 0.4,
    "blocking": 0.5,
    "long_tasks": 0.2,
    "drain": 0.05,
    "lone_tasks": 0.7,
    "stale_functions": 0.2,
    "questions": 0.1,
    "shared_files": 0.6,
    "nested": 1.0,
    "named_functions": 0.2,
    "monitors": 1.0,
    "waiting_limits": 0.5,
    "runs": 0.1,
    "endless_tasks": 0.15,
    "deadly_tasks": 0.1,
    "haste": 1.0,
    "code": 0.6,
    "capabilities": 0.5,
    "uneven_runs": 0.6,  # of which few tasks take long
    "many_batches": 0.01,
    "client_shutdown": 0.01,
    "plain_peers": 0.1,
    "small_limits": 0.5,
    "exact_times": 1.0,  # workers measure tasks correctly
    "actors": 0.3,
    "tenants": 1.0,  # how often a client's may be any
    "earlier_schedulers": 0.8,  # seen by some workers: they list no features
    "rests": 0.0,  # of all users, as at night; only in a theme
    "provisioner": 0.0,  # starts workers for tasks, and lets them go; only in a theme
    "data_addresses": 0.0,  # workers have one, and fetch from others: see `data_links`
    "resume": 1.0,  # which peers go on with a session over another connection
    "slow_workers": 0.7,  # which take several times as long as others
    "slow_functions": 0.5,  # likewise, at a worker
    "large_nodes": 0.8,  # graphs are frequent, and the results of their nodes large
}
"""What users do, and the highest rate of each."""

SAFETY_SECONDS = (0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 6.0)
"""Most histories are short: what goes wrong between two events needs no long one, and many short ones differ more."""
SAFETY_EVENTS, SAFETY_EVENTS_OF_A_THEME = 240, 200
"""After as many events the phase with faults ends, but for each 25th seed, whose history is whole: the largest tenth of
the histories took a third of the time, and caught less than a tenth of what is seldom caught (docs/adr/0019)."""
SUBMITTING_SHARE, SUBMITTING_SHARE_OF_A_THEME = 0.4, 0.75
"""Of these events, after which users submit nothing more: faults meet what there is, and little is left after them."""
SEEDS_PER_WHOLE_HISTORY, SAFETY_EVENTS_OF_A_WHOLE_HISTORY = 25, 3000
MOST_EVENTS = 60_000
MOST_UNFINISHED, MOST_UNFINISHED_OF_A_WHOLE_HISTORY = (5, 5, 5, 15, 15, 30), (5, 5, 5, 15, 15, 60)  # tasks of a user
NEVER = float("inf")
THEMES_OFF = "themes"
REACHING_SECONDS = 40.0
CLOCK_STEPS_SECONDS = (0.5, 4.0, 7.0, 40.0)


TIME_REQUESTS_SECONDS = (0.0, 0.0, 0.5, 5.0, 30.0)
MEMORY_LIMITS_BYTES = (0, LARGE_BYTES, 3 * LARGE_BYTES)


class RareOptions:
    """Options that few users give their tasks, drawn apart: all other draws stay what they were."""

    def __init__(self, seed: int, user: str) -> None:
        times, limits = Random(f"time requests: {seed} {user}"), Random(f"memory limits: {seed} {user}")
        self._times = times if times.random() < 0.2 else None
        self._limits = limits if limits.random() < 0.1 else None

    def draw(self) -> Tuple[float, int]:
        """For how long a task asks, in seconds, and its limit of memory, in bytes."""
        seconds = self._times.choice(TIME_REQUESTS_SECONDS) if self._times is not None else 0.0
        return seconds, self._limits.choice(MEMORY_LIMITS_BYTES) if self._limits is not None else 0


@dataclass(frozen=True)
class Plan:
    """One run.

    Parameters:
        off: faults and features that do not happen, whatever the seed says; THEMES_OFF: nor is there a theme.
        peers: how many clients, and how many workers, there are at most; 0: as the seed says.
        safety_seconds: how long the phase with faults is; 0: as the seed says.
    """

    seed: int
    off: FrozenSet[str] = frozenset()
    peers: int = 0
    safety_seconds: float = 0.0

    def arguments(self) -> str:
        """As arguments of `python -m whole_system`."""
        text = f"{self.seed} 1"
        if self.off:
            text += f" --off {','.join(sorted(self.off))}"
        if self.peers:
            text += f" --peers {self.peers}"
        if self.safety_seconds:
            text += f" --seconds {self.safety_seconds:g}"
        return text


class Chance(Random):
    """Random numbers; `choice` draws as that of `Random` does, in less time."""

    def choice(self, seq: SupportsLenAndGetItem[Item]) -> Item:
        count = len(seq)
        bits = count.bit_length()
        number = self.getrandbits(bits)
        while number >= count:
            number = self.getrandbits(bits)
        return seq[number]


class World:
    """Chance and time of one run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = Chance(plan.seed)
        self.theme = None if THEMES_OFF in plan.off else theme_of(plan.seed)
        self.rates = {name: self._rate(name, most) for name, most in (FAULTS | FEATURES).items()}
        self.delay_seconds: float = self.choose("delay_seconds", (0.0005, 0.01, 0.2))
        self._delay_rate: float = 1 / self.delay_seconds
        self.safety_seconds: float = plan.safety_seconds or self.choose("safety_seconds", SAFETY_SECONDS)
        self.is_whole = not plan.seed % SEEDS_PER_WHOLE_HISTORY
        least = SAFETY_EVENTS if self.theme is None else max(SAFETY_EVENTS_OF_A_THEME, self.theme.safety_events)
        self.safety_events = SAFETY_EVENTS_OF_A_WHOLE_HISTORY if self.is_whole else least
        share = SUBMITTING_SHARE if self.theme is None else SUBMITTING_SHARE_OF_A_THEME
        self.submitting_events = self.safety_events * (1.0 if self.is_whole else share)
        self.is_insistent = self.theme is not None and self.theme.is_insistent
        self.has_large_steps = self.is_whole or (self.theme is not None and self.theme.has_large_steps)
        self.calls = Calls()
        self.now = 0.0
        self.is_calm = False
        self._calm_since = NEVER
        self.events = 0
        self.trace: Optional[List[str]] = None  # what happened, for who looks into a failure
        self._heap: List[Tuple[float, int, Callable[[], None], Optional[Process]]] = []
        self._sequence = 0

    def _rate(self, name: str, most: float) -> float:
        if name in self.plan.off:
            return 0.0
        quarter = blake2b(b"%d %s" % (self.plan.seed, name.encode()), digest_size=1).digest()[0] & 3
        if self.theme is None:
            return (0.0, 0.0, most / 4, most)[quarter]
        most = self.theme.rates.get(name, 0.0)
        return most if quarter else most / 4

    def calm_down(self) -> None:
        """From now on nothing goes wrong."""
        self.say("calm")
        self.is_calm = True
        self._calm_since = self.now

    @property
    def must_be_connected(self) -> bool:
        """Whether every peer must have found the scheduler by now, whatever happened before."""
        return self.now >= self._calm_since + REACHING_SECONDS

    # Chance ---------------------------------------------------------------------------------------------------------

    def fault(self, name: str) -> bool:
        """Whether a fault happens now."""
        return not self.is_calm and self.random.random() < self.rates[name]

    def uses(self, name: str) -> bool:
        """Whether a feature is used now."""
        return self.random.random() < self.rates[name]

    def choose(self, name: str, usual: Sequence[Any]) -> Any:
        """The value of a setting: one of the usual ones, unless the theme has others."""
        assert name in CHOICES, f"themes do not know {name!r}"
        return self.random.choice(usual if self.theme is None else self.theme.choices.get(name, usual))

    def most_unfinished(self) -> int:
        """With how many unfinished tasks a user submits no more. It may exceed that by what it submits at once; in a
        whole history, that may be many batches."""
        usual = MOST_UNFINISHED_OF_A_WHOLE_HISTORY if self.is_whole else MOST_UNFINISHED
        return int(self.choose("most_unfinished", usual))

    def delay(self) -> float:
        """How long a message takes: as `Random.expovariate` would say, in half the time."""
        return -log(1.0 - self.random.random()) / self._delay_rate

    # Time -----------------------------------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[[], None], process: Optional[Process] = None) -> None:
        """
        Parameters:
            process: who does it, unless it hangs or is dead by then.
        """
        self._sequence += 1
        now = self.now
        heappush(self._heap, (time if time > now else now, self._sequence, action, process))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def every(self, seconds: float, action: Callable[[], None], goes_on: Callable[[], bool] = lambda: True) -> None:
        def step() -> None:
            if goes_on():
                action()
                self.after(seconds, step)

        self.after(seconds, step)

    def run(self, until: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Run the simulation until a time, or until `is_done`, which is called periodically, returns true."""
        heap, pop, now = self._heap, heappop, self.now
        check_at = now + 0.05
        while heap and heap[0][0] <= until:
            if now >= check_at:
                check_at = now + 0.05
                if is_done():
                    return
            now, _, action, process = pop(heap)
            self.now = now
            self.events += 1
            assert self.events < MOST_EVENTS, f"{MOST_EVENTS} events: something goes on for ever"
            if process is None:
                action()
            elif process.is_alive:
                if now < process.paused_until:
                    process.do(action)
                else:
                    action()
        if not is_done():
            self.now = max(self.now, until)

    def say(self, what: str, *details: Any) -> None:
        """Log an event, if a log is kept."""
        if self.trace is not None:
            self.trace.append(f"{self.now:9.4f} {what} {' '.join(map(str, details))}")


class Process:
    """A program in the system: it may hang for a while, or be killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_alive = True
        self.paused_until = 0.0
        self._clock_offset_seconds = 0.0

    @property
    def now(self) -> float:
        """By its own steady clock, which may be ahead of the world's."""
        return self.world.now + self._clock_offset_seconds

    def step_clock(self, seconds: float) -> None:
        """Its clock goes forward all at once, as when its whole machine stood still."""
        self.world.say("clock steps", type(self).__name__, seconds)
        self._clock_offset_seconds += seconds

    def pause(self, seconds: float) -> None:
        self.paused_until = max(self.paused_until, self.world.now + seconds)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something then, by the world's clock, unless it hangs or is dead."""
        self.world.at(time, action, self)

    def at_own(self, time: float, action: Callable[[], None]) -> None:
        """Do something then, by its own clock."""
        self.at(time - self._clock_offset_seconds, action)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        world = self.world
        world.at(world.now + seconds, action, self)

    def do(self, action: Callable[[], None]) -> None:
        """Do something now, unless it is dead, or after it has hung."""
        if not self.is_alive:
            return
        if self.world.now < self.paused_until:
            self.at(self.paused_until + 0.001, action)  # what has arrived meanwhile comes first
        else:
            action()


class Pipe:
    """Something that keeps its order, and takes time.

    Parameters:
        receiver: nothing arrives while it hangs.
        deliver: called with each item.
        delay: how long one takes.
    """

    def __init__(
        self,
        receiver: Process,
        deliver: Callable[[Any], None],
        delay: Callable[[], float],
        reading_seconds: float = 0.0,
    ) -> None:
        self.world = receiver.world
        self.queue: List[Any] = []
        self.is_cut = False
        self.held_until = 0.0
        self.reading_seconds = reading_seconds
        self._receiver = receiver
        self._deliver = deliver
        self._delay = delay
        self._last_arrival = 0.0

    def send(self, item: Any) -> None:
        if self.is_cut:
            return
        self.queue.append(item)
        world = self.world
        arrival = world.now + self._delay()
        soonest = self._last_arrival + self.reading_seconds
        if soonest < self.held_until:
            soonest = self.held_until
        if arrival < soonest:
            arrival = soonest
        self._last_arrival = arrival
        world._sequence += 1
        heappush(world._heap, (arrival, world._sequence, self._pump, None))  # as `World.at`

    def cut(self) -> None:
        """What is under way is lost."""
        self.is_cut = True
        self.queue.clear()

    def _pump(self) -> None:
        if self.is_cut or not self.queue or not self._receiver.is_alive:
            return
        world, receiver = self.world, self._receiver
        if world.now < self.held_until or world.now < receiver.paused_until:
            world.at(max(self.held_until, receiver.paused_until), self._pump)
            return
        self._deliver(self.queue.pop(0))
