"""Which cases catch which mutants: the results of every mutant against every case of its role.

    python -m mutants.record            run what has changed since the last run: `make mutants`
    python -m mutants.record worker     the same, for one role
    python -m mutants.record --all      run everything

Rules:
- The record is part of the tree, `record.json`, with a line for each mutant. It has a fingerprint of the source of each
  mutant and case, docstrings included; only those whose fingerprint differs run again. The references and benches that
  they use have no fingerprint: after a change of those, run `--all`.
- Each case has a mutant that no other case catches. The suite's tests read that from the record.
- An interrupted run continues where it stopped.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence, Set, Type

from mutants import Mutant, mutants_of
from mutants.matrix import Row, load, run_rows
from scaler_conformance.cases import cases_of

RECORD = Path(__file__).with_name("record.json")
PROGRESS = Path(__file__).parents[2] / "build/mutants.json"
ROLES = ("worker", "scheduler", "client")
_FINGERPRINT_CHARACTERS = 12


class Catches(NamedTuple):
    """The line of one mutant."""

    source: str  # fingerprint of the mutant
    caught_by: List[str]
    against: Dict[str, str]  # fingerprints of the cases that it was run against


Lines = Dict[str, Catches]


# Fingerprints -------------------------------------------------------------------------------------------------------


def fingerprint_of_case(function: Callable[..., Any]) -> str:
    """Fingerprint of the source of a case, whatever its layout."""
    return _fingerprint(inspect.getsource(function))


def fingerprint_of_mutant(mutant: Mutant) -> str:
    """Fingerprint of its class, the classes between it and the reference, and the parts that it replaces."""
    classes = _own_classes(mutant.peer, f"mutants.{mutant.role}.{mutant.role}_mutants")
    return _fingerprint("".join(_classes_of(each.__module__)[each.__name__] for each in classes))


@functools.cache
def _classes_of(module: str) -> Dict[str, str]:
    """The sources of a module's classes, by name: `inspect` would read the module for each of them."""
    text = inspect.getsource(sys.modules[module])
    lines = text.splitlines(keepends=True)
    nodes = [each for each in ast.parse(text).body if isinstance(each, ast.ClassDef)]
    first = {each.name: min([each.lineno, *(it.lineno for it in each.decorator_list)]) for each in nodes}
    return {each.name: "".join(lines[first[each.name] - 1 : each.end_lineno]) for each in nodes}


def _own_classes(peer: Type[Any], module: str) -> List[Type[Any]]:
    """The classes from modules of mutants that a peer consists of."""
    found: List[Type[Any]] = []
    for each in peer.__mro__:
        if each.__module__.startswith(module):
            # A class that was made from its parts has no source.
            found += [] if "made_of" in each.__dict__ else [each]
            for part in [part for part in each.__dict__.values() if isinstance(part, type)]:
                found += _own_classes(part, module)
    return found


def _fingerprint(source: str) -> str:
    return hashlib.sha256("".join(source.split()).encode()).hexdigest()[:_FINGERPRINT_CHARACTERS]


# The record ---------------------------------------------------------------------------------------------------------


def read(path: Path = RECORD) -> Dict[str, Lines]:
    """The record, by role and mutant."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return {
        role: {
            name: Catches(line["source"], line["caught_by"], line.get("against", found[role]["cases"]))
            for name, line in found[role]["mutants"].items()
        }
        for role in found
    }


def write(record: Dict[str, Lines], path: Path = RECORD, is_partial: bool = False) -> None:
    """Write the record; a partial one lists the cases that each mutant was run against."""
    roles = []
    for role in sorted(record):
        cases = {each.id: fingerprint_of_case(each.function) for each in cases_of(role)}
        lines = []
        for name, line in sorted(record[role].items()):
            members: Dict[str, Any] = {"source": line.source, "caught_by": line.caught_by}
            lines.append(
                f"   {json.dumps(name)}: {json.dumps({**members, **({'against': line.against} if is_partial else {})})}"
            )
        case_lines = [f"   {json.dumps(id_)}: {json.dumps(cases[id_])}" for id_ in sorted(cases)]
        parts = [("cases", case_lines), ("mutants", lines)]
        text = ",\n".join(f'  "{part}": {{\n' + ",\n".join(each) + "\n  }" for part, each in parts)
        roles.append(f' "{role}": {{\n{text}\n }}')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(roles) + "\n}\n", encoding="utf-8")


def missing(role: str, lines: Lines) -> List[Row]:
    """What has to run to complete a record: for each mutant, the new and changed cases; for a new mutant, all cases."""
    load(role)
    cases = {each.id: fingerprint_of_case(each.function) for each in cases_of(role)}
    rows = []
    for mutant in mutants_of(role):
        line = lines.get(mutant.name)
        known = line.against if line is not None and line.source == fingerprint_of_mutant(mutant) else {}
        ids = [id_ for id_, fingerprint in cases.items() if known.get(id_) != fingerprint]
        if ids:
            rows.append(Row(role, mutant.name, ids))
    return rows


def left_over(role: str, lines: Lines) -> Set[str]:
    """Mutants and cases of a record that no longer exist."""
    load(role)
    against = {id_ for line in lines.values() for id_ in line.against}
    return (set(lines) - {each.name for each in mutants_of(role)}) | (against - {each.id for each in cases_of(role)})


def caught_by_one(lines: Lines) -> Set[str]:
    """Cases that catch some mutant that no other case catches."""
    return {line.caught_by[0] for line in lines.values() if len(line.caught_by) == 1}


def catchers(role: str) -> Dict[str, List[str]]:
    """The cases that catch each mutant, according to the record."""
    return {name: line.caught_by for name, line in read().get(role, {}).items()}


def complaints(role: str, lines: Lines) -> List[str]:
    """Cases without a mutant that only they catch, and mutants that their own case does not catch."""
    load(role)
    alone = caught_by_one(lines)
    found = [f"no mutant is caught only by {each.id}; add one" for each in cases_of(role) if each.id not in alone]
    known = {each.name: each for each in mutants_of(role)}
    for name, line in lines.items():
        if name in known and known[name].caught_by not in line.caught_by:
            found.append(f"{name} is not caught by {known[name].caught_by}")
    return found


# Running ------------------------------------------------------------------------------------------------------------


def run(roles: Sequence[str], runs_all: bool, say: Callable[[str], None]) -> Dict[str, Lines]:
    """Run what is missing, and return the complete record."""
    recorded, begun = read(RECORD), read(PROGRESS)
    record = {role: begun.get(role) or recorded.get(role, {}) for role in ROLES}
    if runs_all:
        record.update({role: {} for role in roles})
    for role in roles:
        _run_role(role, record, say)
    return record


def _run_role(role: str, record: Dict[str, Lines], say: Callable[[str], None]) -> None:
    lines = record[role]
    rows = {row.mutant: row for row in missing(role, lines)}
    cases = {each.id: fingerprint_of_case(each.function) for each in cases_of(role)}
    known = {each.name: each for each in mutants_of(role)}
    record[role] = lines = {name: _without(line, cases) for name, line in lines.items() if name in known}
    began = time.monotonic()
    for count, (name, results) in enumerate(run_rows(list(rows.values())), 1):
        source = fingerprint_of_mutant(known[name])
        before = lines.get(name)
        caught = set(results)
        if before is not None and before.source == source:
            caught |= set(before.caught_by) - set(rows[name].cases)
        own = known[name].caught_by
        lines[name] = Catches(source, sorted(caught, key=lambda id_: (id_ != own, id_)), dict(cases))
        write(record, PROGRESS, is_partial=True)
        say(f"{role} {count}/{len(rows)} {time.monotonic() - began:.0f} s  {name}: {_shortened(lines[name].caught_by)}")


def _without(line: Catches, cases: Iterable[str]) -> Catches:
    """A line without cases that no longer exist."""
    return line._replace(
        caught_by=[each for each in line.caught_by if each in cases],
        against={id_: each for id_, each in line.against.items() if id_ in cases},
    )


def _shortened(caught_by: List[str]) -> str:
    return ", ".join(caught_by[:3]) + (f" and {len(caught_by) - 3} more" if len(caught_by) > 3 else "")


def main(arguments: Sequence[str]) -> int:
    roles = [each for each in arguments if each in ROLES] or list(ROLES)
    record = run(roles, "--all" in arguments, lambda text: print(text, flush=True))
    found = [each for role in roles for each in complaints(role, record[role])]
    if not any(missing(role, record[role]) for role in ROLES):
        write(record)
        PROGRESS.unlink(missing_ok=True)
    print("\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
