"""The register of requirements, as the suite carries it.

Rule: level and text of a requirement are read from here; nothing in the suite repeats them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SPECIFICATION = Path(__file__).parent / "specification"
"""The part of protocol-spec/ that the suite carries."""

_LEVELS = ("MUST NOT", "SHOULD NOT", "MUST", "SHOULD", "MAY", "INFO")


class Requirement(NamedTuple):
    """One numbered sentence of the specification."""

    id: str
    level: str  # MUST, MUST NOT, SHOULD, SHOULD NOT, MAY or INFO
    role: str  # worker, client, scheduler, or several, or all
    status: str  # draft, stable or deprecated
    since: str
    section: str  # file and anchor, "worker.md#cancel"
    text: str
    untestable: str  # why no case can show it; mostly empty

    @property
    def is_advice(self) -> bool:
        """Whether who does otherwise conforms nevertheless."""
        return not self.level.startswith("MUST")


class UnknownRequirementError(Exception):
    """The suite speaks of a requirement that is not in the register."""


class Register:
    """Requirements by id, in the order of the file."""

    def __init__(self, requirements: Dict[str, Requirement]) -> None:
        self._requirements = requirements

    @classmethod
    def load(cls, path: Optional[Path] = None) -> Register:
        """Read the register that the suite carries, or another.

        Raises ValueError when an entry lacks something.
        """
        path = path or SPECIFICATION / "requirements.toml"
        with path.open("rb") as file:
            tables = tomllib.load(file)
        return cls({id_: _requirement(id_, table) for id_, table in tables.items() if id_.startswith("SCL-")})

    def __getitem__(self, id_: str) -> Requirement:
        try:
            return self._requirements[id_]
        except KeyError:
            raise UnknownRequirementError(f"{id_} is not in the register of requirements") from None

    def __contains__(self, id_: str) -> bool:
        return id_ in self._requirements

    def of_role(self, role: str) -> Dict[str, Requirement]:
        """Requirements that concern a role: its own and those of every peer."""
        return {id_: each for id_, each in self._requirements.items() if concerns(each, role)}

    def all(self) -> Dict[str, Requirement]:
        return dict(self._requirements)


def concerns(requirement: Requirement, role: str) -> bool:
    """Whether a requirement is one of this role."""
    roles = requirement.role.replace(",", " ").split()
    return role in roles or "all" in roles or "any" in roles or ("peer" in roles and role != "scheduler")


def _requirement(id_: str, table: Dict[str, Any]) -> Requirement:
    role = table.get("role", "")
    entry = Requirement(
        id=id_,
        level=str(table.get("level", "")).upper(),
        role=" ".join(role) if isinstance(role, list) else str(role),
        status=str(table.get("status", "stable")),
        since=str(table.get("since", "")),
        section=str(table.get("section", "")),
        text=" ".join(str(table.get("text", "")).split()),
        untestable=str(table.get("untestable", "")),
    )
    if entry.level not in _LEVELS or not entry.role or not entry.text:
        raise ValueError(f"{id_} in the register of requirements lacks a level, a role or a text")
    return entry
