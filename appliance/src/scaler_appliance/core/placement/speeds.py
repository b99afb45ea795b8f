"""Which workers others are preferred to: they are slower, or offer what other tasks need.

    next task of a class ──▶ prices for its function ──▶ a worker to which others are preferred
                                                              a task behind it, for which it is quick ──▶ that one
                                                              none ──▶ as many as end sooner there: see `prices`

Rules:
- Among free slots, those of the quickest workers are taken first, of workers that offer equally little.
- A worker that offers what other tasks have needed lately counts as a little slower than it is. So a task that does not
  need it waits for a plain slot that is free soon, and that is a little time, compared with its own.
- If the tasks of a class cannot run at every worker, none of them waits.
- Where others are preferred for what is next, a worker gets tasks behind it, of any client, that it is quick at. What
  is passed waits no longer than it would have taken there, unless one of its batch was taken. Some tasks are looked at,
  and for workers that are alike only once in a call.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Dict, List, Set, Tuple

from scaler_appliance.core.peers.worker_session import Capabilities, WorkerSession
from scaler_appliance.core.placement.prices import RELUCTANCE, FunctionPrices, Prices
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import TaskBatch

WANTED_SECONDS = 600.0
MAXIMUM_WANTED = 1000  # names
MAXIMUM_LOOKS = 16
"""Kinds of workers, in one call, for which tasks behind the next one are looked at, and none is found."""


class Speeds:
    """The prices of all workers.

    Attributes:
        usual: for tasks of most functions.
        differ: whether any do, for some function.
    """

    def __init__(self, state: SchedulerState) -> None:
        self.usual = Prices(state)
        self.differ = False
        self._state = state
        self._by_function: Dict[object, FunctionPrices] = {}
        self._exceptions: Dict[int, Tuple[Tuple[object, float], ...]] = {}  # functions with other paces, by session
        self._nothing_for: Set[object] = set()  # kinds of workers: no class of these has one of the next tasks for them
        self._changes = 0  # of prices
        self._in_use: Set[FunctionPrices] = set()  # since some tasks are placed
        self._wanted_until: Dict[str, float] = {}  # capabilities
        self._expires_at = inf  # the first of these

    def of_next(self, ready_class: ReadyClass) -> Prices:
        """The prices for the next task of a class."""
        batch = ready_class.batch_of_turn() if self._by_function else None
        return self.usual if batch is None else self.of(batch.function_key)

    def of(self, function: object) -> Prices:
        """Those for tasks of a function."""
        prices = self._by_function.get(function) if self._by_function else None
        if prices is None:
            return self.usual
        if prices.compared_at != self._changes:
            prices.compare()
            prices.compared_at = self._changes
        self._in_use.add(prices)
        return prices

    def part_of(self, share: int, worker: WorkerSession, ready_class: ReadyClass) -> Tuple[int, Prices]:
        """How much of its share of the tasks that wait a worker gets if others are preferred to it for the next
        one; and the prices for what it gets."""
        prices, batch, now = self.of_next(ready_class), ready_class.batch_of_turn(), self._state.now
        if batch is None or not self._by_function:
            return prices.part_of(share, worker, ready_class), prices
        since, microseconds = ready_class.passed_since(batch), self._state.durations.get(batch.function_key) or 0.0
        if since is not None and (now - since) * 1e6 > microseconds * prices.of(worker):
            return 1, prices
        if self._may_look(ready_class, worker, prices) and ready_class.may_be_passed(batch):
            # No more than may be taken: what is passed is soon the next one again.
            share_ahead = min(share, worker.slots)
            if ready_class.bring_forward(share_ahead, partial(self._is_quick_at, worker)):
                ready_class.note_passed(batch, now)
                return share_ahead, self.of_next(ready_class)
            self._nothing_for.add(self._likes(ready_class, worker))
        return prices.part_of(share, worker, ready_class), prices

    def _may_look(self, ready_class: ReadyClass, worker: WorkerSession, prices: Prices) -> bool:
        """Whether to look for tasks of a class that a worker is quick at, as others are waited for."""
        if len(self._nothing_for) >= MAXIMUM_LOOKS or self._likes(ready_class, worker) in self._nothing_for:
            return False
        return prices.has_preferred_to(worker)

    def _likes(self, ready_class: ReadyClass, worker: WorkerSession) -> object:
        """What workers have in common that are alike for a class."""
        return id(ready_class), self.usual.of(worker), self._exceptions.get(worker.number)

    def _is_quick_at(self, worker: WorkerSession, batch: TaskBatch) -> bool:
        """Whether no other worker is preferred for tasks of a batch."""
        prices = self.of(batch.function_key)
        return prices.of(worker) <= prices.cheapest

    def add(self, worker: WorkerSession) -> None:
        """A worker has come."""
        wanted = self._wanted_until and any(name in self._wanted_until for name in worker.capabilities)
        reluctance = RELUCTANCE if wanted else 1.0
        self.usual.add(worker, worker.pace.factor * reluctance)
        if worker.pace.exceptions:
            self._exceptions[worker.number] = tuple(worker.pace.exceptions.items())
            for function, factor in worker.pace.exceptions.items():
                prices = self._by_function.get(function)
                if prices is None:
                    prices = self._by_function[function] = FunctionPrices(self._state, function, self.usual)
                prices.add(worker, factor * reluctance)
        self._compare()

    def remove(self, worker: WorkerSession) -> None:
        """A worker is gone."""
        if self.usual.remove(worker):
            for function, _ in self._exceptions.pop(worker.number, ()):
                prices = self._by_function[function]
                prices.remove(worker)
                if prices.is_empty:
                    del self._by_function[function]
            self._compare()

    def update(self, worker: WorkerSession) -> None:
        """The pace of a worker has changed, or what is wanted."""
        if self.usual.has(worker):
            self.remove(worker)
            self.add(worker)

    def _compare(self) -> None:
        self.usual.compare()
        self.differ = self.usual.differ or bool(self._by_function)
        self._changes += 1

    def begin(self) -> None:
        """Some tasks are placed from now on: workers may have finished others."""
        self.usual.begin()
        if self._by_function:
            for each in self._in_use:
                each.begin()
            self._in_use.clear()
            self._nothing_for.clear()
        if self._state.now >= self._expires_at:
            ended = [name for name, until in self._wanted_until.items() if until <= self._state.now]
            for name in ended:
                del self._wanted_until[name]
            self._update_those_with(ended)

    def want(self, capabilities: Capabilities) -> None:
        """There are tasks that need these."""
        until = self._state.now + WANTED_SECONDS
        left = MAXIMUM_WANTED - len(self._wanted_until)
        new = [name for name, _ in capabilities if name not in self._wanted_until][:left]
        for name, _ in capabilities:
            if name in self._wanted_until or name in new:
                self._wanted_until[name] = until
        if new:
            self._update_those_with(new)

    def _update_those_with(self, names: List[str]) -> None:
        """What is wanted of these capabilities has changed."""
        self._expires_at = min(self._wanted_until.values(), default=inf)
        for worker in self.usual.workers():
            if any(name in worker.capabilities for name in names):
                self.update(worker)
