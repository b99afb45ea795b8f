"""Entries of one kind that have changed since the last publication.

Rules:
- Recording a change is a look at a flag, and a dictionary operation once a publication; nothing is copied, and figures
  are read when they are published.
- Without subscribers, what has ended leaves no trace: memory follows what exists.
"""

from __future__ import annotations

from itertools import islice
from typing import Dict, Generic, List, Protocol, TypeVar


class Publishable(Protocol):
    """What can be published."""

    is_dirty: bool  # it is among those of the next publication


Entry = TypeVar("Entry", bound=Publishable)


class Changes(Generic[Entry]):
    """Entries of one kind that changed since the last publication, by number.

    Where an entry is touched often, the caller first looks whether it `is_dirty`.
    """

    __slots__ = ("new", "dirty", "gone", "is_watched")

    def __init__(self) -> None:
        self.new: Dict[int, Entry] = {}
        self.dirty: Dict[int, Entry] = {}
        self.gone: Dict[int, None] = {}
        self.is_watched = False

    def add(self, number: int, entry: Entry) -> None:
        """There is one more."""
        self.new[number] = entry
        self.touch(number, entry)

    def touch(self, number: int, entry: Entry) -> None:
        """Figures of it changed."""
        self.dirty[number] = entry
        entry.is_dirty = True

    def remove(self, number: int, entry: Entry) -> None:
        """It has ended. Its last figures are published, if there are subscribers."""
        if self.is_watched:
            self.touch(number, entry)
            self.gone[number] = None
        else:
            self.forget(number)

    def forget(self, number: int) -> None:
        """It has ended, and its last figures are of no interest."""
        is_unknown = self.new.pop(number, None) is not None
        self.dirty.pop(number, None)
        if self.is_watched and not is_unknown:
            self.gone[number] = None

    def first(self, limit: int) -> List[Entry]:
        """Those whose figures have waited longest to be published."""
        return list(islice(self.dirty.values(), limit))

    def clear(self, limit: int = 0) -> None:
        """All has been published.

        Parameters:
            limit: of figures only those of the first so many; 0: of all. Figures of what is gone wait no longer.
        """
        published = [*islice(self.dirty, limit), *filter(self.dirty.__contains__, self.gone)] if limit else self.dirty
        for number in list(published):
            entry = self.dirty.pop(number, None)
            if entry is not None:
                entry.is_dirty = False
        self.new.clear()
        self.gone.clear()
