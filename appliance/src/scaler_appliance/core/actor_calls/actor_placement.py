"""Where a new actor goes, and when its calls follow.

    first call ──▶ a worker with room ──▶ bound: all later calls go there, in order, as it works them off
                                            │
                          the worker is gone ──▶ lost: calls that wait, and all later ones, end as `actorLost`

Rules:
- A new actor goes to a worker that would get a task now: one with a free slot, or with little to do. Among these, the
  host should have the memory that the actor may use, and be near; then fewer actors for each slot are better, where a
  slot of a slow worker counts as less than one.
- A worker holds calls of an actor for about `prefetch_seconds`, a distant one for longer, whatever else it has to do:
  an actor takes one slot at most, so calls of one actor do not take the place of other tasks. What they take is part of
  the worker's load.
- A worker that leaves keeps its actors, and gets their calls, until they end.
- An actor begins when its first call is sent. Until then, objects are announced to its worker; if the worker goes,
  leaves or is congested meanwhile, another one is chosen.
- The calls of one client go out in the order in which it submitted them, and clients take turns.
- Actors without a place wait in groups (`waiting_actors`): if a worker has got room, one of each kind is looked at, and
  the next one if that has found a place. Later ones of a kind do not overtake those that wait.
"""

from __future__ import annotations

from itertools import islice
from typing import Iterator, Optional, Tuple

from scaler_appliance.core.actor_calls.actor_table import MAXIMUM_ACTORS_OF_CLIENT, ActorRecord
from scaler_appliance.core.objects.object_records import ObjectRecord
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.prefetch import TASKS_AHEAD_OF_UNMEASURED
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.placement.tenant_shares import UNLIMITED
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import TaskBatch, TaskSpan
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_protocol import messages as m

MAXIMUM_CANDIDATES = 64  # workers that are compared for one actor
UNITS_OF_AN_ACTOR = 4
UNITS_OF_A_CANDIDATE = 2
CALLS_AT_ONCE = 1000  # that end with their actor
RETRIED_AT_ONCE = 16  # actors that wait


class ActorPlacement:
    def __init__(self, state: SchedulerState, placement: Placement, outcomes: TaskOutcomes) -> None:
        self._state = state
        self._placement = placement
        self._outcomes = outcomes
        self._target_microseconds = state.settings.prefetch_seconds * 1e6
        self._room_changes = 0  # how many it knows of
        self._had_quotas = False  # in the last call: they may have been lifted since

    # Accepting --------------------------------------------------------------------------------------------------------

    def admit(self, client: ClientSession, batch: TaskBatch, function: Optional[ObjectRecord]) -> Optional[m.Failure]:
        """Calls of an actor arrive, which is new with its first one; returns why they cannot be accepted."""
        # SCL-SCH-045
        if not batch.function:
            return _failure(m.FailureKind.REJECTED, "a call of an actor must name the object that holds its function")
        actor = self._state.actors.find(batch.function) if function is not None else None
        if function is not None and actor is None and function.owner == client.number and function.held:
            count = self._state.actors.count_of(client.number)
            if count >= MAXIMUM_ACTORS_OF_CLIENT:
                text = f"the client has {count} actors, and each may have {MAXIMUM_ACTORS_OF_CLIENT}: close some first"
                return _failure(m.FailureKind.REJECTED, text)
            actor = ActorRecord(batch.function, function.name, client.number, batch.requirement, batch.options)
            self._state.actors.add(actor)
            self._state.changes.actors.add(actor.number, actor)
        if actor is not None:
            actor.unfinished += len(batch)
            self._state.touch_actor(actor)
        if function is None or actor is None or not function.held:
            text = "the actor has ended, because it was closed or its client is gone; or there never was one"
            return _failure(m.FailureKind.ACTOR_LOST, text)
        if actor.why_lost:
            return _failure(m.FailureKind.ACTOR_LOST, actor.why_lost)
        batch.requirement = actor.requirement
        return None

    # Losing -----------------------------------------------------------------------------------------------------------

    # SCL-SCH-044
    def on_worker_gone(self, worker: WorkerSession, why: str) -> None:
        """Actors that have begun at a worker are lost with it; their calls that wait end with the next `place`."""
        for function in worker.actors:
            actor = self._state.actors.find(function)
            assert actor is not None
            if actor.has_begun:
                actor.why_lost = f"{actor.label} was lost with its worker, {worker.label}: {why}"
            self._state.ready.wake(actor.requirement)
            self._state.touch_actor(actor)

    def forget_worker(self, worker: WorkerSession) -> None:
        """The tasks of a worker that is gone have ended."""
        for function in list(worker.actors):
            actor = self._state.actors.find(function)
            assert actor is not None
            worker.remove_actor(actor)
            self._state.touch_actor(actor)

    def _end_calls(self, actor: ActorRecord, ready_class: ReadyClass, amount: int) -> int:
        """End waiting calls of a lost actor, some in any case; returns the amount of work."""
        done = 0
        while done < max(1, amount):
            span = ready_class.take(CALLS_AT_ONCE)
            if span is None:
                break
            self._outcomes.lose(span, m.FailureKind.ACTOR_LOST, actor.why_lost)
            done += UNITS_OF_AN_ACTOR + span.stop - span.start
        if ready_class.count:
            self._state.ready.wake(actor.requirement)
        return done

    # Placing ----------------------------------------------------------------------------------------------------------

    @property
    def is_unfinished(self) -> bool:
        """Whether `place` has more to do."""
        actors = self._state.actors
        has_room = bool(actors.without_worker) and actors.room_changes != self._room_changes
        return bool(self._state.ready.woken or actors.without_worker.is_due or actors.held_up.is_due or has_room)

    def place(self, amount: int, is_changed: bool) -> int:
        """Send calls to the workers of their actors, with this amount of work; the rest follows in later calls.

        Parameters:
            is_changed: whether tasks or workers may have changed since the last call.

        Returns what is left of the amount.
        """
        ready = self._state.ready
        self._placement.begin_burst()
        if self._state.rid_of_actors:
            self._announce_ends()
        amount = max(0, self._look_at_waiting(amount, is_changed))
        for number, ready_class in list(islice(ready.woken.items(), amount)):
            if amount <= 0:
                break
            del ready.woken[number]
            amount -= UNITS_OF_AN_ACTOR
            actor = self._state.actors.find(number)
            assert actor is not None, f"calls wait for the actor {number:x}, which is forgotten"
            if actor.why_lost:
                self._state.actors.go_on(actor)
                amount -= self._end_calls(actor, ready_class, amount)
            elif ready_class.count:
                amount -= self._place_calls(actor, ready_class)
            ready.remove_if_without_calls(ready_class)
        return max(amount, self._state.part)

    def _announce_ends(self) -> None:
        """Workers stop actors that have ended before they get tasks with what these have used."""
        for worker in self._state.rid_of_actors.values():
            for message in worker.take_messages() if not worker.is_gone else ():
                self._state.send(worker.peer, message)
        self._state.rid_of_actors.clear()

    def _look_at_waiting(self, amount: int, is_changed: bool) -> int:
        """Look at some of the actors that wait, if something has changed for them; returns what is left of the amount
        of work."""
        actors, ready = self._state.actors, self._state.ready
        has_quotas = self._state.has_quotas  # how much a tenant may have is no matter of room
        if actors.room_changes != self._room_changes or (is_changed and (has_quotas or self._had_quotas)):
            self._room_changes, self._had_quotas = actors.room_changes, has_quotas
            actors.without_worker.look_again()
        if is_changed:
            actors.held_up.look_again()
        for waiting in (actors.held_up, actors.without_worker):
            for _ in range(RETRIED_AT_ONCE):
                actor = waiting.first() if amount > 0 else None
                if actor is None:
                    break
                amount -= UNITS_OF_AN_ACTOR
                ready_class = ready.class_of_calls(actor.requirement)
                key = actor.waits_for
                if actor.why_lost or ready_class is None or not ready_class.count:
                    actors.go_on(actor)  # its calls were cancelled, or end, or it is woken with its client
                    continue
                amount -= self._place_calls(actor, ready_class, is_first=True)
                ready.remove_if_without_calls(ready_class)
                if actor.waits_for == key:
                    waiting.leave(key)
        return amount

    def _wait(self, actor: ActorRecord) -> None:
        """The calls of an actor can go nowhere for the moment."""
        actors = self._state.actors
        if actor.has_begun:
            actors.held_up.add((actor.worker, actor.tenant), actor)
        else:
            actors.without_worker.add(actor.kind, actor)

    def _place_calls(self, actor: ActorRecord, ready_class: ReadyClass, is_first: bool = False) -> int:
        """Send calls of an actor; returns the amount of work.

        Parameters:
            is_first: whether it is the first of a group that waits, so that it overtakes none.
        """
        done = 0
        worker = self._state.workers.get(actor.worker)
        if worker is not None and not actor.has_begun and (worker.is_congested or worker.leaving):
            worker.remove_actor(actor)
            self._state.touch_actor(actor)
            worker = None
        if worker is None:
            if not is_first and actor.kind in self._state.actors.without_worker:
                self._wait(actor)
                return done
            worker, done = self._choose(actor)
            if worker is None:
                self._wait(actor)
                return done
            # SCL-SCH-042
            worker.add_actor(actor)
            self._state.touch_actor(actor)
        if worker.is_congested:
            self._wait(actor)
            return done
        done += self._fill(actor, worker, ready_class)
        if actor.open_calls or not ready_class.count or actor.function in self._state.ready.woken:
            self._state.actors.go_on(actor)
            return done
        if not actor.has_begun:  # others may use what it needs
            worker.remove_actor(actor)
            self._state.touch_actor(actor)
        self._wait(actor)  # because of a quota: no call that ends will wake it
        return done

    def _choose(self, actor: ActorRecord) -> Tuple[Optional[WorkerSession], int]:
        """The best worker for a new actor, if one has room for it, and the amount of work."""
        candidates = list(islice(self._candidates(actor), MAXIMUM_CANDIDATES))
        done = UNITS_OF_A_CANDIDATE * (1 + len(self._state.workers) // 16 + len(candidates))
        if not candidates:
            return None, done
        return min(candidates, key=lambda worker: self._rank(actor, worker)), done

    def _candidates(self, actor: ActorRecord) -> Iterator[WorkerSession]:
        needs = actor.requirement.needs._replace(capabilities=actor.capabilities)
        for worker in self._placement.workers_with_room():
            # SCL-SCH-043
            is_able = worker.runs_actors and worker.offers(needs, self._state.now)
            if is_able and worker.has_room_for_actor(actor.capabilities):
                yield worker

    def _rank(self, actor: ActorRecord, worker: WorkerSession) -> Tuple[bool, float, bool, int, float]:
        """Smaller is better."""
        free_bytes = worker.heartbeat.free_bytes if worker.heartbeat is not None else 0
        lacks_memory = 0 < free_bytes < actor.memory_limit_bytes + self._memory_of_actors(worker)
        is_busy = worker.assigned >= worker.slots
        used = (len(worker.actors) + 1) / worker.hello.slots * worker.pace.factor
        return lacks_memory, worker.distance_microseconds, is_busy, len(worker.capabilities), used

    def _memory_of_actors(self, worker: WorkerSession) -> int:
        """What actors that have not begun to use theirs may take: those that came since its last heartbeat."""
        return sum(
            actor.memory_limit_bytes
            for actor in map(self._state.actors.find, worker.actors)
            if actor is not None and actor.open_calls and actor.load_microseconds
        )

    # SCL-SCH-042
    def _fill(self, actor: ActorRecord, worker: WorkerSession, ready_class: ReadyClass) -> int:
        """Send calls until the actor's worker has enough of them; returns the amount of work."""
        target_microseconds = self._target_microseconds + 2.0 * worker.distance_microseconds
        if actor.open_calls and actor.load_microseconds * 2 >= target_microseconds:
            return 0  # few large messages are better than many small ones: a call that ends wakes it
        unmeasured = self._target_microseconds / TASKS_AHEAD_OF_UNMEASURED
        room, done = self._room(actor, worker), 0
        while room > 0 and ready_class.count:
            span = ready_class.take(room)
            if span is None:
                break
            estimate = self._state.durations.get(span.batch.function_key) or unmeasured
            free_microseconds = target_microseconds - actor.load_microseconds
            count = min(span.stop - span.start, max(int(free_microseconds / estimate), 0 if actor.open_calls else 1))
            sent = self._placement.send_calls(worker, span, count, estimate, actor)
            done += UNITS_OF_AN_ACTOR + sent
            if sent < span.stop - span.start:
                ready_class.add(TaskSpan(span.batch, span.start + sent, span.stop), in_front=True)
            if sent:
                actor.has_begun = True
                self._state.touch_actor(actor)
                ready_class.count_turn(sent * estimate, unmeasured)
                room -= sent
            if sent < count:
                self._state.ready.wake(actor.requirement)  # its objects are being announced, or the burst is full
            if not sent:
                break
        return done

    def _room(self, actor: ActorRecord, worker: WorkerSession) -> int:
        """How many more calls the worker may hold."""
        room = worker.queue_size - actor.open_calls
        if self._state.has_quotas:
            quota = self._state.shares.room_of(actor.tenant)
            room = min(room, quota) if quota < UNLIMITED else room
        return room


def _failure(kind: m.FailureKind, text: str) -> m.Failure:
    """Of a call that cannot be accepted."""
    return m.Failure(kind=kind, message=text, attempts=1)
