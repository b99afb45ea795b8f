"""What a soak has found wrong: reports of clients, ends of programs, logs and ledgers, judged by the faults there were.

Rule: a violation is a text; the first ones are kept whole, since they are the causes of the others.
"""

from __future__ import annotations

import collections
import time
from pathlib import Path
from typing import Any, Callable, Counter, Dict, List, Set, Tuple

from soak.log_watch import BadLine
from soak.soaked_cluster import End

MOST_VIOLATIONS = 100

Explains = Callable[[float, float, Tuple[str, ...]], bool]

EXCUSES: Dict[str, Tuple[str, ...]] = {
    "WorkerDiedError": ("kill", "pause", "link", "unplug", "squeeze", "starve"),
    "ProcessorDiedError": ("kill", "pause", "squeeze"),
    "DisconnectedError": ("kill", "pause", "link", "unplug", "starve"),
    "ObjectStorageFullError": ("disk",),  # what has no room in memory goes there
    "MemoryError": ("squeeze",),
}
"""Words of the names of faults that may cause an error, which work of some kinds may end with then."""

ENDS: Dict[str, Tuple[str, ...]] = {
    "worker": ("kill agent", "kill fork server"),
    "worker tight": ("kill agent", "kill fork server", "squeeze"),
    "client": ("kill client",),
    "scheduler": ("kill scheduler",),
}
"""Which faults may end a program."""


class Verdict:
    """Collects violations.

    Parameters:
        explains: whether a fault with one of some words in its name may have had an effect between two times.
        say: prints a violation at once.
    """

    def __init__(self, explains: Explains, say: Callable[[str], None]) -> None:
        self._explains = explains
        self._say = say
        self._judged_ends = 0
        self.violations: List[str] = []
        self.violation_count = 0
        self.excused: Counter[str] = collections.Counter()
        self.outcomes: Dict[Tuple[str, int], Dict[str, Dict[str, int]]] = {}  # by client, and by its process
        self.longest_seconds: Dict[str, float] = {}
        self.longest_rest_seconds: Dict[str, float] = {}
        self._ran: Dict[str, Set[int]] = {}  # numbers in the ledgers
        self._said_to_have_run: Dict[str, Set[int]] = {}
        self._offsets: Dict[Path, int] = {}

    def violate(self, text: str) -> None:
        self.violation_count += 1
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(f"{time.strftime('%H:%M:%S')} {text}")
            self._say(f"    VIOLATION: {text}")

    # Clients ----------------------------------------------------------------------------------------------------------

    def on_report(self, program: str, process_id: int, ledger: str, report: Dict[str, Any]) -> None:
        if "counts" in report:
            self.outcomes[program, process_id] = report["counts"]
            self._said_to_have_run.setdefault(ledger, set()).update(report["ran"])
            for kind, seconds in report["longest_seconds"].items():
                self.longest_seconds[kind] = max(seconds, self.longest_seconds.get(kind, 0.0))
        if "wrong" in report:
            seconds = report["ended"] - report["began"]
            self.violate(f"{program}: {report['kind']} after {seconds:.1f} s: {report['wrong']}")
        if "excused" in report:
            self._on_excused(program, report)
        if report.get("malformed"):
            self.violate(f"{program}: {report['malformed']} publications were malformed")

    def _on_excused(self, program: str, report: Dict[str, Any]) -> None:
        name = report["excused"].partition(":")[0]
        kind = report["kind"]
        if kind == "greedy" or self._explains(report["began"], report["ended"], EXCUSES.get(name, ())):
            self.excused[f"{kind}: {name}"] += 1
        else:
            self.violate(f"{program}: no fault explains this end of {kind}: {report['excused']}")

    def outcome_counts(self) -> Dict[str, Dict[str, int]]:
        """How often work of each kind ended in which way."""
        totals: Dict[str, Counter[str]] = {}
        for counts in self.outcomes.values():
            for kind, outcomes in counts.items():
                totals.setdefault(kind, collections.Counter()).update(outcomes)
        return {kind: dict(counts) for kind, counts in sorted(totals.items())}

    # What may run once at most ----------------------------------------------------------------------------------------

    def read_ledgers(self, folder: Path) -> None:
        for path in sorted(folder.iterdir()):
            with open(path, "rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            self.on_runs(path.name, [int(number) for number in whole.split()])

    def on_runs(self, ledger: str, numbers: List[int]) -> None:
        ran = self._ran.setdefault(ledger, set())
        for number in numbers:
            if number in ran:
                self.violate(f"task {number} of {ledger} may run at most once and ran again")
            ran.add(number)

    def check_ledgers(self, folder: Path) -> None:
        """Each task with a result has run."""
        self.read_ledgers(folder)
        for ledger, numbers in self._said_to_have_run.items():
            missing = numbers - self._ran.get(ledger, set())
            if missing:
                self.violate(f"{len(missing)} tasks of {ledger} have results and have not run: {sorted(missing)[:5]}")

    @property
    def ran_once(self) -> int:
        return sum(map(len, self._ran.values()))

    # Programs and logs ------------------------------------------------------------------------------------------------

    def judge_ends(self, ends: List[End], is_stopping: bool = False) -> None:
        """Programs that have ended since the last call."""
        for end in ends[self._judged_ends :]:
            words = ENDS.get(end.program, ENDS.get(end.program.partition(" ")[0], ()))
            is_goodbye = end.code == 0 and (is_stopping or end.program == "client comer")
            if not is_goodbye and not self._explains(end.at, end.at, words):
                self.violate(f"{end.program} ended with code {end.code}, and no fault explains it")
        self._judged_ends = len(ends)

    def on_bad_line(self, line: BadLine, now: float) -> None:
        if line.explained_by and self._explains(now - line.seconds, now, line.explained_by):
            self.excused[f"log of {line.program}: {line.text.partition(': ')[2][:80]}"] += 1
        else:
            self.violate(f"log of {line.program}: {line.text[:300]}")
