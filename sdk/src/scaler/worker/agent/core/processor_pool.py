"""The processors as the agent's core sees them: idle, busy with a chunk, or blocked by a task that waits for others.

Rules:
- A processor's number is its entry of the progress page, and is used again only after its end was reported.
- `slots` processors run at once. A suspended one (its task waits for other tasks) does not count, and a spare takes its
  place. Up to MAXIMUM_SPARES spares are kept when they are no longer needed, so that recursion does not fork at every
  level.
- The slot of a blocked task is reserved for the tasks that it waits for, which are more urgent and about to arrive.
  Other tasks get it after BLOCKED_SLOT_SECONDS: otherwise each task that blocks would let another one start and block,
  and there would be one processor for each of them.
- The processor that became idle last is used first: its caches are warm, and the others may sleep.
- Processors are dedicated: one that has run tasks with some code of a client (see `code_sets`) runs no others. When
  none with the right code is idle, a new one is forked, and the one that was idle longest may have to exit.
- A processor may be bound to an actor: it runs nothing else, is never idle for other tasks, and another one takes its
  place. It has a slot while calls run.
- A processor that dies before it ran anything is replaced with a growing delay: the cause may persist.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Set

from scaler.worker import frames
from scaler.worker.agent.core.effects import Deliver, Effect, KillProcessor, SpawnProcessor, StopProcessor
from scaler.worker.agent.core.task_queue import HeldTasks
from scaler.worker.progress import FINISHED, LOADING, MAXIMUM_PROCESSORS
from scaler_protocol import messages as m

MAXIMUM_SPARES = 8
"""How many idle processors to keep beyond the slots."""

IDLE_ROUNDS = 2
"""After how many checks an idle processor exits, if processors with other code fill the slots."""

BLOCKED_SLOT_SECONDS = 0.05
"""How long the slot of a blocked task is reserved for more urgent tasks."""

_FIRST_DELAY_SECONDS = 0.5
_MAXIMUM_DELAY_SECONDS = 30.0


class ProcessorChunk:
    """Tasks on a processor: positions `first_position` and up, `reported` of which have their outcome."""

    __slots__ = ("batch", "first_position", "count", "reported")

    def __init__(self, batch: HeldTasks, first_position: int) -> None:
        self.batch = batch
        self.first_position = first_position
        self.count = len(batch)
        self.reported = 0

    def part(self, start: int, stop: int) -> HeldTasks:
        """Some of its tasks, as a batch of their own; the chunk stays as it is."""
        whole = self.batch.copy()
        whole.take(start)
        return whole.take(stop - start)

    @property
    def watched(self) -> bool:
        """Whether the processor's watchdog watches it, so that another chunk may wait behind it."""
        return len(self.batch.ids) > 1


class KillReason(NamedTuple):
    """Why a processor is killed: the task at `position`, and its outcome (no kind: cancelled)."""

    position: int
    kind: Optional[m.FailureKind]
    message: str


class ProcessorState:
    __slots__ = (
        "number",
        "progress",
        "process_id",
        "chunks",
        "next_position",
        "defined",
        "suspended",
        "suspended_since",
        "has_given_back",
        "kill_reason",
        "killed",
        "limit_position",
        "limit_since",
        "busy_since",
        "code_key",
        "code_folders",
        "idle_rounds",
        "actor",
    )

    def __init__(self, number: int, progress: memoryview) -> None:
        self.number = number
        self.progress = progress
        self.process_id = 0  # 0: being forked
        self.chunks: Deque[ProcessorChunk] = deque()  # with tasks whose outcome is outstanding
        self.next_position = 1
        self.defined: Dict[int, float] = {}  # objects that it has, and when each was last used
        self.suspended = False
        self.suspended_since = 0.0
        self.has_given_back = False  # it gave its tasks back because one takes long: no task may wait behind that one
        self.kill_reason: Optional[KillReason] = None
        self.killed = False
        self.limit_position = 0  # the task whose limits are watched, and when it started
        self.limit_since = 0.0
        self.busy_since = 0.0  # when it got its tasks, or last sent an outcome: the running task began then or later
        self.code_key: Optional[str] = None  # of the code that it runs; None: it has run nothing
        self.code_folders: Sequence[str] = ()
        self.idle_rounds = 0  # consecutive checks that found it idle
        self.actor = 0  # whose calls it runs, and nothing else; 0: it is not bound

    @property
    def started(self) -> int:
        """Position of the task that started last."""
        position: int = self.progress[0] & ~(FINISHED | LOADING)
        return position

    @property
    def running(self) -> bool:
        """Whether that task runs: its function is loaded, and has not returned."""
        return 0 < self.progress[0] < LOADING

    @property
    def occupied(self) -> bool:
        """Whether user code of that task runs: its function, or what is run to load it."""
        return 0 < self.progress[0] < FINISHED

    @property
    def priority(self) -> int:
        """The priority of its tasks; it must have some."""
        return self.chunks[0].batch.traits.priority

    @property
    def running_instance(self) -> int:
        """The id of the task that it runs; 0: it runs none."""
        if self.occupied:
            started = self.started
            for chunk in self.chunks:
                if chunk.first_position <= started < chunk.first_position + chunk.count:
                    return int(chunk.batch.ids[started - chunk.first_position])
        return 0

    @property
    def outstanding(self) -> int:
        """Tasks on it without an outcome."""
        return sum(chunk.count - chunk.reported for chunk in self.chunks)


class ProcessorPool:
    """All processors of a worker.

    Parameters:
        slots: how many run at once.
        progress: gives the progress entry of a processor number.
    """

    def __init__(self, slots: int, progress: Callable[[int], memoryview], effects: List[Effect]) -> None:
        self.slots = slots
        self.busy = 0  # processors that run a task and are not suspended
        self.suspended = 0
        self.bound = 0  # to actors
        self.write_prefix = ""  # of large results, as last sent to processors
        self._progress = progress
        self._effects = effects
        self._states: Dict[int, ProcessorState] = {}
        self._idle: List[ProcessorState] = []  # the one idle for the shortest time is last
        self._free_numbers: List[int] = []
        self._next_number = 0
        self._early_deaths = 0
        self._closed = False
        self._newly_blocked: List[ProcessorState] = []
        self._recently_blocked: List[ProcessorState] = []  # suspended so recently that their slots are reserved
        self.keeps_a_slot = False  # a slot was withheld from a task that is not urgent enough
        self._retired_keys: Set[Optional[str]] = set()

    def __len__(self) -> int:
        return len(self._states)

    def get(self, number: int) -> Optional[ProcessorState]:
        return self._states.get(number)

    def states(self) -> List[ProcessorState]:
        return list(self._states.values())

    def fill(self) -> None:
        """Fork what is missing for all slots to be usable."""
        able = [state for state in self._states.values() if not (state.suspended or state.killed or state.actor)]
        missing = self.slots - len(able)
        for _ in range(missing):
            if self._closed or not (self._free_numbers or self._next_number < MAXIMUM_PROCESSORS):
                return
            self._spawn()

    def _spawn(self) -> None:
        if self._free_numbers:
            number = self._free_numbers.pop()
        else:
            number = self._next_number
            self._next_number += 1
        state = ProcessorState(number, self._progress(number))
        state.progress[0] = 0
        self._states[number] = state
        self._idle.insert(0, state)
        delay = 0.0
        if self._early_deaths:
            delay = min(_MAXIMUM_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2.0 ** (self._early_deaths - 1))
        self._effects.append(SpawnProcessor(number, delay))
        if self.write_prefix:  # also between two sessions: a processor needs it before its first task
            self._effects.append(Deliver(number, frames.object_directory_frame(self.write_prefix)))

    def begin_turn(self, now: float) -> None:
        """Update which slots of suspended processors are still reserved. `now` in seconds."""
        self.keeps_a_slot = False
        if self._newly_blocked:
            for state in self._newly_blocked:
                state.suspended_since = now
            self._recently_blocked = list(
                dict.fromkeys(self._recently_blocked + self._newly_blocked)
            )  # each reserves one slot
            self._newly_blocked = []
        if self._recently_blocked:
            self._recently_blocked = [
                state
                for state in self._recently_blocked
                if state.suspended
                and now - state.suspended_since < BLOCKED_SLOT_SECONDS
                and self._states.get(state.number) is state
            ]

    def take_idle(self, priority: int, code_key: str = "") -> Optional[ProcessorState]:
        """An idle processor for tasks of that priority and code, if a slot is free for them."""
        if self.busy >= self.slots or not self._idle:
            return None
        if self._recently_blocked:
            kept = sum(state.suspended and state.priority >= priority for state in self._recently_blocked)
            if kept and self.busy + kept >= self.slots:
                self.keeps_a_slot = True
                return None
        if self._idle[-1].code_key != code_key and not self._put_last(code_key):
            return None
        self.busy += 1
        state = self._idle.pop()
        state.idle_rounds = 0
        return state

    def _put_last(self, code_key: str) -> bool:
        """Move an idle processor that can run tasks with that code to the end; returns whether there is one."""
        self._retired_keys.discard(code_key)
        for wanted in (code_key, None):
            for position in range(len(self._idle) - 1, -1, -1):
                if self._idle[position].code_key == wanted:
                    self._idle.append(self._idle.pop(position))
                    return True
        if len(self._states) - self.suspended - self.bound >= self.slots + MAXIMUM_SPARES:
            self._stop(self._idle.pop(0))
        if self._closed or not (self._free_numbers or self._next_number < MAXIMUM_PROCESSORS):
            return False  # there will be one when a processor has ended
        self._spawn()
        self._idle.append(self._idle.pop(0))
        return True

    def retire(self, code_keys: Set[str]) -> None:
        """No function needs code with these keys any more: let processors that have run it exit once they are idle."""
        self._retired_keys = (self._retired_keys | code_keys) & {each.code_key for each in self._states.values()}
        for state in [each for each in self._idle if each.code_key in code_keys]:
            self._idle.remove(state)
            self._stop(state)

    def _stop(self, state: ProcessorState) -> None:
        """Let an idle processor exit that has been taken out of the idle ones."""
        state.killed = True
        self._effects.append(StopProcessor(state.number))

    def take_back(self, state: ProcessorState) -> None:
        """A processor has no more tasks."""
        self._early_deaths = 0
        state.has_given_back = False
        if state.suspended:
            self.suspended -= 1
            state.suspended = False
        else:
            self.busy -= 1
        if state.killed or state.actor:
            return
        if state.code_key in self._retired_keys:
            self._stop(state)
        else:
            self._idle.append(state)

    # Actors ---------------------------------------------------------------------------------------------------------

    @property
    def has_free_slot(self) -> bool:
        return self.busy < self.slots

    def bind(self, actor: int, code_key: str) -> Optional[ProcessorState]:
        """Bind an idle processor to an actor whose first call is about to run in a free slot."""
        if not self.has_free_slot or not self._idle:
            return None
        if self._idle[-1].code_key != code_key and not self._put_last(code_key):
            return None
        state = self._idle.pop()
        state.actor = actor
        self.bound += 1
        self.busy += 1
        self.fill()
        return state

    def take_bound(self) -> bool:
        """Give an actor's idle processor a slot, if one is free."""
        if not self.has_free_slot:
            return False
        self.busy += 1
        return True

    def end_bound(self, state: ProcessorState) -> None:
        """An actor has ended: so does its processor."""
        if state.chunks:
            self.kill(state)
        elif not state.killed:
            self._stop(state)

    def pipelinable(self, code_key: str) -> Optional[ProcessorState]:
        """A busy processor that may get one more chunk behind its current one."""
        for state in self._states.values():
            if (
                len(state.chunks) == 1
                and state.chunks[0].watched
                and state.code_key == code_key
                and not state.actor
                and not (state.has_given_back or state.suspended or state.killed)
            ):
                return state
        return None

    def suspend(self, state: ProcessorState) -> None:
        """A processor's task waits for other tasks: give its slot to another processor."""
        if state.chunks and not state.suspended:
            state.suspended = True
            self._newly_blocked.append(state)
            self.suspended += 1
            self.busy -= 1
            self.fill()

    def resume(self, state: ProcessorState) -> None:
        """The wait is over. The processor continues at once, even if for a moment one too many runs."""
        if state.suspended:
            state.suspended = False
            self.suspended -= 1
            self.busy += 1

    def kill(self, state: ProcessorState, kill_reason: Optional[KillReason] = None) -> None:
        if not state.killed:
            state.killed = True
            state.kill_reason = kill_reason
            if not (state.chunks or state.actor):
                self._idle.remove(state)
            self._effects.append(KillProcessor(state.number, wants_stack=kill_reason is not None))

    def remove(self, state: ProcessorState) -> None:
        """A processor has died; the caller settles its chunks."""
        del self._states[state.number]
        self._free_numbers.append(state.number)
        if state.suspended:
            self.suspended -= 1
        elif state.chunks:
            self.busy -= 1
        elif not (state.killed or state.actor):
            self._idle.remove(state)
        if state.actor:
            self.bound -= 1
        if not state.killed and state.started == 0:
            self._early_deaths += 1

    def retire_spares(self) -> None:
        """Let processors exit that are idle and more than slots and spares need, or that have been idle for long with
        dedicated code and exceed the slots. Called periodically."""
        beyond_slots = len(self._states) - self.suspended - self.bound - self.slots
        has_keys = any(state.code_key for state in self._states.values())
        stopped: List[ProcessorState] = []
        for state in self._idle:
            state.idle_rounds += 1
            is_surplus = beyond_slots - len(stopped) > MAXIMUM_SPARES
            if is_surplus or (has_keys and state.idle_rounds >= IDLE_ROUNDS and beyond_slots > len(stopped)):
                stopped.append(state)
        for state in stopped:
            self._idle.remove(state)
            self._stop(state)

    def tell_prefix(self, write_prefix: str) -> None:
        """Tell all processors, including future ones, where to write large results."""
        self.write_prefix = write_prefix
        frame = frames.object_directory_frame(write_prefix)
        self._effects += [Deliver(number, frame) for number in self._states]

    def close(self) -> None:
        """Fork no more processors."""
        self._closed = True
