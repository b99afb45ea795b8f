"""Entries of one kind that have changed since the last publication.

Rules:
- Recording a change costs checking a flag, and one dictionary operation per publication; figures are read when they are
  published.
- Without subscribers, ended entries are not kept: memory follows what exists.
"""

from __future__ import annotations

from itertools import islice
from typing import Dict, Generic, List, Protocol, TypeVar


class Publishable(Protocol):
    """An entry that can be published."""

    is_dirty: bool  # it is part of the next publication


Entry = TypeVar("Entry", bound=Publishable)


class Changes(Generic[Entry]):
    """Entries of one kind that changed since the last publication, by number.

    If an entry changes often, the caller first checks whether it `is_dirty`.
    """

    __slots__ = ("new", "dirty", "gone", "is_watched")

    def __init__(self) -> None:
        self.new: Dict[int, Entry] = {}
        self.dirty: Dict[int, Entry] = {}
        self.gone: Dict[int, None] = {}
        self.is_watched = False

    def add(self, number: int, entry: Entry) -> None:
        """Add an entry."""
        self.new[number] = entry
        self.touch(number, entry)

    def touch(self, number: int, entry: Entry) -> None:
        """Figures of an entry changed."""
        self.dirty[number] = entry
        entry.is_dirty = True

    def remove(self, number: int, entry: Entry) -> None:
        """Remove an entry. Its last figures are published, if there are subscribers."""
        if self.is_watched:
            self.touch(number, entry)
            self.gone[number] = None
        else:
            self.forget(number)

    def forget(self, number: int) -> None:
        """Remove an entry without publishing its last figures."""
        is_unknown = self.new.pop(number, None) is not None
        self.dirty.pop(number, None)
        if self.is_watched and not is_unknown:
            self.gone[number] = None

    def first(self, limit: int) -> List[Entry]:
        """The entries whose figures have waited longest to be published."""
        return list(islice(self.dirty.values(), limit))

    def clear(self, limit: int = 0) -> None:
        """Everything has been published.

        Parameters:
            limit: figures of only this many entries were published; 0: of all. Those of removed entries always are.
        """
        published = [*islice(self.dirty, limit), *filter(self.dirty.__contains__, self.gone)] if limit else self.dirty
        for number in list(published):
            entry = self.dirty.pop(number, None)
            if entry is not None:
                entry.is_dirty = False
        self.new.clear()
        self.gone.clear()
