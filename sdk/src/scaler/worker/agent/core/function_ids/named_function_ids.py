"""Functions that a worker serves by name: each has a local id, under which processors get its definition.

Rule: they are no objects of the scheduler, so it cannot delete them: they are forgotten when they are many.
"""

from __future__ import annotations

from typing import Dict, Optional, Set

from scaler_protocol.session.ids import MAXIMUM_SESSION, object_id_of

MAXIMUM_NAMED_FUNCTIONS = 1000  # unless tasks here need more
_FIRST_ID = object_id_of(MAXIMUM_SESSION, 0)  # no session has this number


class NamedFunctionIds:
    def __init__(self) -> None:
        self._ids: Dict[bytes, int] = {}  # by definition
        self._definitions: Dict[int, bytes] = {}  # by id
        self._next = 0
        self._limit = MAXIMUM_NAMED_FUNCTIONS

    def __contains__(self, object_id: int) -> bool:
        return object_id in self._definitions

    def id_of(self, definition: bytes) -> int:
        """The local id of a function."""
        object_id = self._ids.get(definition)
        if object_id is None:
            object_id = self._ids[definition] = _FIRST_ID + self._next
            self._next += 1
            self._definitions[object_id] = definition
        return object_id

    def find(self, object_id: int) -> Optional[bytes]:
        """The definition with this local id."""
        return self._definitions.get(object_id)

    @property
    def are_many(self) -> bool:
        """Whether it is time for `forget`."""
        return len(self._definitions) >= self._limit

    def forget(self, needed: Set[int]) -> Set[int]:
        """Forget functions, of which there may be any number; returns their ids, which are not used again.

        Parameters:
            needed: objects that tasks here need.
        """
        forgotten = self._definitions.keys() - needed
        for object_id in forgotten:
            del self._ids[self._definitions.pop(object_id)]
        self._limit = max(MAXIMUM_NAMED_FUNCTIONS, 2 * len(self._definitions))
        return forgotten

    def clear(self) -> None:
        self._ids.clear()
        self._definitions.clear()
