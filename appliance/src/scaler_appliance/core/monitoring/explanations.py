"""Why a task waits, in one sentence.

    ExplanationRequest ──▶ on_request ──▶ Explanation         watch, periodically ──▶ Explanation, and the log

Rules:
- Nothing is decided here and nothing is stored per task: the sentence describes the current state.
- A client gets each reason unsolicited once, however many of its tasks wait for it: as soon as no connected worker can
  run them, or when they have waited for PATIENCE_SECONDS while a worker is idle or none is connected. After tasks of
  that kind have been placed, it may get it again.
- A text depends only on what its client may know of: tasks of its tenant, and workers that run them.
- A round over all that waits is done in parts, because there may be very many requirements, and workers to compare
  with.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from scaler_appliance.core.actor_calls.actor_table import MAXIMUM_ACTORS_OF_WORKER
from scaler_appliance.core.graphs.dependants import Dependant
from scaler_appliance.core.peers.authority import sees_all
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import Capabilities, WorkerSession
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import Steps
from scaler_appliance.core.tasks.batches import LOSSES_OF_A_SUSPECT, Needs, Requirement, TaskBatch
from scaler_appliance.core.tasks.task_states import FINAL_STATES, TaskState
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import DEFAULT_TENANT

PATIENCE_SECONDS = 5.0
MAXIMUM_REASONS = 100  # that are published to monitors
MAXIMUM_TOLD = 10_000  # reasons that clients have got
MAXIMUM_NAMED = 8  # capabilities in a text
PAUSE_OF_A_ROUND = 10  # times as long as it took
UNITS_OF_A_CLIENT = 4
UNITS_OF_A_WORKER = 3  # which is compared with requirements


class Cause(Enum):
    """Why tasks of one kind wait."""

    NO_WORKER = "no worker is connected"
    NOT_OFFERED = "no connected worker has the capabilities"
    ENDS_BEFORE = "no worker that could run them stays as long as they may take"
    IN_USE = "the capabilities are in use"
    UNREAD = "their client does not take its results"
    QUOTA = "their tenant has as many tasks at workers as it may"
    BUSY = "workers are busy"
    MEMORY = "large tasks have the memory of the hosts with a free slot"
    PREFERRED = "other workers than those with a free slot are likely to end them sooner, or will be free soon"
    UNKNOWN = "a worker could run them now"
    NO_ACTORS = "no connected worker runs actors"
    NO_ROOM = "no worker has room for another actor"
    CALLS_BEFORE = "their actor has other calls before them"


_UNTIL_PLACED = (Cause.NO_WORKER, Cause.NOT_OFFERED, Cause.ENDS_BEFORE, Cause.UNKNOWN, Cause.NO_ACTORS)
"""Causes that end when a task is placed. The others come and go all the time, and are reported once."""


class _Wait(NamedTuple):
    """Since when a class has tasks, and since when none of them was placed, in seconds."""

    ready_class: ReadyClass
    began: float
    servings: int
    last_progress: float


class Explanations:
    def __init__(self, state: SchedulerState, placement: Placement) -> None:
        self._state = state
        self._placement = placement
        self._waits: Dict[int, _Wait] = {}  # by identity of the class
        self._round: Optional[Steps] = None  # that goes on
        self._begun = self._next = 0.0  # when that round began, and when the next one may
        self._told: Dict[Needs, Set[Tuple[int, Cause]]] = {}
        self._told_count = 0

    # Asked ----------------------------------------------------------------------------------------------------------

    def on_request(self, client: ClientSession, message: m.ExplanationRequest) -> None:
        """A client asks for the state of one of its tasks."""
        found, node = client.find_task(message.task_id), client.find_node(message.task_id)
        dependant = client.dependants.waiting.get(message.task_id)
        text = "the task has ended: its outcome has left the scheduler"
        if dependant is not None:
            text = f"the task waits for {self._text_of_predecessors(client, dependant)}"
        elif node is not None and node[0].states[node[1]] == TaskState.WAITING:
            missing = node[0].missing[node[1]]
            text = f"the task waits for the results of {_count(missing, 'other task')} of its graph"
            if not missing:  # it is about to be queued
                needs = Requirement.of(node[0].options, node[0].codec, tenant=node[0].tenant).needs
                text = f"the task waits because {self._clause(client, self._cause(client, needs), needs)}"
        elif node is not None and node[0].states[node[1]] == TaskState.QUEUED:
            found = node[0].place_of(node[1])
        elif found is None and message.task_id > client.last_task_id:
            text = "the scheduler has not received the task yet"
        if found is not None and found[0].states[found[1]] not in FINAL_STATES:
            text = self._sentence(client, *found)
        # SCL-SCH-023
        self._state.send(client.peer, m.Explanation(request_id=message.request_id, text=text))

    def _text_of_predecessors(self, client: ClientSession, dependant: Dependant) -> str:
        """The tasks it waits for: the first one by name."""
        missing = [each for each in dependant.predecessors if each not in dependant.results]
        others = f" and {_count(len(missing) - 1, 'other task')}" if len(missing) > 1 else ""
        name = self._name_of_function(client, missing[0])
        return f"task {missing[0]}{f' of {name}' if name else ''}{others}"

    def _name_of_function(self, client: ClientSession, task_id: int) -> str:
        """The state of a task that is in a batch."""
        found, dependant = client.find_task(task_id), client.dependants.waiting.get(task_id)
        if found is not None:
            return found[0].counters.name
        if dependant is None:
            return ""
        function = self._state.objects.find_of(dependant.message.function, client.tenant)
        return dependant.message.function_name if function is None else function.name

    def _sentence(self, client: ClientSession, batch: TaskBatch, index: int) -> str:
        state = batch.states[index]
        if state == TaskState.QUEUED:
            if self._state.ready.is_later(batch):
                return "the task waits because its client has tasks with very many other requirements before it"
            cause = self._cause(client, batch.requirement.needs, batch.requirement.is_large, batch.function_key)
            losses = batch.losses_of(index)
            clause = self._clause(client, cause, batch.requirement.needs, batch.function_key)
            text = f"the task waits because {clause}"
            need = self._state.memory_needs.of(batch) if cause == Cause.MEMORY else 0.0
            if need:
                text += f": it may need {need / 1e9:.1f} GB"
            if losses >= LOSSES_OF_A_SUSPECT:
                text += f"; it was lost with its worker {losses} times, so only a worker with a free slot gets it"
            units = self._state.units.text_for(client.tenant)
            return f"{text}; {units}" if units else text
        if state not in (TaskState.ASSIGNED, TaskState.CANCELLING):
            return f"the task is {TaskState(state).name.lower()}"
        worker = self._state.workers[batch.dispatch_of(index).worker]
        if state == TaskState.CANCELLING:
            return f"the task is being cancelled: {worker.label} has not answered yet"
        actor = self._state.actors.find(batch.function) if batch.options.actor else None
        if actor is not None:
            before = "" if actor.open_calls == 1 else f", one of {actor.open_calls} calls of its actor"
            verb = "it runs, or is next in line there" if actor.open_calls == 1 else "they run one by one"
            return f"the task is at {worker.label}{before}: {verb}{self._arriving(batch, index)}"
        others = "" if worker.assigned == 1 else f", one of {worker.assigned} on {_count(worker.slots, 'slot')}"
        verb = "it runs, or is next in line there" if worker.assigned <= worker.slots else "it runs or waits in line"
        return f"the task is at {worker.label}{others}: {verb}{self._arriving(batch, index)}"

    def _arriving(self, batch: TaskBatch, index: int) -> str:
        """Which of the task's objects have not arrived completely at the scheduler."""
        for object_id in batch.dependencies_of(index, index + 1):
            record = self._state.objects.find(object_id)
            if record is not None and record.arrived < record.size:
                return f"; of an object that it needs, {record.arrived} of {record.size} bytes have arrived"
        return ""

    # Unasked --------------------------------------------------------------------------------------------------------

    def watch(self, now: float) -> None:
        """Begin to look for tasks that cannot run, or wait for long; to be called periodically."""
        if self._round is None and now >= self._next:
            self._begun = now
            self._round = self._look(now)

    @property
    def is_unfinished(self) -> bool:
        """Whether `go_on` has more to do."""
        return self._round is not None

    def go_on(self, now: float, amount: int) -> None:
        """Warn of tasks that cannot run, or wait for long, with this amount of work; to be called after placement."""
        while self._round is not None and amount > 0:
            done = next(self._round, None)
            if done is None:
                self._round = None
                self._next = now + PAUSE_OF_A_ROUND * (now - self._begun)
            amount -= done or 1

    def _look(self, now: float) -> Steps:
        waits: Dict[int, _Wait] = {}
        reasons: List[Tuple[str, str]] = []
        causes: Dict[Tuple[Requirement, bool], Cause] = {}
        ready = self._state.ready
        for ready_class in ready.classes():
            done = 1
            needs = ready_class.requirement.needs
            work = UNITS_OF_A_WORKER * len(self._state.workers) * (1 + len(needs.capabilities) // MAXIMUM_NAMED)
            wait = waits[id(ready_class)] = self._note_wait(now, ready_class)
            for number in ready_class.clients():
                client = self._state.clients.get(number)
                if client is None or not ready_class.count_of(number):
                    continue  # it went away in the meantime, or its tasks are not waiting any more
                done += UNITS_OF_A_CLIENT
                key = ready_class.requirement, ready.is_held(number)
                if key not in causes:
                    function = _next_function(ready_class)
                    causes[key] = self._cause(client, needs, ready_class.requirement.is_large, function)
                    done += work
                if self._is_due(now, causes[key], wait):
                    text = self._warn(client, ready_class, causes[key])
                    done += work if text else 0
                    if text and len(reasons) < MAXIMUM_REASONS:
                        reasons.append((client.tenant, f"{client.label}: {text}"))
            yield done
        self._waits = waits
        self._state.changes.reasons = reasons

    def _note_wait(self, now: float, ready_class: ReadyClass) -> _Wait:
        wait = self._waits.get(id(ready_class))
        if wait is None or wait.ready_class is not ready_class:
            return _Wait(ready_class, now, ready_class.last_served, now)
        if wait.servings == ready_class.last_served:
            return wait
        needs = ready_class.requirement.needs
        self._keep_told(needs, {each for each in self._told.get(needs, ()) if each[1] not in _UNTIL_PLACED})
        return wait._replace(servings=ready_class.last_served, last_progress=now)

    def _keep_told(self, needs: Needs, kept: Set[Tuple[int, Cause]]) -> None:
        """Of the reasons for tasks with these needs, only some have been given from now on."""
        before = self._told.get(needs, ())
        self._told_count += len(kept) - len(before)
        if kept:
            self._told[needs] = kept
        elif before:
            del self._told[needs]

    def _is_due(self, now: float, cause: Cause, wait: _Wait) -> bool:
        if cause in (Cause.NOT_OFFERED, Cause.ENDS_BEFORE, Cause.NO_ACTORS):
            return True
        if cause == Cause.CALLS_BEFORE:
            return False
        if cause in _UNTIL_PLACED:
            return now - wait.last_progress > PATIENCE_SECONDS
        return cause != Cause.BUSY and any(self._placement.idle_workers()) and now - wait.began > PATIENCE_SECONDS

    def _warn(self, client: ClientSession, ready_class: ReadyClass, cause: Cause) -> str:
        """Send the client the reason, unless it has got it before; returns the text, empty if nothing is sent."""
        count, needs = ready_class.count_of(client.number), ready_class.requirement.needs
        told = self._told.get(needs, ())
        is_told = (client.number, cause) in told
        if not count or (is_told and not self._state.is_watched):
            return ""
        verb = "waits" if count == 1 else "wait"
        clause = self._clause(client, cause, needs, _next_function(ready_class))
        text = f"{_count(count, 'task')} {verb} because {clause}"
        if is_told:
            return text
        if self._told_count >= MAXIMUM_TOLD:  # of tasks that were cancelled since; some may get the reason again
            self._told, self._told_count, told = {}, 0, ()
        self._keep_told(needs, {*told, (client.number, cause)})
        self._state.log("WARNING", f"{client.label}: {text}")
        self._state.send(client.peer, m.Explanation(text=text))
        return text

    def forget_client(self, client: ClientSession) -> None:
        """The client is gone."""
        for needs, told in list(self._told.items()):
            kept = {each for each in told if each[0] != client.number}
            if len(kept) < len(told):
                self._keep_told(needs, kept)

    # The cause ------------------------------------------------------------------------------------------------------

    def _cause(
        self, client: ClientSession, needs: Needs, is_large: bool = False, function: Optional[object] = None
    ) -> Cause:
        """The reason why a task of the client with these needs is not at a worker.

        Parameters:
            function: its own; None: one that no worker is quicker at than at others.
        """
        if self._state.ready.is_held(client.number):
            return Cause.UNREAD
        if needs.actor:
            return self._cause_of_call(needs)
        serving = self._serving(needs.tenant)
        if not serving:
            return Cause.NO_WORKER
        able = [worker for worker in serving if worker.offers(needs, self._state.now)]
        if not able:
            timeless = needs._replace(time_request_seconds=0.0)
            is_offered = any(worker.offers(timeless, self._state.now) for worker in serving)
            return Cause.ENDS_BEFORE if is_offered else Cause.NOT_OFFERED
        if self._state.shares.has_quotas and not self._state.shares.room_of(needs.tenant):
            return Cause.QUOTA
        free = [worker for worker in able if worker.assigned < worker.slots and worker.room_for(needs.capabilities)]
        if free and is_large:
            return Cause.MEMORY
        if free:
            prices = self._placement.speeds.of(function)
            return Cause.PREFERRED if min(map(prices.of, free)) > prices.cheapest else Cause.UNKNOWN
        is_picky = needs.capabilities or needs.time_request_seconds or len(able) < len(serving)
        return Cause.IN_USE if is_picky else Cause.BUSY

    def _cause_of_call(self, needs: Needs) -> Cause:
        """The same for calls of an actor."""
        actor, serving = self._state.actors.find(needs.actor), self._serving(needs.tenant)
        assert actor is not None, f"calls wait for the actor {needs.actor:x}, which is forgotten"
        is_limited = not actor.open_calls and self._state.has_quotas and not self._state.shares.room_of(needs.tenant)
        if actor.worker:
            return Cause.QUOTA if is_limited else Cause.CALLS_BEFORE
        if not serving:
            return Cause.NO_WORKER
        wanted = needs._replace(capabilities=actor.capabilities)
        able = [worker for worker in serving if worker.runs_actors]
        if not able:
            return Cause.NO_ACTORS
        if not any(worker.offers(wanted, self._state.now) for worker in able):
            return Cause.NOT_OFFERED
        return Cause.QUOTA if is_limited else Cause.NO_ROOM

    def _clause_of_call(self, cause: Cause, needs: Needs) -> str:
        actor = self._state.actors.find(needs.actor)
        assert actor is not None
        if cause == Cause.NO_ACTORS:
            return "no connected worker runs actors: start one of a newer version"
        if cause == Cause.NOT_OFFERED:
            able = [worker for worker in self._serving(needs.tenant) if worker.runs_actors]
            return _missing_capabilities_clause(needs._replace(capabilities=actor.capabilities), able)
        if cause == Cause.NO_ROOM:
            wanted = f" the {_text_of(actor.capabilities)} that it needs free," if actor.capabilities else ""
            return (
                f"it makes an actor, for which no worker has{wanted} a slot soon, and fewer than"
                f" {MAXIMUM_ACTORS_OF_WORKER} actors"
            )
        worker = self._state.workers[actor.worker]
        earlier = f"runs {_count(actor.open_calls, 'call')} before it" if actor.open_calls else "runs it next"
        return f"its actor, at {worker.label}, {earlier}"

    def _serving(self, tenant: str) -> List[WorkerSession]:
        return [worker for worker in self._state.workers.values() if worker.serves(tenant)]

    def _clause(self, client: ClientSession, cause: Cause, needs: Needs, function: Optional[object] = None) -> str:
        if cause == Cause.UNREAD:
            return "its client does not read the results that are ready for it"
        workers = self._serving(needs.tenant)
        if cause == Cause.NO_WORKER:
            return self._no_worker_clause(client)
        if needs.actor and cause != Cause.QUOTA:
            return self._clause_of_call(cause, needs)
        if cause == Cause.NOT_OFFERED:
            return _missing_capabilities_clause(needs, workers)
        if cause == Cause.ENDS_BEFORE:
            return self._end_of_life_clause(needs, workers)
        if cause == Cause.IN_USE:
            number = _count(sum(worker.offers(needs, self._state.now) for worker in workers), "worker")
            wanted = _text_of(needs.capabilities) or _text_of_call(needs)
            if needs.time_request_seconds:
                wanted += f" and a worker that stays for {needs.time_request_seconds:g} s"
            return f"{number} can run what needs {wanted}, and other tasks keep all of them busy"
        if cause == Cause.QUOTA:
            count = _count(self._state.shares.running_of(needs.tenant), "task")
            return f"the tenant {needs.tenant} has {count} at workers, as many as its quota allows (--tenant)"
        if cause == Cause.BUSY:
            slots = sum(worker.slots for worker in workers)
            waiting = _count(self._state.ready.waiting_of(needs.tenant), "task")
            return f"{_count(slots, 'slot')} of {_count(len(workers), 'worker')} are busy, and {waiting} in line"
        if cause == Cause.MEMORY:
            return "the large tasks on the hosts with a free slot leave too little memory there"
        if cause == Cause.PREFERRED:
            free = [each.pace.of(function) for each in workers if each.assigned < each.slots]
            times = min(free, default=1.0) / min(each.pace.of(function) for each in workers)
            if times <= 1.0:
                return "the free slots are of workers that other tasks need, and others will be free soon"
            return f"where a slot is free, it would take {times:.1f} times as long: others are likely to end it sooner"
        return "a worker with a free slot does not accept tasks at the moment: it is leaving, or does not read messages"

    def _end_of_life_clause(self, needs: Needs, workers: List[WorkerSession]) -> str:
        """How long the workers stay that could run tasks with these needs."""
        timeless = needs._replace(time_request_seconds=0.0)
        now = self._state.now
        longest = max(worker.stays_until for worker in workers if worker.offers(timeless, now)) - now
        left = (
            f"the one that stays longest has {longest:.0f} s left" if longest > 0 else "all of them are about to leave"
        )
        return (
            f"it may take {needs.time_request_seconds:g} s (time_request), and no worker that could run it stays"
            f" so long: {left}; start one with a longer life"
        )

    def _no_worker_clause(self, client: ClientSession) -> str:
        tenant = client.tenant
        if tenant == DEFAULT_TENANT and not (self._state.workers and sees_all(client.grant)):
            return "no worker is connected: start some with `scaler_cluster`"
        key = f"`scaler keys new --role worker --tenant {tenant}`"
        return f"no worker of the tenant {tenant}, or of all tenants, is connected: start one with a key from {key}"


def _next_function(ready_class: ReadyClass) -> Optional[object]:
    """The function of what is next in a class, which is only looked at."""
    batch = ready_class.next_batch()
    return None if batch is None else batch.function_key


def _missing_capabilities_clause(needs: Needs, workers: List[WorkerSession]) -> str:
    """What tasks need that none of the workers of their tenant has."""
    understanding = [worker for worker in workers if worker.understands(needs)]
    if not understanding:
        wanted = f"serves {_text_of_call(needs)}" if needs.function_name else f"understands {_text_of_call(needs)}"
        return f"no connected worker {wanted}: start one that does"
    missing = f"{_text_of(needs.capabilities)}{_nearest(needs.capabilities, workers)}"
    if len(understanding) == len(workers):
        return f"no connected worker offers {missing}: start one that does"
    return f"no worker that is connected and takes {_text_of_call(needs)} offers {missing}: start one that does"


def _nearest(capabilities: Capabilities, workers: List[WorkerSession]) -> str:
    """The amounts that are offered, for capabilities that are missing."""
    if len(capabilities) > MAXIMUM_NAMED:
        return ""
    most = {name: max(worker.capabilities.get(name, -1.0) for worker in workers) for name, _ in capabilities}
    if len(capabilities) > 1 and all(most[name] >= amount for name, amount in capabilities):
        return " together"
    lacking = [(name, most[name]) for name, amount in capabilities if most[name] < amount]
    facts = [f"{name}={best:g} is the most" if best >= 0 else f"no worker has any {name}" for name, best in lacking]
    return f" ({', '.join(facts)})"


def _text_of(capabilities: Capabilities) -> str:
    named = [f"{name}={amount:g}" if amount else name for name, amount in capabilities[:MAXIMUM_NAMED]]
    others = len(capabilities) - len(named)
    return ", ".join(named) + (f" and {others} more" if others else "")


def _text_of_call(needs: Needs) -> str:
    codec = f"codec {needs.codec!r}"
    if not needs.function_name:
        return codec
    return f"the function {needs.function_name!r}" + (f" in {codec}" if needs.codec else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
