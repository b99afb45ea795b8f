"""Which worker gets which waiting tasks, and how many.

Rules:
- Idle slots come first; then workers get tasks to prefetch, so that no slot waits for a message.
- How much to prefetch follows the measured duration of the function: see `prefetch`. Near workers get theirs before
  distant ones.
- If a worker has no credit for the tasks whose turn it is, it gets no others of this priority instead: after it has
  worked off some of its tasks, it has credit. So a client's turn waits at most for the prefetched work.
- A worker with at least half of its prefetch target gets nothing: few large messages are better than many small ones.
  For the same reason a message has LEAST_MESSAGE_MICROSECONDS of work, if available, even when other workers are idle.
- A task may need very many objects. They are announced to its worker in several calls, and then it is dispatched.
- A tick dispatches a bounded number of bytes, so that what workers do not read is noticed before there is much of it.
- Results that their workers keep stay there if possible: among workers with a free slot, a task goes to the one that
  keeps most of the bytes that it needs, and to a busy one if that costs less time (`kept_bytes`). A task whose duration
  is not known does not wait. This is decided for the first few tasks of a class.
- Which free slots tasks get is in `free_slots`; what waits for quick workers in `speeds`, for memory in `large_tasks`.
- A worker with blocked tasks, which wait for nested ones, gets tasks more urgent than those it holds, as many as it has
  slots, even when it holds enough: the slots of blocked tasks are for these, and it runs them first. Nested tasks are
  more urgent than the tasks that wait for them, so recursion goes depth first, and few tasks wait at a time.
- A call does a limited amount of work: a pass over the classes may take several. Classes that come meanwhile, and
  those that were passed over before a worker got room, are in the next pass, which follows at once.
- If tasks of several tenants wait, tenants take turns as well: at each, few tasks of one class are placed, and then it
  is the turn of the tenant that has had least (`tenant_shares`). A tenant gets no more tasks than its quota allows.
"""

from __future__ import annotations

from itertools import islice
from math import ceil
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from scaler_appliance.core.actor_calls.actor_table import ActorRecord
from scaler_appliance.core.large_tables import LARGE, in_chunks
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.able_workers import AbleWorkers
from scaler_appliance.core.placement.announcing import Announcing
from scaler_appliance.core.placement.distance import Distance
from scaler_appliance.core.placement.free_slots import NO_BOUNDS, FreeSlots
from scaler_appliance.core.placement.kept_bytes import await_bytes, keeper_of_most, who_fetches
from scaler_appliance.core.placement.large_tasks import LargePlacement
from scaler_appliance.core.placement.memory_room import MemoryRoom
from scaler_appliance.core.placement.prefetch import PrefetchCredit
from scaler_appliance.core.placement.prices import Prices
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.placement.speeds import Speeds
from scaler_appliance.core.placement.tenant_shares import UNLIMITED, count_as_urgent
from scaler_appliance.core.placement.workers_with_room import WorkersWithRoom
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import Dispatch, TaskBatch, TaskSpan
from scaler_appliance.core.tasks.task_states import TaskEvent, apply
from scaler_protocol.keys.allow_list import ANY_TENANT

BURST_BYTES = 8 * 1024 * 1024  # of all dispatches of a tick: before the next one, the shell says who reads too slowly
LEAST_MESSAGE_MICROSECONDS = 1000.0  # about ten times the cost of a message here and at the worker
UNITS_OF_A_DISPATCH = 40  # with the message and what it changes
TASKS_PER_UNIT = 64  # of a dispatch
ADMITTED_AT_ONCE = 100  # requirements
PLACED_BY_BYTES = 64  # tasks of a class, in one call
TURNS_OF_FREE_SLOTS = 16  # of tenants, at least, until all free slots have a task


class Placement:
    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._distance = Distance(state)
        self.speeds = Speeds(state)
        self.memory = MemoryRoom(state)
        self._free_slots = FreeSlots(state, self.memory)
        self.able = AbleWorkers(state)
        self._burst_bytes = 0  # dispatched since the tick began
        self._credit = PrefetchCredit(state.settings.prefetch_seconds, self._distance, self.able.suit_everyone)
        self._unmeasured_microseconds = self._credit.unmeasured_microseconds
        self._workers = WorkersWithRoom(state, self._credit.target_microseconds)
        self._large = LargePlacement(state, self.memory, self._free_slots, self.able, self._workers)
        self._pass: List[ReadyClass] = []  # the classes that have not been looked at in this one, the next one last
        self._others: List[List[ReadyClass]] = []  # the same of other tenants than that of these
        self._most = UNLIMITED  # how many more tasks of the current class may be placed in its turn
        self._turn_slots = 1  # so many free slots may be filled in a tenant's turn
        self._left_of_turn: Tuple[int, float] = (0, 0.0)  # of a tenant: tasks, whatever they take, or so much work
        self._is_outdated = False  # the pass: something has changed since it began
        self._left = 0  # units of work that this call may do
        self._counts_bytes = False  # whether others than the scheduler keep any
        self._looked_at = 0  # the client whose next tasks were, for whether they go where their bytes are
        self._announcing = Announcing(state)

    def add_worker(self, worker: WorkerSession) -> None:
        self._on_workers_changed()
        self._workers.add(worker)
        self.speeds.add(worker)

    def _on_workers_changed(self) -> None:
        self.able.on_workers_changed()
        self._state.ready.unpark_all()

    def remove_worker(self, worker: WorkerSession) -> None:
        self._on_workers_changed()
        self._workers.remove(worker)
        if worker.is_gone:  # one that is congested, or leaves, is still distant, or quick
            self._distance.remove(worker)
            self.speeds.remove(worker)

    def idle_workers(self) -> Iterable[WorkerSession]:
        """Workers with a free slot."""
        return self._workers.idle.values()

    def workers_with_room(self) -> Iterator[WorkerSession]:
        """Workers with a free slot, then those that have little to do."""
        return self._workers.of_short_wait()

    def free_slots(self, tenant: str = ANY_TENANT) -> int:
        """How many tasks, or how many of a tenant, could start at once."""
        of_all = tenant == ANY_TENANT
        return sum(
            max(0, each.slots - each.assigned) for each in self._workers.idle.values() if of_all or each.serves(tenant)
        )

    def on_distance_changed(self, worker: WorkerSession) -> None:
        """A worker has become distant, or near."""
        self._distance.update(worker)

    def on_pace_changed(self, worker: WorkerSession) -> None:
        """A worker has turned out to be slower, or quicker, than before."""
        self.speeds.update(worker)

    def on_load_changed(self, worker: WorkerSession) -> None:
        """A worker finished tasks, or its number of free slots changed."""
        self._state.note_load(worker)
        self._workers.on_load_changed(worker)

    @property
    def is_unfinished(self) -> bool:
        """Whether a pass over the classes has to go on."""
        return bool(self._pass)

    def place(self, amount: int, is_changed: bool) -> None:
        """Dispatch waiting tasks as far as workers have room, and as `amount` units of work and BURST_BYTES allow.

        Parameters:
            is_changed: whether tasks or workers may have changed since the last call.
        """
        if not (self._workers.is_any or self._workers.blocked):
            self._end_pass()
            return
        self._left, looks = amount, min(amount, self._state.part)
        self.able.compared = 0
        self._burst_bytes = 0
        self.speeds.begin()
        ready = self._state.ready
        if self._pass:
            self._is_outdated |= is_changed
        else:
            self._begin_pass()
        blocked = dict(self._workers.blocked)
        # SCL-SCH-012
        while self._pass and self._left > 0 and self.able.compared < looks:
            if not (self._workers.is_any or blocked):
                self._end_pass()
                return
            if self._others:
                self._next_tenant()
            ready_class = self._pass[-1]
            waiting = ready_class.count
            self.able.compared += 1
            self._large.apart = 0
            self._most = UNLIMITED
            if self._others or self._state.has_quotas:
                self._limit_turn(ready_class)
            if self._most > 0:
                self._place_class(ready_class, blocked)
            if ready_class.count < waiting - self._large.apart:
                ready.count_served(ready_class)
            elif ready_class.count and not (ready_class.is_parked or self.able.is_offered(ready_class)):
                ready.park(ready_class)
            is_limited = self._most <= 0 and 0 < ready_class.count < waiting  # by its turn: it may have another
            if self._left > 0 and not is_limited:
                self._pass.pop()
                if self._others and not self._pass:
                    self._pass = self._others.pop()
        if ready.has_later and not self._pass:
            ready.remove_empty()
            if ready.admit_some(ADMITTED_AT_ONCE):
                self._is_outdated = True
        if self._is_outdated and not self._pass:
            self._begin_pass()

    def _begin_pass(self) -> None:
        """Begin a new pass over the classes, divided by tenant."""
        self._pass, self._is_outdated = self._state.ready.waiting()[::-1], False
        if not self._state.ready.has_tenants:
            return
        by_tenant: Dict[str, List[ReadyClass]] = {}
        for each in self._pass:
            by_tenant.setdefault(each.requirement.needs.tenant, []).append(each)
        self._state.shares.begin(list(by_tenant))
        self._others = list(by_tenant.values())
        self._pass = self._others.pop() if self._others else []
        if self._others:
            self._turn_slots = 1 + self.free_slots() // TURNS_OF_FREE_SLOTS

    def _end_pass(self) -> None:
        """No worker can take a task."""
        self._pass, self._others, self._is_outdated = [], [], False

    def _next_tenant(self) -> None:
        """Go on with the classes of the tenant whose turn it is."""
        work_of = self._state.shares.work_of
        self._others.append(self._pass)
        turns = [(work_of(each[-1].requirement.needs.tenant), each[-1].last_served) for each in self._others]
        self._pass = self._others.pop(turns.index(min(turns)))

    def _limit_turn(self, ready_class: ReadyClass) -> None:
        """Set how many tasks of a class may be placed now."""
        self._most = self._state.shares.room_of(ready_class.requirement.needs.tenant)
        if self._others:
            self._left_of_turn = self._turn_slots, self._unmeasured_microseconds
            batch = ready_class.next_batch()
            duration = None if batch is None else self._state.durations.get(batch.function_key)
            self._end_turn_before(duration)

    def _end_turn_before(self, duration_microseconds: Optional[float]) -> None:
        """Place no more tasks of this duration than the turn of their tenant has room for: those of a class differ."""
        left_tasks, left_microseconds = self._left_of_turn
        in_time = int(left_microseconds / (duration_microseconds or self._unmeasured_microseconds))
        self._most = min(self._most, max(0, left_tasks, in_time))

    def _place_class(self, ready_class: ReadyClass, blocked: Dict[int, WorkerSession]) -> None:
        """Dispatch tasks of a class."""
        if ready_class.requirement.needs.capabilities:
            self.speeds.want(ready_class.requirement.needs.capabilities)
        self._looked_at = 0
        self._counts_bytes = self._state.moves_bytes
        if not ready_class.requirement.is_large or self.memory.is_looked_at(ready_class):
            self._place_usual(ready_class)
        if blocked and ready_class.count and self._left > 0 and self._most > 0:
            self._place_urgent(ready_class, blocked)
        if self._workers.lined_up and self._most > 0:
            self._place_beside_others(ready_class)

    def _place_usual(self, ready_class: ReadyClass) -> None:
        """Dispatch tasks of a class to where their bytes are, then to free slots, then to those that are free soon."""
        if self._counts_bytes and self._workers.is_any:
            self._place_all_by_bytes(ready_class)
        while True:
            self._large.begin(ready_class)
            self._place_at_workers(ready_class)
            if not ready_class.count or self._left <= 0 or self._most <= 0:
                return
            looked_at = self._large.make_way(ready_class)
            if not looked_at:
                return
            self._left -= UNITS_OF_A_DISPATCH + looked_at
            self._is_outdated = True

    def _place_at_workers(self, ready_class: ReadyClass) -> None:
        for is_distant in (False, True) if self._distance.is_known else (None,):
            for candidates in (self._workers.idle, self._workers.awaiting, self._workers.below_prefetch_target):
                while ready_class.count and self._left > 0 and candidates:
                    if not self._place_round(ready_class, candidates, is_distant):
                        break
                    if self._most <= 0 or self._large.has_gone_behind(ready_class):
                        return
                    if self._counts_bytes and self._is_next_by_bytes(ready_class):
                        self._place_by_bytes(ready_class)

    def _place_all_by_bytes(self, ready_class: ReadyClass) -> None:
        """Send tasks to workers that keep results which they need: those of the client whose turn it is, or of several,
        if there are free slots for all that wait: then no one's place is taken by another."""
        clients = list(islice(ready_class.turns(), PLACED_BY_BYTES))
        if len(clients) > 1 and not self._is_room_for_all(ready_class):
            del clients[1:]
        for client in reversed(clients):
            ready_class.give_turn(client)
            if self._left > 0 and self._most > 0:
                self._place_by_bytes(ready_class)

    def _is_room_for_all(self, ready_class: ReadyClass) -> bool:
        """Whether all tasks of a class are placed in this call, each in a free slot, whatever their order."""
        if self._most != UNLIMITED or self._distance.is_known or self._left < ready_class.count * UNITS_OF_A_DISPATCH:
            return False
        free_slots = sum([worker.slots - worker.assigned for worker in self.able.of(self._workers.idle, ready_class)])
        return ready_class.count <= free_slots

    def _is_next_by_bytes(self, ready_class: ReadyClass) -> bool:
        """Whether it is the turn of another client, whose tasks may have to go where their bytes are."""
        batch = ready_class.batch_of_turn()
        return batch is not None and bool(batch.dependency_counts) and batch.client != self._looked_at

    def _place_by_bytes(self, ready_class: ReadyClass) -> None:
        """Send tasks of the client whose turn it is to workers that keep results which they need."""
        elsewhere: List[TaskSpan] = []  # tasks that are not bound to any
        for _ in range(min(ready_class.count, PLACED_BY_BYTES)):
            batch = ready_class.next_batch()
            is_over = batch is None or not batch.dependency_counts or self._left <= 0 or self._most <= 0
            span = None if is_over else ready_class.take_of_turn(1)
            if span is None:
                break
            self._looked_at = span.batch.client
            duration_microseconds = self._state.durations.get(span.batch.function_key)
            if self._others:
                self._end_turn_before(duration_microseconds)
                if self._most <= 0:
                    elsewhere.append(span)
                    break
            worker, waits_until = self._choose_by_bytes(span, duration_microseconds, ready_class.count)
            has_room = worker is not None and self.memory.has_room_for(worker, span.batch)
            if worker is None or not (has_room and self._announce_objects(worker, *span)):
                elsewhere.append(span)
                continue
            self._hand_out(worker, ready_class, span, duration_microseconds)
            if waits_until:
                self._state.dispatches[self._state.last_dispatch].waits_until = waits_until
                self._workers.lined_up[worker.number] = worker
            elif worker.number in self._workers.idle:
                self._workers.on_placed(worker)
        for span in reversed(elsewhere):
            ready_class.add(span, in_front=True)

    def _choose_by_bytes(
        self, span: TaskSpan, duration_microseconds: Optional[float], others: int
    ) -> Tuple[Optional[WorkerSession], float]:
        """The worker that gets a task because of the bytes that it needs, and until when it waits there in line."""
        idle, ahead = self._workers.idle, self._workers.fetching_ahead
        worker, waits_until = keeper_of_most(self._state, idle, span)
        if worker is None and ahead and not (idle or self._workers.awaiting):
            worker = who_fetches(self._state, ahead, span)
            return (None if worker is None or self._credit.would_pass(worker, span.batch.requirement) else worker), 0.0
        if worker and waits_until and self._credit.would_pass(worker, span.batch.requirement):
            waits_until = 0.0
        if worker and not (waits_until or self._credit.of(worker, span, duration_microseconds, 0, others)):
            worker = None
        return worker, waits_until

    def _place_round(
        self, ready_class: ReadyClass, candidates: Dict[int, WorkerSession], is_distant: Optional[bool]
    ) -> bool:
        """Offer each candidate its share of the class once; returns whether any took some."""
        is_sparing, most_here = False, NO_BOUNDS
        need, prices = self.memory.need_of_next(ready_class), self.speeds.of_next(ready_class)
        if need:
            able, most_here = self._large.workers_for(ready_class, candidates, is_distant, prices, need)
            is_sparing = True
        elif is_distant:  # those further away may take none
            able = sorted(self.able.of(candidates, ready_class, True), key=lambda worker: worker.distance_microseconds)
        elif candidates is self._workers.idle:
            workers = self.able.of(candidates, ready_class, is_distant)
            able, is_sparing = self._free_slots.choose(workers, ready_class, prices)
        else:  # there are no more tasks
            able = list(islice(self.able.of(candidates, ready_class, is_distant), ready_class.count))
        slots, is_changed = sum([worker.slots for worker in able]), False
        may_wait = self.speeds.differ and not need and self.able.suit_everyone(ready_class.requirement.needs)
        for worker in able:
            most = ready_class.count if ready_class.count < self._most else self._most
            if most_here:
                share = min(most, most_here[worker.number])
            else:
                share = min(most, worker.slots - worker.assigned) if is_sparing else ceil(most * worker.slots / slots)
            slots -= worker.slots
            before = prices
            if may_wait and prices.of(worker) > prices.cheapest:
                share, prices = self.speeds.part_of(share, worker, ready_class)
                if not share:
                    continue
            taken = self._fill(worker, ready_class, share, need, prices)
            ready_class.resume_turn(taken)
            prices = self.speeds.of_next(ready_class)
            is_changed |= taken > 0
            is_by_bytes = self._counts_bytes and taken > 0 and self._is_next_by_bytes(ready_class)
            if candidates is not self._workers.below_prefetch_target:
                self._workers.on_placed(worker)
            elif taken < (share if prices.are_usual else 1) and not is_by_bytes and self._left > 0 and self._most > 0:
                del self._workers.below_prefetch_target[worker.number]  # until it has worked off half of what it holds
                is_changed = True
            is_other = (
                prices is not before and candidates is self._workers.idle and before.of(worker) <= before.cheapest
            )
            if not ready_class.count or is_by_bytes or (is_other and taken) or self._left <= 0 or self._most <= 0:
                break
        return is_changed

    def _place_urgent(self, ready_class: ReadyClass, blocked: Dict[int, WorkerSession]) -> None:
        """Send tasks to workers with blocked tasks that hold too few as urgent as these.

        The classes of a tenant are ordered by priority: if there is one tenant, a worker with enough for one class has
        enough for the next, and is removed.
        """
        for worker in list(self.able.of(blocked, ready_class)):
            wanted = worker.hello.slots - count_as_urgent(worker, ready_class.requirement)
            if wanted <= 0 or worker.leaving or worker.is_congested:
                if not self._state.ready.has_tenants:
                    del blocked[worker.number]
            elif ready_class.count:
                wanted = min(wanted, self._most)
                self._fill(worker, ready_class, min(wanted, ready_class.count), urgent=wanted)
                if worker.number in self._workers.idle:
                    self._workers.on_placed(worker)

    def _place_beside_others(self, ready_class: ReadyClass) -> None:
        """Send tasks of clients whose turn is next to workers at which only tasks of others are in line, one of each:
        they take turns there, so that it waits for no more than one task."""
        least = ready_class.requirement.negative_priority
        for worker in list(self.able.of(self._workers.lined_up, ready_class)):
            batches = [each.batch for each in worker.dispatches.values()]
            there = {each.client for each in batches if each.requirement.negative_priority <= least}
            if self._credit.would_pass(worker, ready_class.requirement):
                continue
            for client in ready_class.next_turns():
                is_possible = self._left > 0 and self._most > 0 and len(there) <= worker.slots + 1
                if is_possible and client not in there and ready_class.count_of(client):
                    ready_class.give_turn(client)
                    need = self.memory.need_of_next(ready_class)
                    if need and not self.memory.has_room(worker, need):
                        continue
                    self._fill(worker, ready_class, 1, urgent=1)
                    there.add(client)

    def _fill(
        self, worker: WorkerSession, ready_class: ReadyClass, share: int, need: float = 0.0,
        prices: Optional[Prices] = None, urgent: int = 0,
    ) -> int:  # fmt: skip
        """Dispatch about `share` tasks of a class to a worker, within its credit; returns how many.

        Parameters:
            need: the bytes that a task may use, if they are not urgent.
            prices: for them; None: it does not matter.
            urgent: how many it may have in any case, unless they are suspects.
        """
        placed = 0
        while placed < share and self._left > 0:
            room = worker.room_for(ready_class.requirement.needs.capabilities)
            span = ready_class.take(room) if room else None
            if span is None:
                break
            if span.batch.client != self._looked_at:
                self._looked_at = 0
            function = span.batch.function_key
            is_other = prices is not None and self.speeds.of(function) is not prices
            if is_other or (not urgent and self._state.memory_needs.of(span.batch) > need):
                ready_class.add(span, in_front=True)
                break
            duration_microseconds = self._state.durations.get(function)
            if self._others:
                self._end_turn_before(duration_microseconds)
                if self._most <= 0:
                    ready_class.add(span, in_front=True)
                    break
            credit = self._credit.of(worker, span, duration_microseconds, urgent - placed, ready_class.count)
            taken = span.stop - span.start
            if taken == 1 and credit:  # a lone task, on which latency depends
                count = 1
            else:
                least = int(LEAST_MESSAGE_MICROSECONDS / (duration_microseconds or LEAST_MESSAGE_MICROSECONDS))
                count = min(taken, credit, span.limit_of_message(self._state.part), max(share - placed, least))
                count = min(count, self._most)
                if duration_microseconds:
                    left = ready_class.left_of_turn(duration_microseconds, self._unmeasured_microseconds)
                    if left is not None and left < count:
                        count = left
            if count and not self._announce_objects(worker, span.batch, span.start, span.start + count):
                count = 0  # it goes on in the next call
            if count < taken:
                ready_class.add(TaskSpan(span.batch, span.start + count, span.stop), in_front=True)
                span = TaskSpan(span.batch, span.start, span.start + count)
            if count:
                self._hand_out(worker, ready_class, span, duration_microseconds)
                placed += count
            if count == credit or not count:
                break
            if self._counts_bytes and not urgent and self._is_next_by_bytes(ready_class):
                break
        return placed

    def _hand_out(
        self, worker: WorkerSession, ready_class: ReadyClass, span: TaskSpan, duration_microseconds: Optional[float]
    ) -> None:
        """Dispatch tasks of a class that were taken from it, and count them."""
        count = span.stop - span.start
        ready_class.note_taken(span.batch)
        estimate = self._unmeasured_microseconds if duration_microseconds is None else duration_microseconds
        self._dispatch(worker, span, estimate)
        ready_class.count_turn(count * estimate, self._unmeasured_microseconds)
        self._most -= count
        if self._others:
            left_tasks, left_microseconds = self._left_of_turn
            self._left_of_turn = left_tasks - count, left_microseconds - count * estimate
        if worker.is_shared and self._state.ready.has_tenants:
            self._state.shares.charge_for(self._state.dispatches[self._state.last_dispatch], estimate)

    def begin_burst(self) -> None:
        """A tick begins."""
        self._burst_bytes = 0

    def send_calls(
        self, worker: WorkerSession, span: TaskSpan, count: int, estimate_microseconds: float, actor: ActorRecord
    ) -> int:
        """Send up to `count` calls of an actor from the start of a span to its worker; returns how many."""
        batch, start, _ = span
        count = min(count, span.limit_of_message(self._state.part))
        is_full = self._burst_bytes >= BURST_BYTES
        if count <= 0 or is_full or not self._announce_objects(worker, batch, start, start + count):
            return 0
        self._dispatch(worker, TaskSpan(batch, start, start + count), estimate_microseconds, actor)
        if worker.is_shared and self._state.ready.has_tenants:
            self._state.shares.charge_for(self._state.dispatches[self._state.last_dispatch], estimate_microseconds)
        if not worker.leaving:
            self.on_load_changed(worker)
        return count

    def _dispatch(
        self, worker: WorkerSession, span: TaskSpan, estimate_microseconds: float, actor: Optional[ActorRecord] = None
    ) -> None:
        state = self._state
        batch, start, stop = span
        apply(batch.states, start, stop, TaskEvent.PLACE)
        self._left -= UNITS_OF_A_DISPATCH + (stop - start) // TASKS_PER_UNIT
        state.last_dispatch += 1
        at_worker = estimate_microseconds * worker.pace.of(batch.function_key)
        dispatch = Dispatch(state.last_dispatch, batch, start, stop, worker.number, at_worker)
        dispatch.sent_at = state.now
        state.dispatches[dispatch.number] = batch.dispatches[dispatch.number] = dispatch
        if len(state.dispatches) == LARGE:
            state.dispatches = in_chunks(state.dispatches)
        if actor is None:
            worker.assign(dispatch)
            if state.memory_needs.of(batch):
                worker.large_dispatches[dispatch.number] = dispatch
            if batch.dependency_counts and stop - start == 1 and worker.to_fetch:
                await_bytes(worker, dispatch)
                if worker.slots_ahead:
                    self._workers.on_fetches(worker)
            if not worker.distance_microseconds:
                self._distance.on_placed_near()
        else:
            worker.assign_calls(dispatch, actor)
        self._state.note_load(worker)
        worker.sent += stop - start
        state.count_assigned(dispatch, worker, stop - start)
        payload = batch.payload_of(start, stop)
        self._burst_bytes += len(payload)
        if self._burst_bytes >= BURST_BYTES:
            self._left = 0
        state.send(worker.peer, dispatch.message(), (payload,))

    def _announce_objects(self, worker: WorkerSession, batch: TaskBatch, start: int, stop: int) -> bool:
        """Announce to the worker what tasks [start, stop) need; returns whether that was all, or takes another call."""
        if not batch.dependency_counts and (batch.function in worker.known_objects or not batch.function):
            return True
        done = self._announcing.announce(worker, batch, start, stop)
        self._left = self._left - done.units if done.is_all else 0
        self._burst_bytes += done.payload_bytes
        return done.is_all
