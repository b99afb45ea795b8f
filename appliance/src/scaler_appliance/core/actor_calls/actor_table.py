"""The actors that the scheduler knows.

Rules:
- An actor is identified by the object that holds its function. Its first call comes from the client that owns this
  object; the actor is known until the object is deleted, also if it is lost before that. So it never begins twice.
- It begins at the worker that is sent its first call, and never gets another one. If it loses that worker, it is lost.
- What it needs of capabilities is used while it exists; its calls use none.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional

from scaler_appliance.core.tasks.batches import Requirement
from scaler_protocol import messages as m

ACTORS = "actors"
"""The feature: tasks may be calls of actors."""

MAXIMUM_ACTORS_OF_CLIENT = 1000
MAXIMUM_ACTORS_OF_WORKER = 100  # each is a process


class ActorRecord:
    """One actor.

    Parameters:
        function: id of the object that holds its function.
        owner: session of the client that made it.
        requirement: of its calls, which is that of the first one.
    """

    __slots__ = (
        "function", "owner", "requirement", "capabilities", "memory_limit_bytes", "worker", "has_begun", "why_lost",
        "open_calls", "load_microseconds",
    )  # fmt: skip

    def __init__(self, function: int, owner: int, requirement: Requirement, options: m.TaskOptions) -> None:
        needs = requirement.needs
        self.function = function
        self.owner = owner
        self.capabilities = needs.capabilities
        self.memory_limit_bytes = options.memory_limit_bytes
        self.requirement = requirement._replace(needs=needs._replace(capabilities=(), actor=function))
        self.worker = 0  # session; 0: it has none yet
        self.has_begun = False  # a call was sent there
        self.why_lost = ""  # empty: it is not, as far as the scheduler knows
        self.open_calls = 0  # at its worker
        self.load_microseconds = 0.0  # of these, as estimated when they were sent

    @property
    def tenant(self) -> str:
        return self.requirement.needs.tenant


class ActorTable:
    """Actors by the id of their function's object."""

    def __init__(self) -> None:
        self.known: Dict[int, ActorRecord] = {}  # by function
        self._counts: Dict[int, int] = {}  # by session of their owner

    def __len__(self) -> int:
        return len(self.known)

    def __iter__(self) -> Iterator[ActorRecord]:
        return iter(self.known.values())

    def find(self, function: int) -> Optional[ActorRecord]:
        return self.known.get(function)

    def count_of(self, client: int) -> int:
        """How many actors of a client there are."""
        return self._counts.get(client, 0)

    def add(self, actor: ActorRecord) -> None:
        self.known[actor.function] = actor
        self._counts[actor.owner] = self._counts.get(actor.owner, 0) + 1

    def remove(self, function: int) -> Optional[ActorRecord]:
        """The object is gone, and the actor with it; returns it if there was one."""
        actor = self.known.pop(function, None)
        if actor is not None:
            left = self._counts[actor.owner] - 1
            if left:
                self._counts[actor.owner] = left
            else:
                del self._counts[actor.owner]
        return actor

    def at(self, worker: int) -> List[ActorRecord]:
        """The actors of a worker; takes one pass over all of them."""
        return [actor for actor in self.known.values() if actor.worker == worker]

    def check_invariants(self) -> None:
        """Check the counts."""
        counts: Dict[int, int] = {}
        for actor in self.known.values():
            counts[actor.owner] = counts.get(actor.owner, 0) + 1
            assert actor.open_calls >= 0 and (actor.worker or not actor.open_calls)
        assert counts == self._counts, f"{self._counts} are counted, {counts} exist"
