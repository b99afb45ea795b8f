"""Actors in simulated histories: where they run, and what the wire shows of them.

What must hold of each actor, and is checked here, whatever fails:
- its calls run in one processor, which one session of one worker has; once that is lost, none runs any more;
- a call never runs twice, and none overtakes another one of the same client;
- a call is lost with its actor only if the actor was closed, has ended with its client, or was lost with its processor.
"""

from __future__ import annotations

from random import Random
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

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

    def admit(self, session: int, function: int, options: m.TaskOptions, is_held: bool, is_owner: bool) -> bool:
        """A call arrives; returns whether the scheduler must accept it."""
        actor = self._actors.get(function)
        if actor is None and is_held and is_owner:
            need = options.capabilities[0].amount if options.capabilities else None
            actor = self._actors[function] = ActorSeen(session, need)
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

    def is_waiting_for_nothing(self, function: int) -> bool:
        """Whether a waiting call of the actor could run at once: it has a worker, which has no other call of it."""
        actor = self._actors[function]
        if actor.worker is None or actor.is_lost or actor.worker.is_congested:
            return False
        return not any(task.call_of == function for task in actor.worker.tasks.values())


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
