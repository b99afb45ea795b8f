"""The actors that the scheduler knows.

Rules:
- An actor is identified by the object that holds its function. Its first call comes from the client that owns this
  object; the actor is known until the object is deleted, also if it is lost before that. So it never begins twice.
- It begins at the worker that is sent its first call, and never gets another one. If it loses that worker, it is lost.
- What it needs of capabilities is used while it exists; its calls use none.
"""

from __future__ import annotations

from typing import Dict, Hashable, Iterable, Iterator, List, Optional

from scaler_appliance.core.actor_calls.waiting_actors import WaitingActors
from scaler_appliance.core.tasks.batches import Needs, Requirement
from scaler_protocol import messages as m

ACTORS = "actors"
"""The feature: tasks may be calls of actors."""

MAXIMUM_ACTORS_OF_CLIENT = 1000
MAXIMUM_ACTORS_OF_WORKER = 100  # each is a process
MAXIMUM_NAME = 256  # characters, in texts and for monitors


class ActorRecord:
    """One actor.

    Parameters:
        function: id of the object that holds its function.
        name: of that object.
        owner: session of the client that made it.
        requirement: of its calls, which is that of the first one.
    """

    __slots__ = (
        "function", "name", "owner", "tenant", "requirement", "capabilities", "memory_limit_bytes", "worker",
        "has_begun", "why_lost", "reported_loss", "unfinished", "finished", "failed", "open_calls", "load_microseconds",
        "is_dirty", "waits_for",
    )  # fmt: skip

    def __init__(self, function: int, name: str, owner: int, requirement: Requirement, options: m.TaskOptions) -> None:
        needs = requirement.needs
        self.function = function
        self.name = name[:MAXIMUM_NAME]
        self.tenant = needs.tenant
        self.owner = owner
        self.capabilities = needs.capabilities
        self.memory_limit_bytes = options.memory_limit_bytes
        self.requirement = requirement._replace(needs=needs._replace(capabilities=(), actor=function))
        self.worker = 0  # session; 0: it has none yet
        self.has_begun = False  # a call was sent there
        self.why_lost = ""  # empty: it is not, as far as the scheduler knows
        self.reported_loss = ""  # the same, as its worker has reported it; calls still go there, and end there
        self.unfinished = 0  # calls without an outcome
        self.finished = 0  # calls with one, in total
        self.failed = 0  # of these, failed or lost
        self.open_calls = 0  # at its worker
        self.load_microseconds = 0.0  # of these, as estimated when they were sent
        self.is_dirty = False
        self.waits_for: Optional[Hashable] = None  # see `waiting_actors`

    @property
    def kind(self) -> Needs:
        """What its worker needs to have: the same workers can take all actors of a kind."""
        return self.requirement.needs._replace(capabilities=self.capabilities, actor=0)

    @property
    def number(self) -> int:
        return self.function

    @property
    def label(self) -> str:
        """For messages: the actor, by its name."""
        return f"the actor {self.name}" if self.name else "the actor"

    @property
    def known_loss(self) -> str:
        """Why it is lost, as far as the scheduler or its worker knows; empty: it is not."""
        return self.why_lost or self.reported_loss

    @property
    def state(self) -> m.ActorState:
        if self.known_loss:
            return m.ActorState.LOST
        return m.ActorState.ALIVE if self.has_begun else m.ActorState.WAITING


class ActorTable:
    """Actors by the id of their function's object.

    Attributes:
        without_worker: those with calls for which no worker has room, by kind.
        held_up: those whose worker gets no calls for the moment, by that worker and their tenant.
        room_changes: how often a worker has, or may have, got room for an actor.
    """

    def __init__(self) -> None:
        self.without_worker: WaitingActors[ActorRecord] = WaitingActors()
        self.held_up: WaitingActors[ActorRecord] = WaitingActors()
        self.room_changes = 0
        self.known: Dict[int, ActorRecord] = {}  # by function
        self._by_owner: Dict[int, Dict[int, ActorRecord]] = {}  # by session, then by function

    def __len__(self) -> int:
        return len(self.known)

    def __iter__(self) -> Iterator[ActorRecord]:
        return iter(self.known.values())

    def find(self, function: int) -> Optional[ActorRecord]:
        return self.known.get(function)

    def count_of(self, client: int) -> int:
        """How many actors of a client there are."""
        return len(self._by_owner.get(client, ()))

    def of(self, client: int) -> Iterable[ActorRecord]:
        """A client's, in the order in which it made them."""
        return self._by_owner.get(client, {}).values()

    def add(self, actor: ActorRecord) -> None:
        self.known[actor.function] = actor
        self._by_owner.setdefault(actor.owner, {})[actor.function] = actor

    def remove(self, function: int) -> Optional[ActorRecord]:
        """The object is gone, and the actor with it; returns it if there was one."""
        actor = self.known.pop(function, None)
        if actor is not None:
            self.go_on(actor)
            if actor.worker:
                self.room_changes += 1
            own = self._by_owner[actor.owner]
            del own[function]
            if not own:
                del self._by_owner[actor.owner]
        return actor

    def go_on(self, actor: ActorRecord) -> None:
        """An actor's calls wait no more for anything but their turn."""
        if actor.waits_for is not None:
            (self.without_worker if actor.waits_for in self.without_worker else self.held_up).discard(actor)

    def at(self, worker: int) -> List[ActorRecord]:
        """The actors of a worker; takes one pass over all of them."""
        return [actor for actor in self.known.values() if actor.worker == worker]

    def check_invariants(self) -> None:
        """Check that each actor is listed by its owner, and its counts."""
        for actor in self.known.values():
            assert actor.open_calls >= 0 and (actor.worker or not actor.open_calls)
            assert actor.unfinished >= actor.open_calls, f"{actor.label}: {actor.unfinished} calls are unfinished"
            assert actor.finished >= actor.failed >= 0
            assert self._by_owner[actor.owner][actor.function] is actor
        self.without_worker.check_invariants()
        self.held_up.check_invariants()
        waiting = [actor for groups in (self.without_worker, self.held_up) for _, group in groups for actor in group]
        assert len(waiting) == sum(actor.waits_for is not None for actor in self.known.values())
        assert self.known.keys() >= set(waiting), "an actor waits that has ended"
        assert all(self._by_owner.values()) and sum(map(len, self._by_owner.values())) == len(self.known)
