"""Outcomes whose large results are fetched before their clients learn of them.

Rules:
- A task whose outcome is held is still at its worker: if the worker is lost, the task runs again, or ends as lost.
- An outcome is held until the scheduler has all bytes of its result, or knows that it cannot get or store them.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional

from scaler_protocol import messages as m


class HeldResult(NamedTuple):
    worker: int  # session
    instance: int
    message: m.TaskResult  # with this outcome alone


class HeldResults:
    """Held outcomes, by the object that is fetched."""

    def __init__(self) -> None:
        self._by_object: Dict[int, HeldResult] = {}
        self._objects: Dict[int, int] = {}  # by instance

    def __len__(self) -> int:
        return len(self._by_object)

    def hold(self, object_id: int, held: HeldResult) -> None:
        self._by_object[object_id] = held
        self._objects[held.instance] = object_id

    def find(self, object_id: int) -> Optional[HeldResult]:
        """The outcome whose result is this object."""
        return self._by_object.get(object_id)

    def holds(self, instance: int) -> bool:
        """Whether the outcome of this instance is held."""
        return instance in self._objects

    def take(self, object_id: int) -> Optional[HeldResult]:
        """Take out the outcome whose result is this object, if it is held."""
        held = self._by_object.pop(object_id, None)
        if held is not None:
            del self._objects[held.instance]
        return held
