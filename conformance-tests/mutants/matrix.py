"""Mutants against cases: which cases catch which mutants.

    python -m mutants.matrix worker            every mutant against its own case
    python -m mutants.matrix worker 'cancel*'  mutants whose own case matches the pattern, against all cases

Rules:
- The reference peer passes each case, or the case does not apply to it.
- A mutant is caught by its own case, for the requirement it breaks. One that the record says is caught by that case
  alone is caught by no other; whether others of many catch it may be a matter of timing.
- The record has seen every mutant against every case. `make test` repeats each mutant's own case, `make test-all` also
  the others of its area.
- Deadlines are short, since references answer at once: a case that fails waits for its deadline once.
  Every unexpected result is confirmed with a long deadline, however many there are: the machine may be busy.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import pkgutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from mutants import Mutant, mutants_of
from mutants.launchers import ThreadLauncher
from scaler_conformance.cases import Case, cases_of
from scaler_conformance.configuration.settings import Settings
from scaler_conformance.judging.known_failing import KnownFailing
from scaler_conformance.judging.register import Register
from scaler_conformance.judging.results import CaseResult
from scaler_conformance.judging.verdicts import Verdict
from scaler_conformance.running.runner import Runner

SETTINGS = Settings(time_scale=0.08, effort=0.01, seed=7)
CONFIRMING_SETTINGS = Settings(time_scale=0.5, effort=0.01, seed=7)
REFERENCE_SETTINGS = Settings(time_scale=1.0, effort=0.05, seed=7)
"""No wait of the reference times out, so long deadlines do not slow it down."""
REFERENCE_TIMEOUT_SECONDS = 4.0  # of sessions, in the cases about it: longer than a busy machine stops this process
CAUGHT = (Verdict.FAIL, Verdict.NON_STRICT)
JOBS = 4
MOST_CATCHERS = 8
"""For a mutant that more cases catch, only its own case is run."""


class Matrix(NamedTuple):
    """The results for one role."""

    role: str
    reference: List[CaseResult]
    caught: Dict[str, Dict[str, CaseResult]]  # by mutant and case: the results that are not PASS
    complaints: List[str]
    seconds: float

    @property
    def killed(self) -> int:
        return sum(each.caught_by in self.caught.get(each.name, {}) for each in mutants_of(self.role))

    def headline(self) -> str:
        """The kill rate."""
        rate = f"{self.killed} of {len(self.caught)} mutants killed by their own case"
        return f"{self.role}: {len(self.reference)} cases, {rate}, {self.seconds:.1f} s"

    def lines(self) -> List[str]:
        """The kill rate, and which cases caught which mutant."""
        known = {each.name: each for each in mutants_of(self.role)}
        lines = [self.headline()]
        for name, results in self.caught.items():
            caught = sorted(results, key=known[name].caught_by.__ne__)  # its own case first
            lines.append(f"  {known[name].breaks}  {name:<36} {', '.join(caught) or 'no case'}")
        return lines


class Row(NamedTuple):
    """One mutant against some cases."""

    role: str
    mutant: str
    cases: Sequence[str]
    expected: Sequence[str] = ()  # cases that are known to catch it


def load(role: str) -> Any:
    """Import a role's mutants; the class of its reference."""
    package = importlib.import_module(f"mutants.{role}")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        if module.name.startswith(f"{role}_mutants"):
            importlib.import_module(f"mutants.{role}.{module.name}")
    reference = importlib.import_module(f"mutants.{role}.reference_{role}")
    return getattr(reference, f"Reference{role.capitalize()}")


def runner_for(peer: Callable[..., Any], settings: Settings) -> Runner:
    return Runner(ThreadLauncher(peer, getattr(peer, "__name__", "")), settings, _register(), KnownFailing())


@functools.cache
def _register() -> Register:
    """Read once by each process: reading it takes half as long as all else of a mutant and its case."""
    return Register.load()


def run_matrix(
    role: str, recorded: Mapping[str, Sequence[str]], pattern: Optional[str] = None, whole_areas: bool = False
) -> Matrix:
    """Run the reference against all cases, and each mutant against its own.

    Parameters:
        recorded: by mutant, the cases that are known to catch it.
        pattern: run only mutants whose own case fits it, but against all cases.
        whole_areas: run mutants also against the other cases of the areas of their own.
    """
    began = time.monotonic()
    reference = run_reference(role)
    applicable = [each.id for each in reference if each.verdict != Verdict.NOT_APPLICABLE]
    chosen = [each for each in mutants_of(role) if pattern is None or fnmatchcase(each.caught_by, pattern)]
    rows = []
    for each in chosen:
        known = recorded.get(each.name, ())
        ids = applicable if pattern else _near(each, applicable, known) if whole_areas else [each.caught_by]
        rows.append(Row(role, each.name, ids, known))
    results = dict(run_rows(rows))
    caught = {each.name: results[each.name] for each in chosen}
    complaints = _complaints_of_reference(reference)
    for each in chosen:
        complaints += _complaints(each, caught[each.name], recorded.get(each.name, ()))
    return Matrix(role, reference, caught, complaints, time.monotonic() - began)


def run_reference(role: str) -> List[CaseResult]:
    """The reference against all cases, with timeouts that peers on a busy machine do not miss."""
    reference = load(role)
    patient = type(reference.__name__, (reference,), {"short_timeout_seconds": REFERENCE_TIMEOUT_SECONDS})
    with ThreadPoolExecutor(JOBS) as threads:
        return list(threads.map(runner_for(patient, REFERENCE_SETTINGS).run_case, cases_of(role)))


def run_rows(rows: Sequence[Row]) -> Iterator[Tuple[str, Dict[str, CaseResult]]]:
    """Run rows, one process for each CPU; yields the name of each mutant and the cases that it did not pass."""
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
        names = {processes.submit(_run_row, row): row.mutant for row in rows}
        for each in as_completed(names):
            yield names[each], each.result()


def _run_row(row: Row) -> Dict[str, CaseResult]:
    """Run one mutant against its cases, in a process of the pool; returns the cases that it did not pass."""
    load(row.role)
    mutant = next(each for each in mutants_of(row.role) if each.name == row.mutant)
    cases = {each.id: each for each in cases_of(row.role) if each.id in row.cases}
    with ThreadPoolExecutor(JOBS) as threads:
        caught = _caught(threads.map(runner_for(mutant.peer, SETTINGS).run_case, cases.values()))
    unexpected = [id_ for id_ in cases if not _is_expected(caught.get(id_), cases[id_], mutant, row.expected)]
    confirmed = _confirmed(runner_for(mutant.peer, CONFIRMING_SETTINGS), [cases[id_] for id_ in unexpected])
    return {**{id_: each for id_, each in caught.items() if id_ not in unexpected}, **confirmed}


def _is_expected(result: Optional[CaseResult], case: Case, mutant: Mutant, known: Sequence[str]) -> bool:
    """Whether a run with short deadlines agrees with what is known of a mutant."""
    if case.id == mutant.caught_by:
        return result is not None and result.verdict in CAUGHT and result.requirement == mutant.breaks
    return result is None or (result.verdict in CAUGHT and case.id in known)


def _confirmed(runner: Runner, cases: Sequence[Case]) -> Dict[str, CaseResult]:
    """The cases that a mutant does not pass with long deadlines either.

    One case after another, on a machine that may be busy; once more of them than MOST_CATCHERS have caught the mutant,
    the rest would tell nothing new.
    """
    confirmed: Dict[str, CaseResult] = {}
    for case in cases:
        confirmed.update(_caught([runner.run_case(case)]))
        if len(confirmed) > MOST_CATCHERS:
            break
    return confirmed


def _near(mutant: Mutant, ids: Sequence[str], known: Sequence[str]) -> List[str]:
    """The cases that say most about a mutant: its own and the others of that area."""
    if len(known) > MOST_CATCHERS:
        return [mutant.caught_by]
    area = mutant.caught_by.rpartition("/")[0]
    return [each for each in ids if each.startswith(f"{area}/")]


def _caught(results: Iterable[CaseResult]) -> Dict[str, CaseResult]:
    return {each.id: each for each in results if each.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)}


def _complaints_of_reference(reference: Sequence[CaseResult]) -> List[str]:
    return [
        f"the reference fails {each.id}: {each.verdict.value} {each.message}"
        for each in reference
        if each.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    ]


def _complaints(mutant: Mutant, results: Mapping[str, CaseResult], known: Sequence[str]) -> List[str]:
    own = next((each for each in cases_of(mutant.role) if each.id == mutant.caught_by), None)
    if own is None:
        return [f"{mutant.name}: there is no case {mutant.caught_by}"]
    complaints = []
    if mutant.breaks not in own.covers:
        complaints.append(f"{mutant.name} breaks {mutant.breaks}, which {own.id} does not cover")
    result = results.get(own.id)
    if result is None or result.verdict not in CAUGHT:
        complaints.append(f"{mutant.name} is not caught by {own.id}{f': {result.message}' if result else ''}")
    elif result.requirement != mutant.breaks:
        complaints.append(f"{mutant.name} breaks {mutant.breaks}, but {own.id} blames {result.requirement}")
    if len(known) < 2:
        others: Set[str] = set(results) - {own.id}
        complaints += [f"{mutant.name} is also caught by {id_}; see record.py" for id_ in sorted(others)]
    errors = [each.id for each in results.values() if each.verdict == Verdict.ERROR]
    return complaints + [f"{mutant.name} makes {id_} err: {results[id_].message}" for id_ in errors]


def main(arguments: Sequence[str]) -> int:
    from mutants.record import catchers

    role = arguments[0]
    matrix = run_matrix(role, catchers(role), f"*{arguments[1]}*" if arguments[1:] else None)
    print("\n".join([*matrix.lines(), "", *matrix.complaints]))
    return bool(matrix.complaints)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
