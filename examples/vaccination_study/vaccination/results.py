"""What has been computed: a file with a line for each run, written when its result arrives.

A program that ends early, for whatever reason, loses no line, and the next start continues after the last one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple

LARGE = 100
"""An outbreak is large if so many are infected."""


class Run(NamedTuple):
    """All that a result depends on, and so the key of its line."""

    vaccinated: float
    contacts: float
    seed: int


class ResultFile:
    """Parameters:
    path: an existing file is continued.
    """

    def __init__(self, path: Path) -> None:
        self.infected: Dict[Run, int] = {}
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines():
            try:
                vaccinated, contacts, seed, infected = json.loads(line)
            except ValueError:
                continue  # the machine stopped in the middle of this line: the run is repeated
            self.infected[Run(vaccinated, contacts, seed)] = infected
        self._file = path.open("a")
        if text and not text.endswith("\n"):
            self._file.write("\n")

    def left(self, shares: Iterable[float], contacts: float, seeds: int) -> List[Run]:
        """The runs that are not in the file yet, the same number for each share."""
        wanted = [Run(share, contacts, seed) for seed in range(seeds) for share in shares]
        return [run for run in wanted if run not in self.infected]

    def add(self, run: Run, infected: int) -> None:
        self.infected[run] = infected
        self._file.write(json.dumps([*run, infected]) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def table(self, contacts: float) -> str:
        """How often an outbreak was a large one, for each share."""
        outbreaks: Dict[float, List[int]] = defaultdict(list)
        for run, infected in sorted(self.infected.items()):
            if run.contacts == contacts:
                outbreaks[run.vaccinated].append(infected)
        lines = ["vaccinated   runs   large outbreaks"]
        for vaccinated, sizes in outbreaks.items():
            large = sum(size >= LARGE for size in sizes) / len(sizes)
            lines.append(f"{vaccinated:10.0%} {len(sizes):6} {large:17.0%}")
        return "\n".join(lines)
