"""What a worker is worth compared with others, and which tasks are done sooner, or nearly so, if they wait for those.

    preferred workers:  |-- what they hold --|-- what waits, in rounds of all their slots --|
    another worker:     |------------ one task ------------|                                   it gets one
    another worker:     |------------------------- one task -------------------------|         it gets none

Rules:
- A slow worker gets no more of the tasks that wait than make all of them end sooner.
- Estimates may be wrong. A worker that was asked to give tasks back and has finished none since is not waited for; and
  no class waits longer, without that one of its tasks is placed, than a task would have taken where a slot is free.
- Only near workers are waited for.
- Workers have usual prices, and others for functions whose pace differs there (`pace`).
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.state import SchedulerState

RELUCTANCE = 1.25
"""So many times as long, compared with its pace, a worker may seem to take that offers what others want."""


class Prices:
    """The price of all workers for tasks of most functions: the pace of each, times its reluctance.

    Attributes:
        cheapest: the least price of any worker.
        differ: whether prices do.
        are_usual: they are for most functions.
    """

    are_usual = True

    def __init__(self, state: SchedulerState) -> None:
        self.cheapest = 1.0
        self.differ = False
        self._state = state
        self._workers: Dict[float, Dict[int, WorkerSession]] = {}
        self._prices: Dict[int, float] = {}
        self._preferred: Dict[float, Tuple[int, float, float]] = {}  # to workers of a price: what is known of those
        self._function: Optional[object] = None

    def of(self, worker: WorkerSession) -> float:
        """How many times as long tasks that need no capabilities seem to take there."""
        return self._prices.get(worker.number, 1.0)

    def add(self, worker: WorkerSession, price: float) -> None:
        """A worker has come, or its price has changed."""
        self._prices[worker.number] = price
        self._workers.setdefault(price, {})[worker.number] = worker

    def remove(self, worker: WorkerSession) -> bool:
        """A worker is gone, or its price changes; returns whether it was there."""
        price = self._prices.pop(worker.number, None)
        if price is None:
            return False
        del self._workers[price][worker.number]
        if not self._workers[price]:
            del self._workers[price]
        return True

    def has(self, worker: WorkerSession) -> bool:
        """Whether the worker is there."""
        return worker.number in self._prices

    def workers(self) -> List[WorkerSession]:
        """All of them."""
        return [each for workers in self._workers.values() for each in workers.values()]

    def begin(self) -> None:
        """Some tasks are placed from now on: workers may have finished others."""
        self._preferred.clear()

    def compare(self) -> None:
        """Workers were added or removed."""
        self.cheapest = min(self._workers, default=1.0)
        self.differ = len(self._workers) > 1

    def _levels(self) -> Iterator[Tuple[float, Iterator[WorkerSession]]]:
        """All prices, each with its workers."""
        for price, workers in self._workers.items():
            yield price, iter(workers.values())

    def part_of(self, share: int, worker: WorkerSession, ready_class: ReadyClass) -> int:
        """How much of its share of the tasks that wait a worker gets that others are preferred to."""
        batch = ready_class.batch_of_turn()
        duration_microseconds = None if batch is None else self._state.durations.get(batch.function_key)
        if duration_microseconds is None:
            return share
        now, since = self._state.now, ready_class.waits_since
        if since is not None and (now - since) * 1e6 >= duration_microseconds * self.of(worker):
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
        price, is_free = self.of(worker), worker.assigned < worker.slots
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

    def has_preferred_to(self, worker: WorkerSession) -> bool:
        """Whether there is one that is waited for rather than to use a worker."""
        return self._preferred_to(self.of(worker))[0] > 0

    def _preferred_to(self, price: float) -> Tuple[int, float, float]:
        """How many slots cheaper workers have, their pace on average, and for how long they have enough to do."""
        known = self._preferred.get(price)
        if known is not None:
            return known
        slots, rate, microseconds, now = 0, 0.0, 0.0, self._state.now
        for each, workers in self._levels():
            for worker in workers if each < price else ():
                is_late = worker.finished == worker.finished_when_asked
                if not (is_late or worker.leaving or worker.is_congested or worker.distance_microseconds):
                    slots += worker.slots
                    rate += worker.slots / worker.pace.of(self._function)
                    microseconds += worker.left_microseconds(now) / worker.pace.of(self._function)
        known = (slots, slots / rate, microseconds / rate) if slots else (0, 0.0, 0.0)
        self._preferred[price] = known
        return known


class FunctionPrices(Prices):
    """Those for tasks of a function whose pace differs at some workers from that of others there.

    Parameters:
        usual: of all workers.
    """

    are_usual = False

    def __init__(self, state: SchedulerState, function: object, usual: Prices) -> None:
        super().__init__(state)
        self._function = function
        self._usual = usual
        self.compared_at = -1  # by the number of changes of any prices

    def of(self, worker: WorkerSession) -> float:
        price = self._prices.get(worker.number)
        return self._usual.of(worker) if price is None else price

    def compare(self) -> None:
        prices = {price for price, workers in self._levels() if any(True for _ in workers)}
        self.cheapest, self.differ = min(prices, default=1.0), len(prices) > 1

    def _levels(self) -> Iterator[Tuple[float, Iterator[WorkerSession]]]:
        for price, workers in self._usual._levels():
            yield price, (each for each in workers if each.number not in self._prices)
        yield from super()._levels()

    @property
    def is_empty(self) -> bool:
        """Whether all workers have their usual price."""
        return not self._prices
