"""The actors of a reference client.

Rule: one method, one duty, so that a mutant can break just that.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

from mutants.client.client_tasks import Task

FUNCTION = 1  # the kind of object


class MadeActor(NamedTuple):
    """An actor, by the session and the object that hold it."""

    session: int
    function: int


class ClientActors:
    """Actors that the user made, and what is special about their calls."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.made: Dict[int, MadeActor] = {}  # by the adapter's number

    def make(self, number: int) -> None:
        session = self.client.session
        function = self.client.objects.create(b"an actor", "json", FUNCTION) if session else 0
        self.made[number] = MadeActor(session, function)

    def submit(self, call: Task) -> None:
        if self.is_lost(call):
            self.client.end_task(call, "error", message="the actor was lost with its session")
        elif self.needs_more(call):
            self.client.end_task(call, "error", message="calls of actors do not wait for other tasks")
        else:
            self.client.waiting.append(call)

    def is_lost(self, call: Task) -> bool:
        session: int = self.client.session
        return self.made[call.actor].session != session

    def needs_more(self, call: Task) -> bool:
        """Whether a task has not ended whose result the call needs."""
        return any(each in self.client.tasks for each in call.results)

    def fields(self, call: Task) -> Dict[str, Any]:
        """What a Task message says of its calls."""
        return {"function": self.made[call.actor].function, "functionName": ""}

    def options(self, call: Task) -> Dict[str, Any]:
        return {"actor": bool(call.actor)}

    def may_be_sent_again(self, call: Task) -> bool:
        return not call.actor
