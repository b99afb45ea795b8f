"""Entries of one kind that have changed since the last publication.

Rules:
- Recording a change costs checking a flag, and one dictionary operation per publication; figures are read when they are
  published.
- A publication may be made in parts: what changes meanwhile is in the next one, even if it is also in this one.
- Without subscribers, ended entries are not kept: memory follows what exists.
"""

from __future__ import annotations

from itertools import islice
from typing import Callable, Generic, Iterable, List, Protocol, TypeVar

from scaler_appliance.core.large_tables import LARGE, Table, in_chunks


class Publishable(Protocol):
    """An entry that can be published."""

    tenant: str
    is_dirty: bool  # it is part of the next publication, or of the one that is being made, which has not got to it

    @property
    def number(self) -> int: ...


Entry = TypeVar("Entry", bound=Publishable)


class Changes(Generic[Entry]):
    """Entries of one kind that changed since the last publication, by number.

    If an entry changes often, the caller first checks whether it `is_dirty`.
    """

    __slots__ = ("new", "dirty", "gone", "is_watched")

    def __init__(self) -> None:
        self.new: Table[Entry] = {}
        self.dirty: Table[Entry] = {}
        self.gone: Table[Entry] = {}
        self.is_watched = False

    def add(self, number: int, entry: Entry) -> None:
        """Add an entry."""
        self.new[number] = entry
        if len(self.new) == LARGE:
            self.new = in_chunks(self.new)
        self.touch(number, entry)

    def touch(self, number: int, entry: Entry) -> None:
        """Figures of an entry changed."""
        self.dirty[number] = entry
        if len(self.dirty) == LARGE:
            self.dirty = in_chunks(self.dirty)
        entry.is_dirty = True

    def remove(self, number: int, entry: Entry) -> None:
        """Remove an entry. Its last figures are published, if there are subscribers."""
        if self.is_watched:
            self.touch(number, entry)
            self._add_gone(number, entry)
        else:
            self.forget(number, entry)

    def forget(self, number: int, entry: Entry) -> None:
        """Remove an entry without publishing its last figures."""
        is_unknown = self.new.pop(number, None) is not None
        self.dirty.pop(number, None)
        if self.is_watched and not is_unknown:
            self._add_gone(number, entry)

    def _add_gone(self, number: int, entry: Entry) -> None:
        self.gone[number] = entry
        if len(self.gone) == LARGE:
            self.gone = in_chunks(self.gone)

    def take(self, limit: int = 0) -> TakenChanges[Entry]:
        """Remove and return what is to be published now; `settle` follows for each entry whose figures were read.

        Parameters:
            limit: take this many entries besides those that were removed: those that have waited longest; 0: all.
        """
        if limit and len(self.dirty) > limit:
            numbers = [*islice(self.dirty, limit), *self.gone]
            entries = [self.dirty.pop(number) for number in dict.fromkeys(numbers) if number in self.dirty]
        else:
            entries = list(self.dirty.values())
            self.dirty = {}
        taken = TakenChanges(list(self.new.values()), entries, self.gone)
        self.new, self.gone = {}, {}
        return taken

    def settle(self, entries: Iterable[Entry]) -> None:
        """The figures of entries were read, or need not be."""
        dirty = self.dirty
        for entry in entries:
            entry.is_dirty = entry.number in dirty

    def clear(self) -> None:
        """Nothing of what has changed is to be published."""
        self.settle(self.take().entries)


class TakenChanges(Generic[Entry]):
    """Changes that are being published.

    Parameters:
        new: entries to be named.
        entries: those with figures to be published.
        gone: removed entries, by number.
    """

    __slots__ = ("new", "entries", "gone")

    def __init__(self, new: List[Entry], entries: Iterable[Entry], gone: Table[Entry]) -> None:
        self.new = new
        self.entries = entries
        self.gone = gone

    def of(self, is_seen: Callable[[Entry], bool]) -> TakenChanges[Entry]:
        """Those that a monitor may see."""
        gone = {number: entry for number, entry in self.gone.items() if is_seen(entry)}
        return TakenChanges(list(filter(is_seen, self.new)), list(filter(is_seen, self.entries)), gone)
