"""Tests of the suite: reference peers that pass every case, and mutants of them that each fail one.

Rules:
- A reference peer is correct and small; it is not fast, and not meant for production.
- A mutant differs from its reference as little as possible, and violates one requirement. The case for that requirement
  catches it. Each case has a mutant that no other case catches: see `record.py`.
- Nothing here is part of the package: it is for the suite's own tests, and for authors of cases.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Type, TypeVar

Peer = TypeVar("Peer", bound=Type[Any])


class Mutant(NamedTuple):
    """A deliberately wrong peer."""

    name: str
    role: str
    peer: Type[Any]
    breaks: str  # id of the requirement
    caught_by: str  # id of the case


_MUTANTS: List[Mutant] = []


def mutant(breaks: str, caught_by: str) -> Callable[[Peer], Peer]:
    """Make a class, derived from a reference peer, a mutant.

    Parameters:
        breaks: id of the requirement.
        caught_by: id of the case for that requirement; the record lists the other cases that catch it.
    """

    def register(peer: Peer) -> Peer:
        role = caught_by.partition("/")[0]
        _MUTANTS.append(Mutant(peer.__name__, role, peer, breaks, caught_by))
        return peer

    return register


def part_mutant(reference: Type[Any], maker: str, breaks: str, caught_by: str) -> Callable[[Peer], Peer]:
    """Make a mutant of a reference peer, of which one part is of another class.

    Parameters:
        maker: the method of the reference that makes this part.
        breaks, caught_by: as of `mutant`.
    """

    def register(part: Peer) -> Peer:
        members = {maker: lambda self: part(self), "made_of": part, "__module__": part.__module__}
        mutant(breaks, caught_by)(type(part.__name__, (reference,), members))
        return part

    return register


def mutants_of(role: str) -> List[Mutant]:
    """All mutants of a role; their modules must have been imported."""
    return [each for each in _MUTANTS if each.role == role]


def by_name(role: str) -> Dict[str, Type[Any]]:
    """The classes of a role's mutants."""
    return {each.name: each.peer for each in mutants_of(role)}
