"""Asking workers for tasks that wait behind others, when slots are free elsewhere.

Rules:
- The scheduler never takes a task away: it asks, and the worker gives back tasks that have not started.
- Calls of actors stay where they are.
- A slot is free for tasks that wait behind others if no task that waits for a worker could have it: those may need what
  it has not, and tasks that it could run wait elsewhere meanwhile.
- Tasks that wait where their bytes are are asked for only when that takes too long, and periodically. No others come to
  wait there then until the worker has finished a task: what it runs may take much longer than was estimated.
- A worker gives back the tasks that it would start last. If no free slot can take any of these, it is asked for twice
  as many the next time, after a pause that is twice as long: those that could run elsewhere may be before them.
- Rebalancing corrects wrong estimates of durations; it is not the way to distribute work. So it considers all workers
  that hold more tasks than slots only periodically, and otherwise those with enough estimated work to be worth two
  messages.
"""

from __future__ import annotations

from itertools import islice
from typing import Iterator, List, Optional, Set, Tuple

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import Dispatch, Needs
from scaler_appliance.core.tasks.requeue import Requeue
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_protocol import messages as m

WORTHWHILE_MICROSECONDS = 20_000.0  # of work in line behind other tasks
MAXIMUM_DONORS = 10  # that are looked at often
CLASSES_LOOKED_AT = 256  # of waiting tasks
DISPATCHES_LOOKED_AT = 4  # of a worker, for the functions of its tasks
COMPARISONS = 4096  # of free slots with what waiting tasks need, in one call
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 2.0  # after an answer that was of no use
MOST_DOUBLINGS = 30


class Rebalance:
    def __init__(self, state: SchedulerState, placement: Placement, outcomes: TaskOutcomes, requeue: Requeue) -> None:
        self._state = state
        self._placement = placement
        self._outcomes = outcomes
        self._requeue = requeue
        self._last_balance_request = 0
        self._compared = 0  # idle workers, by the last call

    def rebalance(self, all_workers: bool = True) -> None:
        """If slots are free for which no task is queued, ask workers for tasks that wait behind others.

        Parameters:
            all_workers: ask all workers that have any; otherwise those with the most, if that is enough work.
        """
        over_committed = self._state.over_committed
        if not over_committed or not any(self._placement.idle_workers()):
            return
        waiting = self._waiting()
        if waiting is None or any(map(self._placement.able.suit_everyone, waiting)):
            return
        for worker in [each for each in over_committed.values() if each.assigned <= each.slots]:
            del over_committed[worker.number]
        now = self._state.now
        donors = [
            each
            for each in over_committed.values()
            if each.balance_request is None and not each.leaving and now >= each.not_asked_until
        ]
        if not donors:
            return
        idle = [worker for worker in self._placement.idle_workers() if not worker.leaving]
        if not all_workers and any(worker.distance_microseconds for worker in idle):  # is it worth the way?
            longest = max(each.load_microseconds / each.slots for each in donors)
            idle = [worker for worker in idle if worker.distance_microseconds < longest]
        if not all_workers and self._placement.speeds.differ:  # is one there sooner done than behind others?
            rounds = max(each.assigned / each.slots * each.pace.factor for each in donors)
            prices = {self._placement.speeds.of(each) for each in _functions_of(donors[:MAXIMUM_DONORS])}
            idle = [worker for worker in idle if min(each.of(worker) for each in prices) < rounds]
        if waiting:
            idle = [worker for worker in self._next(idle, waiting) if not _could_take(worker, waiting, now)]
        free_slots = sum(worker.slots - worker.assigned for worker in idle)
        if not free_slots:
            return
        donors.sort(key=lambda worker: worker.slots / worker.assigned)
        if not all_workers:
            donors = list(filter(self._has_much_in_line, donors[:MAXIMUM_DONORS]))
        for donor in donors:
            at_their_bytes = _waiting_at_their_bytes(donor, now)
            surplus = donor.assigned - donor.slots - donor.slots_given_up - at_their_bytes
            if surplus <= 0:
                continue
            count = -(-surplus * free_slots // (free_slots + donor.slots))
            if _could_run_elsewhere(donor, idle, now):
                self._ask_back(donor, max(count, min(count << donor.useless_answers, donor.assigned - donor.slots)))
                free_slots -= min(free_slots, count)
            if not free_slots:
                break

    def _waiting(self) -> Optional[Set[Needs]]:
        """What the tasks need that wait for a worker only; None: there are too many kinds of them to look at.

        Tasks that a quota keeps waiting take no slot.
        """
        room_of = self._state.shares.room_of
        needs = self._state.ready.needs_of_placeable(CLASSES_LOOKED_AT)
        return None if needs is None else {each for each in needs if room_of(each.tenant) > 0}

    def _next(self, idle: List[WorkerSession], waiting: Set[Needs]) -> List[WorkerSession]:
        """As many workers as are compared with what tasks need in one call; the next call goes on behind them."""
        first, self._compared = self._compared, self._compared + COMPARISONS // len(waiting)
        if self._compared >= len(idle):
            self._compared = 0
        return idle[first : first + COMPARISONS // len(waiting)]

    def _has_much_in_line(self, worker: WorkerSession) -> bool:
        """Whether the waiting tasks of a worker are worth asking for, by current estimates of durations."""
        others = worker.assigned - _waiting_at_their_bytes(worker, 0.0)
        if others <= worker.slots:
            return False
        enough = WORTHWHILE_MICROSECONDS * others / (others - worker.slots)
        microseconds = 0.0
        for dispatch in worker.dispatches.values():
            if dispatch.is_of_actor or dispatch.waits_until:
                continue
            function = dispatch.batch.function_key
            known = self._state.durations.get(function)
            estimate = dispatch.estimate_microseconds if known is None else known * worker.pace.of(function)
            microseconds += estimate * dispatch.open_count
            if microseconds >= enough:
                return True
        return False

    def _ask_back(self, worker: WorkerSession, count: int) -> None:
        self._last_balance_request += 1
        worker.balance_request = self._last_balance_request
        worker.finished_when_asked = worker.finished
        self._state.send(worker.peer, m.BalanceRequest(request_id=self._last_balance_request, count=count))

    def on_balance_response(self, worker: WorkerSession, message: m.BalanceResponse) -> None:
        """A worker gives back tasks it has not started."""
        if message.request_id == worker.balance_request:
            worker.balance_request = None
        found: List[Tuple[Dispatch, int, int]] = []
        position = 0
        try:
            while position < len(message.ids):
                dispatch, start, stop = self._outcomes.find_run(worker, message.ids, position)
                position += stop - start
                if dispatch is not None and dispatch.is_open(start):
                    # SCL-WRK-034
                    if dispatch.is_of_actor:
                        text = "BalanceResponse: calls of an actor can run nowhere else, and are not given back"
                        raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, text)
                    self._outcomes.close(worker, dispatch, start, stop)
                    self._state.shares.give_back(dispatch, stop - start)
                    self._requeue.finish_cancelled(dispatch.batch, start, stop)
                    found.append((dispatch, start, stop))
        finally:  # also for the ids before an invalid one
            for dispatch, start, stop in sorted(found, key=_place, reverse=True):
                self._requeue.requeue(dispatch.batch, start, stop)
            self._note_use(worker, {dispatch.batch.requirement.needs for dispatch, _, _ in found})
        self._placement.on_load_changed(worker)

    def _note_use(self, worker: WorkerSession, needs: Set[Needs]) -> None:
        """Note whether free slots can take tasks that a worker has given back, which need this."""
        if not needs:
            return
        idle, now = list(islice(self._placement.idle_workers(), COMPARISONS // len(needs))), self._state.now
        if any(_could_take(each, needs, now) for each in idle):
            worker.useless_answers, worker.not_asked_until = 0, now
        elif idle:
            pause_seconds = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**worker.useless_answers)
            worker.not_asked_until = now + pause_seconds
            worker.useless_answers = min(MOST_DOUBLINGS, worker.useless_answers + 1)


def _place(run: Tuple[Dispatch, int, int]) -> Tuple[int, int]:
    """The position of a run in the order in which tasks were dispatched."""
    return run[0].number, run[1]


def _waiting_at_their_bytes(worker: WorkerSession, now: float) -> int:
    """How many tasks of a worker wait there because of their bytes, and have not waited for too long."""
    return sum([each.open_count for each in worker.dispatches.values() if each.waits_until > now])


def _functions_of(donors: List[WorkerSession]) -> Iterator[object]:
    """The functions of some tasks that workers hold, all of which hold some."""
    for donor in donors:
        for dispatch in islice(donor.dispatches.values(), DISPATCHES_LOOKED_AT):
            yield dispatch.batch.function_key


def _could_take(worker: WorkerSession, needs: Set[Needs], now: float) -> bool:
    """Whether a task with some of these needs could run at a worker now."""
    return any(worker.offers(each, now) and worker.room_for(each.capabilities) for each in needs)


def _could_run_elsewhere(donor: WorkerSession, idle: List[WorkerSession], now: float) -> bool:
    needs = {each.batch.requirement.needs for each in donor.dispatches.values() if not each.is_of_actor}
    return any(_could_take(worker, needs, now) for worker in idle)
