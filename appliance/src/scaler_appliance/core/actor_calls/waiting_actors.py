"""Actors whose calls can go nowhere for the moment, in groups of those that wait for the same.

    the first of a group goes nowhere ──▶ nor do the others: the group is left until something changes

Rule: a change costs as much as there are groups that it may concern, and an actor that goes somewhere; it does not cost
more because more actors wait. Within a group, the one that has waited longest is the first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Dict, Generic, Hashable, Iterator, Optional, Protocol, Tuple, TypeVar

Member = TypeVar("Member", bound="Waiting")


class Waiting(Protocol):
    """An actor: `waits_for` is the key of its group, None if it is in none."""

    function: int
    waits_for: Optional[Hashable]


class WaitingActors(Generic[Member]):
    """Groups of actors, some of which are to be looked at."""

    def __init__(self) -> None:
        self._due: OrderedDict[Hashable, OrderedDict[int, Member]] = OrderedDict()
        self._left: OrderedDict[Hashable, OrderedDict[int, Member]] = OrderedDict()  # until something changes
        self._has_changed = False  # something, since the groups that are due were

    def __bool__(self) -> bool:
        return bool(self._due or self._left)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._due or key in self._left

    def __iter__(self) -> Iterator[Tuple[Hashable, Dict[int, Member]]]:
        yield from self._due.items()
        yield from self._left.items()

    @property
    def is_due(self) -> bool:
        """Whether a group is to be looked at."""
        return bool(self._due or (self._has_changed and self._left))

    def add(self, key: Hashable, actor: Member) -> None:
        """An actor waits: at the end of the group, if it is not there already."""
        if actor.waits_for == key:
            return
        self.discard(actor)
        group = self._due.get(key) or self._left.get(key)
        if group is None:
            group = self._left[key] = OrderedDict()
        group[actor.function] = actor
        actor.waits_for = key

    def discard(self, actor: Member) -> None:
        """An actor waits no more, if it did."""
        key, actor.waits_for = actor.waits_for, None
        if key is None:
            return
        groups = self._due if key in self._due else self._left
        group = groups[key]
        del group[actor.function]
        if not group:
            del groups[key]

    def look_again(self) -> None:
        """Something has changed that any group may wait for."""
        self._has_changed = True

    def first(self) -> Optional[Member]:
        """The first actor of the group that is to be looked at; None if none is."""
        if not self._due and self._has_changed:
            self._due, self._left, self._has_changed = self._left, self._due, False
        for group in self._due.values():
            return next(iter(group.values()))
        return None

    def leave(self, key: Hashable) -> None:
        """The first actor of a group that was to be looked at went nowhere."""
        group = self._due.pop(key, None)
        if group is not None:
            self._left[key] = group

    def check_invariants(self) -> None:
        """Check that actors know their groups, and that none is empty."""
        assert self._due.keys().isdisjoint(self._left)
        for key, group in self:
            assert group, f"the group {key!r} is empty"
            assert all(actor.waits_for == key and actor.function == number for number, actor in group.items())
