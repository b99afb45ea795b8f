"""Which workers others are preferred to, and which tasks are done sooner, or nearly so, if they wait for those.

    preferred workers:  |-- what they hold --|-- what waits, in rounds of all their slots --|
    another worker:     |------------ one task ------------|                                   it gets one
    another worker:     |------------------------- one task -------------------------|         it gets none

Rules:
- Among free slots, those of the quickest workers are taken first, of workers that offer equally little.
- A slow worker gets no more of the tasks that wait than make all of them end sooner.
- A worker that offers what other tasks have needed lately counts as a little slower than it is. So a task that does not
  need it waits for a plain slot that is free soon, and that is a little time, compared with its own.
- Estimates may be wrong. A worker that was asked to give tasks back and has finished none since is not waited for; and
  no class waits longer, without that one of its tasks is placed, than a task would have taken where a slot is free.
- Only near workers are waited for. If the tasks of a class cannot run at every worker, none of them waits.
"""

from __future__ import annotations

from math import inf
from typing import Dict, List, Tuple

from scaler_appliance.core.peers.worker_session import Capabilities, WorkerSession
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.state import SchedulerState

RELUCTANCE = 1.25
"""So many times as long, compared with its pace, a worker may seem to take that offers what others want."""
WANTED_SECONDS = 600.0
MAXIMUM_WANTED = 1000  # names


class Speeds:
    """All workers, by their price: the pace of each, times its reluctance.

    Attributes:
        cheapest: the least price of any worker.
        differ: whether prices do.
    """

    def __init__(self, state: SchedulerState) -> None:
        self.cheapest = 1.0
        self.differ = False
        self._state = state
        self._workers: Dict[float, Dict[int, WorkerSession]] = {}
        self._prices: Dict[int, float] = {}
        self._wanted_until: Dict[str, float] = {}  # capabilities
        self._expires_at = inf  # the first of these
        self._preferred: Dict[float, Tuple[int, float, float]] = {}  # to workers of a price: what is known of those

    def price_of(self, worker: WorkerSession) -> float:
        """How many times as long tasks that need no capabilities seem to take there."""
        return self._prices.get(worker.number, 1.0)

    def add(self, worker: WorkerSession) -> None:
        """A worker has come."""
        wanted = self._wanted_until and any(name in self._wanted_until for name in worker.capabilities)
        price = worker.pace.factor * RELUCTANCE if wanted else worker.pace.factor
        self._prices[worker.number] = price
        self._workers.setdefault(price, {})[worker.number] = worker
        self._compare()

    def remove(self, worker: WorkerSession) -> None:
        """A worker is gone."""
        price = self._prices.pop(worker.number, None)
        if price is not None:
            del self._workers[price][worker.number]
            if not self._workers[price]:
                del self._workers[price]
                self._compare()

    def update(self, worker: WorkerSession) -> None:
        """The pace of a worker has changed, or what is wanted."""
        if worker.number in self._prices:
            self.remove(worker)
            self.add(worker)

    def _compare(self) -> None:
        self.cheapest = min(self._workers, default=1.0)
        self.differ = len(self._workers) > 1

    def begin(self) -> None:
        """Some tasks are placed from now on: workers may have finished others."""
        self._preferred.clear()
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
        workers = [each for workers in self._workers.values() for each in workers.values()]
        for worker in workers:
            if any(name in worker.capabilities for name in names):
                self.update(worker)

    def part_of(self, share: int, worker: WorkerSession, ready_class: ReadyClass) -> int:
        """How much of its share of the tasks that wait a worker gets that others are preferred to."""
        batch = ready_class.batch_of_turn()
        duration_microseconds = None if batch is None else self._state.durations.get(batch.function_key)
        if duration_microseconds is None:
            return share
        now, since = self._state.now, ready_class.waits_since
        if since is not None and (now - since) * 1e6 >= duration_microseconds * self.price_of(worker):
            return share
        count = self.worthwhile(worker, duration_microseconds, ready_class.count)
        if not count:
            ready_class.waits_since = now if since is None else since
        return count if count < share else share

    def worthwhile(self, worker: WorkerSession, duration_microseconds: float, count: int) -> int:
        """How many of some waiting tasks a worker should get so that all of them end sooner.

        Parameters:
            duration_microseconds: of one of them, on average.
            count: how many wait.
        """
        price, is_free = self.price_of(worker), worker.assigned < worker.slots
        begins_microseconds = 0.0 if is_free else worker.left_microseconds(self._state.now) / worker.slots
        ends_microseconds = begins_microseconds + duration_microseconds * price
        most_rounds = ends_microseconds / (duration_microseconds * self.cheapest / RELUCTANCE) + 1.0
        if count > most_rounds * self._state.total_slots:
            return count  # however many of these slots are of preferred workers
        slots, pace, held_microseconds = self._preferred_to(price)
        if not slots:
            return count
        rounds = max(0, int((ends_microseconds - held_microseconds) / (duration_microseconds * pace)))
        return max(0, count - rounds * slots)

    def _preferred_to(self, price: float) -> Tuple[int, float, float]:
        """How many slots cheaper workers have, their pace on average, and for how long they have enough to do."""
        known = self._preferred.get(price)
        if known is not None:
            return known
        slots, rate, microseconds, now = 0, 0.0, 0.0, self._state.now
        for each, workers in self._workers.items():
            for worker in workers.values() if each < price else ():
                is_late = worker.finished == worker.finished_when_asked
                if not (is_late or worker.leaving or worker.is_congested or worker.distance_microseconds):
                    slots += worker.slots
                    rate += worker.slots / worker.pace.factor
                    microseconds += worker.left_microseconds(now) / worker.pace.factor
        known = (slots, slots / rate, microseconds / rate) if slots else (0, 0.0, 0.0)
        self._preferred[price] = known
        return known
