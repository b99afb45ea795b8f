"""The actors of the reference worker; their calls wait among its other tasks.

An actor is only played: its state is the number of its calls that have begun.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Sequence

from mutants.worker.conformance_functions import PREFIX
from mutants.worker.worker_tasks import Task

ACTORS = "actors"


class WorkerActors:
    """Which actors there are.

    Parameters:
        owner: the worker.
    """

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.begun: Dict[int, int] = {}  # calls, by the function of a living actor
        self.lost: Dict[int, str] = {}  # why, by the function

    def take(self, call: Task) -> bool:
        """Whether a call that arrived may wait here: not if its actor is lost."""
        if call.function in self.lost:
            return False
        self.begun.setdefault(call.function, 0)
        return True

    def may_start(self, call: Task) -> bool:
        return not self.is_running(call.function) and self.waiting(call.function)[0] is call

    def is_running(self, function: int) -> bool:
        return any(each.function == function for each in self.owner.running.values())

    def waiting(self, function: int) -> List[Task]:
        """The calls that have not begun, in the order in which they came."""
        return [each for each in self.owner.held if each.function == function]

    def begin(self, call: Task) -> None:
        """A call begins: what it does is in its payload."""
        self.begun[call.function] += 1
        name, *arguments = json.loads(call.payload)
        if name == "wait":
            arguments[2] += f" {self.begun[call.function]}"
        call.name, call.payload = PREFIX + name, json.dumps(arguments).encode()

    def lose(self, function: int, why: str) -> None:
        """The process has ended."""
        self.begun.pop(function, None)
        self.lost[function] = why
        for call in self.waiting(function):
            self.owner.held.remove(call)
            self.owner.lose_call(call)

    def end(self, functions: Sequence[int]) -> None:
        """The function objects are deleted."""
        for each in functions:
            self.begun.pop(each, None)
            self.lost.pop(each, None)

    def clear(self) -> None:
        self.begun.clear()
        self.lost.clear()
