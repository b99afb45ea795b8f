"""Actors in simulated histories: where they run, and what the wire shows of them.

What must hold of each actor, and is checked here, whatever fails:
- its calls run in one processor, which one session of one worker has; once that is lost, none runs any more;
- a call never runs twice, and none overtakes another one of the same client;
- a call is lost with its actor only if the actor was closed, has ended with its client, or was lost with its processor.
"""

from __future__ import annotations

from random import Random
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from scaler_protocol import messages as m

ACTORS = "actors"
SHARE = 0.5  # of histories with actors


class ActorSeen:
    """An actor, as the wire shows it."""

    def __init__(self, owner: int, need: Optional[float]) -> None:
        self.owner = owner
        self.need = need
        self.worker: Optional[Any] = None  # the party that got its first call
        self.is_lost = False
        self.given: Dict[int, int] = {}  # the last call that was given to the worker, by client


class ActorsSeen:
    """All actors, by function, for the checker."""

    def __init__(self) -> None:
        self._actors: Dict[int, ActorSeen] = {}

    def find(self, function: int) -> Optional[ActorSeen]:
        return self._actors.get(function)

    def admit(self, client: Any, function: int, options: m.TaskOptions, is_held: bool) -> bool:
        """A call arrives; returns whether the scheduler must accept it."""
        actor = self._actors.get(function)
        if actor is None and is_held and function in client.owned:
            need = options.capabilities[0].amount if options.capabilities else None
            actor = self._actors[function] = ActorSeen(client.session, need)
        return is_held and actor is not None and not actor.is_lost

    def check_given(self, worker: Any, function: int, client: int, task_id: int) -> None:
        """A call is given to a worker."""
        actor = self._actors[function]
        if actor.worker is None:
            assert ACTORS in worker.features, "an actor begins at a worker that runs none"
            assert worker.fits(actor.need), "an actor does not fit its worker"
            actor.worker = worker
            worker.actor_needs[function] = actor.need or 0.0
        assert actor.worker is worker and not actor.is_lost, "a call is given to another worker than its actor's"
        assert actor.given.get(client, -1) < task_id, f"call {task_id} is overtaken by {actor.given.get(client)}"
        actor.given[client] = task_id

    def lose(self, worker: Any) -> None:
        """A worker is gone."""
        for function in worker.actor_needs:
            if function in self._actors:
                self._actors[function].is_lost = True

    def forget(self, functions: Set[int]) -> None:
        """Workers hear that these objects are gone."""
        for function in functions & self._actors.keys():
            actor = self._actors.pop(function)
            if actor.worker is not None:
                actor.worker.actor_needs.pop(function, None)

    def check_lost(self, call: Any) -> None:
        """A waiting call ends as lost."""
        actor = self._actors.get(call.call_of)
        assert actor is not None and actor.is_lost, f"{call} is lost, and its actor is not"

    def check_waiting(self, waiting: Iterable[Any], workers: Iterable[Any]) -> None:
        """Check that no waiting call could be sent, and that none waits for a lost actor."""
        calls = [task for task in waiting if task.call_of]
        for task in calls:
            actor = self._actors[task.call_of]
            assert not actor.is_lost, f"{task} waits for an actor that is lost"
            home = actor.worker
            if home is not None:
                is_idle = not any(each.call_of == task.call_of for each in home.tasks.values())
                assert home.is_congested or not is_idle, f"{task} waits, and its actor is idle"
        beginning = [(task, self._actors[task.call_of].need) for task in calls]
        beginning = [(task, need) for task, need in beginning if self._actors[task.call_of].worker is None]
        for worker in workers if beginning else ():
            if (
                worker.slots_taken < worker.slots
                and not worker.is_congested
                and not worker.is_draining
                and ACTORS in worker.features
            ):
                for task, need in beginning:
                    could_begin = worker.fits(need) and worker.serves(task.client.tenant)
                    assert not could_begin, f"the actor of {task} waits that could begin at a free slot"


class Made(NamedTuple):
    function: int
    options: m.TaskOptions


class ActorWorld:
    """The truth about all actors of a history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"actors: {seed}")  # histories without them stay what they were
        self.is_used = self.random.random() < SHARE
        self.clear()

    def clear(self) -> None:
        """Another scheduler begins, which knows nothing."""
        self.made: List[Made] = []  # also those that have ended
        self._homes: Dict[int, Tuple[Any, int]] = {}  # worker and its era
        self._last: Dict[Tuple[int, int], int] = {}  # the call that ran last, by actor and client
        self.lost: Set[int] = set()
        self.started = 0

    def starts(self, function: int, worker: Any, client: int, payload: bytes) -> None:
        """A worker runs a call."""
        home = self._homes.setdefault(function, (worker, worker.era))
        assert home == (worker, worker.era), "an actor has two processors"
        assert function not in self.lost, "a lost actor began again"
        task_id = int(payload.rsplit(b" ", 1)[-1])
        assert self._last.get((function, client), -1) < task_id, f"call {task_id} was overtaken, or runs twice"
        self._last[function, client] = task_id
        self.started += 1
