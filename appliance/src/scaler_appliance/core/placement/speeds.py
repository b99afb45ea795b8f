"""Which workers are slow, and which tasks are done sooner if they wait for quicker ones.

    quicker workers:  |-- what they hold --|-- what waits, in rounds of all their slots --|
    slow worker:      |------------ one task ------------|                                   it gets one
    slow worker:      |------------------------- one task -------------------------|         it gets none

Rules:
- Among free slots, those of the quickest workers are taken first.
- A slow worker gets no more of the tasks that wait than make all of them end sooner.
- Estimates may be wrong. A worker that was asked to give tasks back and has finished none since is not waited for; and
  no class waits longer, without that one of its tasks is placed, than a task would have taken at the slow worker.
- Only near workers are waited for. If the tasks of a class cannot run at every worker, none of them waits.
"""

from __future__ import annotations

from typing import Dict, Tuple

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.state import SchedulerState


class Speeds:
    """All workers, by their pace.

    Attributes:
        quickest: the pace of the quickest workers.
        differ: whether some workers are slower than others.
    """

    def __init__(self, state: SchedulerState) -> None:
        self.quickest = 1.0
        self.differ = False
        self._state = state
        self._workers: Dict[float, Dict[int, WorkerSession]] = {}
        self._quicker: Dict[float, Tuple[int, float, float]] = {}  # than workers of a pace: what is known of those

    def add(self, worker: WorkerSession) -> None:
        """A worker has come."""
        self._workers.setdefault(worker.pace.factor, {})[worker.number] = worker
        self._compare()

    def remove(self, worker: WorkerSession) -> None:
        """A worker is gone."""
        self._remove(worker, worker.pace.factor)

    def update(self, worker: WorkerSession, before: float) -> None:
        """The pace of a worker has changed."""
        if self._remove(worker, before):
            self.add(worker)

    def _remove(self, worker: WorkerSession, factor: float) -> bool:
        workers = self._workers.get(factor, {})
        is_known = workers.pop(worker.number, None) is not None
        if is_known and not workers:
            del self._workers[factor]
            self._compare()
        return is_known

    def _compare(self) -> None:
        self.quickest = min(self._workers, default=1.0)
        self.differ = len(self._workers) > 1

    def begin(self) -> None:
        """Some tasks are placed from now on: workers may have finished others."""
        self._quicker.clear()

    def part_of(self, share: int, worker: WorkerSession, ready_class: ReadyClass) -> int:
        """How much of its share of the tasks that wait a slow worker gets: the rest is done sooner by quicker ones."""
        batch = ready_class.batch_of_turn()
        duration_microseconds = None if batch is None else self._state.durations.get(batch.function_key)
        if duration_microseconds is None:
            return share
        now, since = self._state.now, ready_class.waits_since
        if since is not None and (now - since) * 1e6 >= duration_microseconds * worker.pace.factor:
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
        is_free = worker.assigned < worker.slots
        begins_microseconds = 0.0 if is_free else worker.left_microseconds(self._state.now) / worker.slots
        ends_microseconds = begins_microseconds + duration_microseconds * worker.pace.factor
        most_rounds = ends_microseconds / (duration_microseconds * self.quickest) + 1.0
        if count > most_rounds * self._state.total_slots:
            return count  # however many of these slots are of quicker workers
        slots, pace, held_microseconds = self._quicker_than(worker.pace.factor)
        if not slots:
            return count
        rounds = max(0, int((ends_microseconds - held_microseconds) / (duration_microseconds * pace)))
        return max(0, count - rounds * slots)

    def _quicker_than(self, factor: float) -> Tuple[int, float, float]:
        """How many slots quicker workers have, their pace on average, and for how long they have enough to do."""
        known = self._quicker.get(factor)
        if known is not None:
            return known
        slots, rate, microseconds, now = 0, 0.0, 0.0, self._state.now
        for pace, workers in self._workers.items():
            for worker in workers.values() if pace < factor else ():
                is_late = worker.finished == worker.finished_when_asked
                if not (is_late or worker.leaving or worker.is_congested or worker.distance_microseconds):
                    slots += worker.slots
                    rate += worker.slots / pace
                    microseconds += worker.left_microseconds(now) / pace
        known = (slots, slots / rate, microseconds / rate) if slots else (0, 0.0, 0.0)
        self._quicker[factor] = known
        return known
