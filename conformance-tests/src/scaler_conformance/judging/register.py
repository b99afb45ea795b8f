"""The register of requirements, as the suite carries it.

Rule: the level and text of a requirement are read from the register; nothing in the suite repeats them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Tuple

from scaler_conformance.configuration.toml_files import load_toml

SPECIFICATION = Path(__file__).parents[1] / "specification"
"""The part of protocol-spec/ that the suite carries."""

_LEVELS = ("MUST NOT", "SHOULD NOT", "MUST", "SHOULD", "MAY", "INFO")


class Requirement(NamedTuple):
    """A numbered requirement of the specification."""

    id: str
    level: str  # MUST, MUST NOT, SHOULD, SHOULD NOT, MAY or INFO
    roles: Tuple[str, ...]  # worker, client, scheduler
    status: str  # draft, stable or deprecated
    since: str
    section: str  # file and anchor, "worker.md#cancel"
    text: str
    untestable: str  # why no case can test it; usually empty

    @property
    def is_advice(self) -> bool:
        """Whether an implementation that does otherwise still conforms."""
        return not self.level.startswith("MUST")


class UnknownRequirementError(Exception):
    """The register does not have this requirement."""


class Register:
    """Requirements by id, in the order of the file."""

    def __init__(self, requirements: Dict[str, Requirement]) -> None:
        self._requirements = requirements

    @classmethod
    def load(cls, path: Optional[Path] = None) -> Register:
        """Read the register that the suite carries, or another.

        Raises ValueError if an entry is incomplete.
        """
        path = path or SPECIFICATION / "requirements.toml"
        tables = load_toml(path)
        return cls({id_: _requirement(id_, table) for id_, table in tables.items() if id_.startswith("SCL-")})

    def __getitem__(self, id_: str) -> Requirement:
        try:
            return self._requirements[id_]
        except KeyError:
            raise UnknownRequirementError(f"there is no requirement {id_} in requirements.toml") from None

    def __contains__(self, id_: object) -> bool:
        return id_ in self._requirements

    def of_role(self, role: str) -> Dict[str, Requirement]:
        """Requirements that concern a role."""
        return {id_: each for id_, each in self._requirements.items() if role in each.roles}

    def all(self) -> Dict[str, Requirement]:
        return dict(self._requirements)


def _requirement(id_: str, table: Dict[str, Any]) -> Requirement:
    entry = Requirement(
        id=id_,
        level=str(table.get("level", "")).upper(),
        roles=tuple(table.get("roles", ())),
        status=str(table.get("status", "stable")),
        since=str(table.get("since", "")),
        section=str(table.get("section", "")),
        text=" ".join(str(table.get("text", "")).split()),
        untestable=str(table.get("untestable", "")),
    )
    if entry.level not in _LEVELS or not entry.roles or not entry.text:
        raise ValueError(f"{id_} in requirements.toml needs a level ({', '.join(_LEVELS)}), roles and a text")
    return entry
