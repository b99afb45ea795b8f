"""The specification as data: its register, its pages, its machines, and who names which requirement.

Rules:
- Reading only, and nothing of the protocol's binding: what is here also serves who checks another implementation.
- A page shows a requirement as a list item `- **SCL-ABC-000** sentence`; any other mention of an id is a reference.
- In code, `SCL-ABC-000` in a comment says that the requirement is enforced there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Set, Tuple

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parents[1]
TREE = FOLDER.parent
CODE_FOLDERS = ["appliance/src", "sdk/src", "protocol-spec/python/src"]
CASE_FOLDER = "conformance-tests"

LEVELS = ("MUST", "SHOULD", "MAY", "INFO")
ROLES = ("client", "worker", "scheduler")
STATUSES = ("draft", "stable", "deprecated")
AREAS = ("TRN", "SES", "CLT", "WRK", "SCH", "OBJ", "VER", "SEC", "COD", "MON")

ID = re.compile(r"\bSCL-[A-Z]{3}-\d{3}\b")
ITEM = re.compile(r"^- \*\*(SCL-[A-Z]{3}-\d{3})\*\*")
HEADING = re.compile(r"^#{1,6} (.+)$")
_COVERS = re.compile(r"\b(?:covers|breaks)\s*=\s*(\[[^\]]*\]|\"[^\"]*\")")


class Requirement(NamedTuple):
    id: str
    level: str
    roles: Tuple[str, ...]
    since: str
    status: str
    section: str
    text: str
    untestable: str

    @property
    def must_be_tested(self) -> bool:
        return self.level == "MUST" and self.status == "stable" and not self.untestable


class Machine(NamedTuple):
    """A state table. `transitions[state][event]` is a state, "ignore: why" or "fault: why"."""

    name: str
    title: str
    initial: List[str]
    final: List[str]
    states: Dict[str, str]
    events: Dict[str, str]
    transitions: Dict[str, Dict[str, str]]
    replies: Dict[str, str]  # "state.event" -> what is sent then


class Shown(NamedTuple):
    """A requirement's item on a page."""

    id: str
    section: str  # page.md#anchor


def load_toml(path: Path) -> Dict[str, object]:
    with path.open("rb") as file:
        return dict(tomllib.load(file))


def requirements() -> Dict[str, Requirement]:
    """The register, in its order."""
    found = {}
    for number, fields in load_toml(FOLDER / "requirements.toml").items():
        assert isinstance(fields, dict), number
        unknown = set(fields) - set(Requirement._fields)
        assert not unknown, f"{number}: unknown fields {sorted(unknown)}"
        known = {"untestable": "", **fields, "roles": tuple(fields["roles"])}
        found[number] = Requirement(id=number, **known)
    return found


def machines() -> List[Machine]:
    """All state tables, by name."""
    found = []
    for path in sorted((FOLDER / "machines").glob("*.toml")):
        tables: Dict[str, Any] = load_toml(path)
        found.append(Machine(name=path.stem, **tables))
    return found


def pages() -> List[Path]:
    return sorted(FOLDER.glob("*.md"))


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes them."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.replace(" ", "-")


def shown_on(page: Path) -> Iterator[Shown]:
    section = ""
    in_fence = False
    for line in page.read_text(encoding="utf-8").splitlines():
        in_fence ^= line.startswith("```")
        heading = HEADING.match(line)
        if heading and not in_fence:
            section = f"{page.name}#{anchor(heading[1])}"
        item = ITEM.match(line)
        if item:
            yield Shown(item[1], section)


def ids_in(text: str) -> Set[str]:
    return set(ID.findall(text))


def code_ids() -> Dict[str, List[str]]:
    """Where code names each id: `path:line`."""
    found: Dict[str, List[str]] = {}
    for folder in CODE_FOLDERS:
        for path in sorted((TREE / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                for each in ID.findall(line):
                    found.setdefault(each, []).append(f"{path.relative_to(TREE)}:{number}")
    return found


def covered(kind: str) -> Dict[str, List[str]]:
    """Which files of conformance-tests name each id in front matter: `covers=["SCL-WRK-017"]`, `breaks="SCL-WRK-017"`.

    Parameters:
        kind: the name of a folder somewhere below, "cases" or "mutants".
    """
    found: Dict[str, List[str]] = {}
    for path in sorted((TREE / CASE_FOLDER).rglob("*.py")):
        if kind in path.relative_to(TREE).parts[:-1]:
            for match in _COVERS.finditer(path.read_text(encoding="utf-8")):
                for each in ID.findall(match[1]):
                    found.setdefault(each, []).append(str(path.relative_to(TREE)))
    return found
