"""The way of tasks among simulated processors that are slow, get stuck, block and crash, as a seed decides.

What is checked is what the scheduler sees: each task has exactly one end (an outcome, a cancellation, or it was
given back), a task that must run at most once starts at most once, and in the end nothing is left.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from typing import Any, Callable, Dict, List, Set, Tuple

import pytest
from task_flow_bench import too_large_payload

from scaler.worker import frames
from scaler.worker.agent.core.effects import Deliver, KillProcessor, Send, SpawnProcessor, StopProcessor
from scaler.worker.agent.core.task_flow import TaskFlow, TaskFlowSettings
from scaler.worker.frames import ContentPlace, FrameKind
from scaler.worker.progress import FINISHED, LOADING
from scaler_protocol import messages as m

SAFETY_STEPS = 400
QUIET_STEPS = 20_000


class SimulatedProcessor:
    """Does with its chunks what a real one may do, one small step at a time."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.page = world.page(number)
        self.inbox: List[Any] = []  # chunks as sent
        self.chunk: Any = None
        self.index = 0  # of the next task to start
        self.limit = 0  # tasks of the chunk not given back
        self.flushed = 0
        self.has_function = False
        self.loading = False
        self.running = False
        self.blocked = False
        self.started: Counter[int] = Counter()  # instance -> times

    def step(self) -> None:
        """Start, finish, flush, hand over, block or resume: one of what is possible now."""
        chance = self.world.random.random()
        if self.chunk is None:
            if self.inbox:
                self.chunk = self.inbox.pop(0)
                self.index = self.flushed = 0
                self.limit = self.chunk.task_count
                self.loading = not self.has_function
                if self.loading:
                    self.page[0] = self.chunk.first_position | LOADING
        elif self.loading:
            if chance < 0.5:
                self.loading, self.has_function = False, True
            elif chance < 0.7:
                self.post()
        elif not self.running:
            if self.index == self.limit or chance < 0.2:
                self.flush()
            if self.index < self.limit:
                self.page[0] = self.chunk.first_position + self.index
                self.world.on_start(self.chunk.ids[self.index])
                self.running = True
            elif self.flushed == self.limit:
                self.chunk = None
        elif self.blocked:
            if chance < 0.3:
                self.blocked = False
                self.world.flow.on_resumed(self.number)
        elif chance < 0.6:
            self.running = False
            self.index += 1
        elif chance < 0.7:
            self.post()
        elif chance < 0.75:
            self.post()
            self.blocked = True
            self.world.flow.on_blocked(self.number)

    def flush(self) -> None:
        self.page[0] |= FINISHED
        self.send_outcomes()

    def send_outcomes(self) -> None:
        count = self.index - self.flushed
        if count:
            ids = self.chunk.ids[self.flushed : self.index]
            data = frames.join(
                frames.results_frame(
                    first_position=self.chunk.first_position + self.flushed,
                    busy_microseconds=count * self.world.random.choice([1, 3, 10_000]),
                    payloads=[b"%d" % instance for instance in ids],
                )
            )
            self.flushed = self.index
            self.world.flow.on_results(self.number, frames.parse_results(0, data[frames.HEADER.size :]))

    def post(self) -> None:
        """The watchdog's work: the task that runs takes long."""
        if self.chunk.task_count == 1:
            assert not self.inbox, "a chunk waits behind one that is not watched"
            return
        ranges = []
        first = self.index + 1
        if self.limit > first:
            ranges.append((self.chunk.first_position + first, self.limit - first))
            self.limit = first
        self.send_outcomes()
        ranges += [(chunk.first_position, chunk.task_count) for chunk in self.inbox]
        self.inbox.clear()
        self.world.flow.on_given_back(self.number, ranges)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.effects: List[Any] = []
        self.pages: Dict[int, memoryview] = {}
        self.processors: Dict[int, SimulatedProcessor] = {}
        self.available = {0, 1}
        self.now = 0.0
        self.ends: Counter[int] = Counter()
        self.outcomes: Dict[int, int] = {}
        self.starts: Counter[int] = Counter()
        self.careful: Set[int] = set()  # tasks that must run at most once
        self.cancels: Counter[int] = Counter()
        self.answers: Counter[int] = Counter()
        self.next_id = 1
        self.fetching: Set[int] = set()
        settings = TaskFlowSettings(slots=self.random.randint(1, 4))
        self.flow = TaskFlow(settings, self.page, self, self.effects, too_large_payload)
        self.flow.pool.fill()
        self.turn()

    # What the flow asks of objects

    def forget_unused(self, now: float, retention_seconds: float, needed: Callable[[], Set[int]]) -> None:
        pass

    def is_available(self, object_id: int) -> bool:
        return object_id in self.available

    def fetch(self, object_id: int) -> None:
        self.fetching.add(object_id)

    def definition(self, object_id: int) -> Tuple[int, ContentPlace, bytes]:
        return m.ObjectKind.VALUE, ContentPlace.INLINE, b""

    @property
    def maximum_object_bytes(self) -> int:
        return 0

    def adopt(self, path: str, size: int) -> int:
        raise AssertionError("no result is large here")

    # The world

    def page(self, number: int) -> memoryview:
        return self.pages.setdefault(number, memoryview(bytearray(8)).cast("Q"))

    def on_start(self, instance: int) -> None:
        self.starts[instance] += 1

    def turn(self) -> None:
        self.flow.finish_turn(self.now)
        while self.effects:
            effects, self.effects[:] = list(self.effects), []
            for effect in effects:
                self.perform(effect)

    def perform(self, effect: Any) -> None:
        if isinstance(effect, SpawnProcessor):
            assert effect.number not in self.processors
            self.processors[effect.number] = SimulatedProcessor(self, effect.number)
        elif isinstance(effect, (KillProcessor, StopProcessor)):
            if effect.number in self.processors:  # else it died by itself in the meantime
                self.die(effect.number)
        elif isinstance(effect, Deliver):
            data = frames.join(effect.buffers)
            _, kind, flags = frames.HEADER.unpack_from(data)
            if kind == FrameKind.TASKS and effect.number in self.processors:
                chunk = frames.parse_tasks(flags, data[frames.HEADER.size :])
                assert bytes(chunk.body[chunk.payload_offset :]) == b"".join(b"%d" % i for i in chunk.ids)
                self.processors[effect.number].inbox.append(chunk)
        elif isinstance(effect, Send):
            self.on_message(effect.message)

    def on_message(self, message: Any) -> None:
        if isinstance(message, m.TaskResult):
            for index, instance in enumerate(message.ids):
                self.ends[instance] += 1
                self.outcomes[instance] = message.statuses[index] if message.statuses else 0
        elif isinstance(message, m.TaskCancelConfirm):
            for instance, outcome in zip(message.ids, message.outcomes):
                self.answers[instance] += 1
                if outcome == m.CancelOutcome.CANCELLED:
                    self.ends[instance] += 1
                elif outcome == m.CancelOutcome.NOT_FOUND:
                    assert self.ends[instance] == 1
        elif isinstance(message, m.BalanceResponse):
            self.ends.update(message.ids)

    def die(self, number: int) -> None:
        del self.processors[number]
        self.flow.on_processor_died(number, "died", self.now)
        self.flow.finish_turn(self.now)

    def send_tasks(self) -> None:
        count = self.random.choice([1, 1, 2, 10, 300])
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        payloads = [b"%d" % instance for instance in ids]
        options = m.TaskOptions(priority=self.random.choice([0, 0, 1]), retries=self.random.choice([0, 2]))
        options.at_most_once = self.random.random() < 0.3
        if options.at_most_once:
            self.careful.update(ids)
        message = m.Task(
            ids=ids, payload_sizes=list(map(len, payloads)), function=1, codec="cloudpickle", options=options
        )
        if self.random.random() < 0.2:
            needed = [[self.random.randint(2, 40)] if self.random.random() < 0.5 else [] for _ in ids]
            message.dependency_counts = array("H", map(len, needed))
            message.dependencies = array("Q", [i for some in needed for i in some])
        self.flow.on_tasks(message, b"".join(payloads))

    def resolve_fetch(self) -> None:
        if self.fetching:
            object_id = self.random.choice(sorted(self.fetching))
            self.fetching.discard(object_id)
            if self.random.random() < 0.8:
                self.available.add(object_id)
                self.flow.on_object_available(object_id)
            else:
                self.flow.on_object_missing(object_id)

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.05:
            self.send_tasks()
        elif chance < 0.08 and self.next_id > 1:
            ids = {self.random.randrange(1, self.next_id) for _ in range(self.random.choice([1, 1, 20]))}
            self.cancels.update(ids)
            self.flow.on_cancel(m.TaskCancel(ids=sorted(ids), force=self.random.random() < 0.5))
        elif chance < 0.09:
            self.flow.on_balance(m.BalanceRequest(count=self.random.randint(1, 50)))
        elif chance < 0.11 and self.processors:
            self.die(self.random.choice(sorted(self.processors)))
        elif chance < 0.14:
            self.resolve_fetch()
        elif chance < 0.15:
            self.flow.collect_garbage(self.now, self.random.choice([0, 100]), 0)
        else:
            self.calm_step()
        if self.random.random() < 0.5:
            self.turn()

    def calm_step(self) -> None:
        """What happens when nothing goes wrong."""
        self.now += 0.01
        busy = [number for number, processor in sorted(self.processors.items()) if processor.chunk or processor.inbox]
        if busy:
            self.processors[self.random.choice(busy)].step()
        if self.flow.needs_tick:
            self.flow.tick(self.now)


@pytest.mark.parametrize("seed", range(120))
def test_every_task_has_exactly_one_end(seed: int) -> None:
    world = World(seed)
    for _ in range(SAFETY_STEPS):
        world.step()  # of several in one turn, mostly
        assert max(world.ends.values(), default=1) == 1

    for _ in range(QUIET_STEPS):
        if world.flow.is_empty and not world.flow.needs_tick:
            break
        world.resolve_fetch()
        world.calm_step()
        world.turn()

    assert world.flow.is_empty
    assert dict(world.ends) == dict.fromkeys(range(1, world.next_id), 1)
    assert all(world.starts[instance] <= 1 for instance in world.careful)
    assert world.answers.keys() == world.cancels.keys()
    assert world.flow.pool.busy == world.flow.pool.suspended == 0
    assert world.flow.queue.count == world.flow.waiting.count == 0
