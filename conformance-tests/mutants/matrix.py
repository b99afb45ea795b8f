"""Every mutant against every case: who catches whom.

    python -m mutants.matrix worker            all of it
    python -m mutants.matrix worker 'cancel*'  mutants that cases fitting the pattern shall catch

Rules:
- The reference peer passes each case, or the case does not apply to it.
- A mutant is caught by its own case and by those that it names in `also_caught_by`; one that breaks everything is run
  against its own case alone.
- Deadlines are short, since references answer at once: a case that fails waits in vain only once, and not for long.
  A catch that nobody expects is confirmed with a long one: the machine may be busy.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pkgutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence, Set, Tuple

import mutants
from mutants import EVERYTHING, Mutant, mutants_of
from mutants.launchers import ThreadLauncher
from scaler_conformance.cases import Case, cases_of
from scaler_conformance.known_failing import KnownFailing
from scaler_conformance.register import Register
from scaler_conformance.results import CaseResult
from scaler_conformance.runner import Runner
from scaler_conformance.settings import Settings
from scaler_conformance.verdicts import Verdict

SETTINGS = Settings(time_scale=0.08, effort=0.01, seed=7)
REFERENCE_SETTINGS = Settings(time_scale=1.0, effort=0.05, seed=7)
"""Nothing is waited for in vain there, so a slow machine may take its time."""
CAUGHT = (Verdict.FAIL, Verdict.NON_STRICT)
JOBS = 4


class Matrix(NamedTuple):
    """What came out."""

    role: str
    reference: List[CaseResult]
    caught: Dict[str, Dict[str, CaseResult]]  # by mutant, by case: those that did not pass
    complaints: List[str]
    seconds: float

    @property
    def killed(self) -> int:
        return sum(_own_case(each) in self.caught[each.name] for each in mutants_of(self.role))

    def lines(self) -> List[str]:
        """For people: the kill rate, and who caught whom."""
        all_mutants = mutants_of(self.role)
        rate = f"{self.killed} of {len(all_mutants)} mutants killed by their own case"
        lines = [f"{self.role}: {len(self.reference)} cases, {rate}, {self.seconds:.1f} s"]
        for each in all_mutants:
            caught = sorted(self.caught[each.name], key=lambda id_: id_ != each.caught_by)
            lines.append(f"  {each.breaks}  {each.name:<36} {', '.join(caught) or 'nobody'}")
        return lines


def _own_case(mutant: Mutant) -> str:
    return mutant.caught_by


def load(role: str) -> Any:
    """Import a role's mutants; the class of its reference."""
    for module in sorted(pkgutil.iter_modules(mutants.__path__), key=lambda each: each.name):
        if module.name.startswith(f"{role}_mutants"):
            importlib.import_module(f"mutants.{module.name}")
    reference = importlib.import_module(f"mutants.reference_{role}")
    return getattr(reference, f"Reference{role.capitalize()}")


def runner_for(peer: Callable[..., Any], settings: Settings) -> Runner:
    return Runner(ThreadLauncher(peer, getattr(peer, "__name__", "")), settings, Register.load(), KnownFailing())


def run_matrix(role: str, pattern: str = "*", in_area: bool = False) -> Matrix:
    """Run it all: a process for each processor, several cases at a time in each.

    Parameters:
        in_area: run each mutant against the cases of its own case's area only.
    """
    began = time.monotonic()
    reference_peer = load(role)
    cases = cases_of(role)
    chosen = [each for each in mutants_of(role) if fnmatchcase(each.caught_by, pattern)]
    with ThreadPoolExecutor(JOBS) as threads:
        reference = list(threads.map(runner_for(reference_peer, REFERENCE_SETTINGS).run_case, cases))
    applicable = [each.id for each in reference if each.verdict != Verdict.NOT_APPLICABLE]
    caught: Dict[str, Dict[str, CaseResult]] = {each.name: {} for each in mutants_of(role)}
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
        rows = processes.map(_run_row, [(role, each.name, _near(each, applicable, in_area)) for each in chosen])
        for mutant, row in zip(chosen, rows):
            caught[mutant.name] = row
    complaints = _complaints_of_reference(reference) + _complaints(chosen, cases, caught)
    return Matrix(role, reference, caught, complaints, time.monotonic() - began)


def _near(mutant: Mutant, ids: List[str], in_area: bool) -> List[str]:
    """Those of some cases that a mutant is run against."""
    area = mutant.caught_by.rpartition("/")[0] if in_area else ""
    also = mutant.also_caught_by
    return [each for each in ids if each.startswith(area) or each in also]


def _run_row(what: Tuple[str, str, List[str]]) -> Dict[str, CaseResult]:
    """One mutant against all cases, in a process of the pool: those that it does not pass."""
    role, name, applicable = what
    load(role)
    mutant = next(each for each in mutants_of(role) if each.name == name)
    ids = [mutant.caught_by] if mutant.also_caught_by == EVERYTHING else applicable
    cases = {each.id: each for each in cases_of(role) if each.id in ids}
    with ThreadPoolExecutor(JOBS) as threads:
        caught = _caught(threads.map(runner_for(mutant.peer, SETTINGS).run_case, cases.values()))
        doubtful = [cases[id_] for id_ in caught if id_ != mutant.caught_by and id_ not in mutant.also_caught_by]
        confirmed = _caught(threads.map(runner_for(mutant.peer, REFERENCE_SETTINGS).run_case, doubtful))
    return {id_: result for id_, result in caught.items() if cases[id_] not in doubtful or id_ in confirmed}


def _caught(results: Iterable[CaseResult]) -> Dict[str, CaseResult]:
    return {each.id: each for each in results if each.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)}


def _complaints_of_reference(reference: Sequence[CaseResult]) -> List[str]:
    return [
        f"the reference fails {each.id}: {each.verdict.value} {each.message}"
        for each in reference
        if each.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    ]


def _complaints(chosen: Sequence[Mutant], cases: Sequence[Case], caught: Dict[str, Dict[str, CaseResult]]) -> List[str]:
    known = {each.id: each for each in cases}
    complaints = []
    for mutant in chosen:
        results = caught[mutant.name]
        own = known.get(mutant.caught_by)
        if own is None:
            complaints.append(f"{mutant.name}: there is no case {mutant.caught_by}")
            continue
        if mutant.breaks not in own.covers:
            complaints.append(f"{mutant.name} breaks {mutant.breaks}, which {own.id} does not cover")
        result = results.get(own.id)
        if result is None or result.verdict not in CAUGHT:
            complaints.append(f"{mutant.name} is not caught by {own.id}{f': {result.message}' if result else ''}")
        elif result.requirement != mutant.breaks:
            complaints.append(f"{mutant.name} breaks {mutant.breaks}, but {own.id} blames {result.requirement}")
        also = set(mutant.also_caught_by) if mutant.also_caught_by != EVERYTHING else set()
        complaints += _differences(mutant, set(results) - {own.id}, also)
        errors = [each.id for each in results.values() if each.verdict == Verdict.ERROR]
        complaints += [f"{mutant.name} makes {id_} err: {results[id_].message}" for id_ in errors]
    return complaints


def _differences(mutant: Mutant, others: Set[str], also: Set[str]) -> List[str]:
    unexpected = [f"{mutant.name} is also caught by {id_}" for id_ in sorted(others - also)]
    return unexpected + [f"{mutant.name} is not caught by {id_}, which it names" for id_ in sorted(also - others)]


if __name__ == "__main__":
    matrix = run_matrix(sys.argv[1], *(f"*{each}*" for each in sys.argv[2:3]))
    print("\n".join([*matrix.lines(), "", *matrix.complaints]))
    sys.exit(bool(matrix.complaints))
