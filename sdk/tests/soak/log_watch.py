"""Reads the logs of all programs while they are written: errors, tracebacks, and lines that repeat.

Rule: a line that a fault explains is listed in `EXPLAINED`, with the words of the faults that may cause it.
"""

from __future__ import annotations

import collections
import re
from pathlib import Path
from typing import Counter, Dict, List, NamedTuple, Tuple

LOG_LINE = re.compile(r"^\[(?P<level>[A-Z]+)\]\S+ \S+: (?P<text>.*)$")
REPETITIONS = re.compile(r"^\.\.\. and \d+ more like it in (?P<seconds>\d+) seconds: (?P<text>.*)$")
IN_THE_LAST = re.compile(r" in the last (?P<seconds>\d+) seconds: ")
"""A line that stands for several says since when."""
BAD_LEVELS = {"ERROR", "CRITICAL"}
MOST_REPEATS_A_MINUTE = 6
FAULTS_PER_REPEAT = 10
"""Of the same text by one program: a few, and one more for each ten faults of that minute."""
MINUTE_SECONDS = 60.0
SHOWN_TEMPLATES = 8

EXPLAINED: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    (r"^Worker: the fork server, which forks and watches processors, has ended", ("kill fork server", "squeeze")),
    (r"^Scheduler: objects stay in memory, .* No space left on device", ("disk",)),
    (r"^Scheduler: (an object|\d+ objects) of \d+ bytes could not be stored.*: .*(no room|No space left)", ("disk",)),
    (r"(?i)^Scheduler: .*\bmemory\b", ("starve",)),
    (r"^a large result is lost: .*: its directory is gone, as after the end of its scheduler", ("kill scheduler",)),
)
"""Patterns of error lines, and words of the names of faults that explain them."""

EVENT = re.compile(
    r"^(Processor\[\d+\] started|logging to .*|ClusterProcess: .*|use event loop: .*|client .* is gone: it left)$"
)
"""Lines about an event of its own each time, in the same words: a process has started, a nested client has left."""


class BadLine(NamedTuple):
    program: str
    text: str
    explained_by: Tuple[str, ...]  # words of faults; nothing explains it if there are none
    seconds: float = 0.0  # it was first written so long ago: it stands for lines that were left out


class LogWatch:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: Dict[Path, int] = {}
        self._rests: Dict[Path, bytes] = {}
        self._minute = 0
        self._in_minute: Counter[Tuple[str, str]] = collections.Counter()
        self._templates: Counter[Tuple[str, str]] = collections.Counter()
        self._templates_in_minute: Counter[Tuple[str, str]] = collections.Counter()
        self._most_of_template: Dict[Tuple[str, str], int] = {}
        self.lines = 0
        self._repeated: Dict[Tuple[str, str], int] = {}  # too often: the most in a minute
        self._fault_count = self._faults_before = 0

    def read(self, now: float, fault_count: int = 0) -> List[BadLine]:
        """The new lines that report an error. `fault_count`: since the start."""
        self._fault_count = fault_count
        if int(now / MINUTE_SECONDS) != self._minute:
            self._minute = int(now / MINUTE_SECONDS)
            self._end_minute()
        found: List[BadLine] = []
        for path in sorted(self._folder.glob("*.log")):
            for line in self._new_lines(path):
                found += self._note(path.stem, line)
        return found

    def _new_lines(self, path: Path) -> List[str]:
        with open(path, "rb") as file:
            file.seek(self._offsets.get(path, 0))
            data = self._rests.get(path, b"") + file.read()
            self._offsets[path] = file.tell()
        *lines, self._rests[path] = data.split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def _note(self, program: str, line: str) -> List[BadLine]:
        self.lines += 1
        match = LOG_LINE.match(line)
        level, text = (match["level"], match["text"]) if match else ("", line)
        if match:
            self._in_minute[program, text] += not EVENT.match(text)
            self._templates[program, template_of(text)] += 1
            self._templates_in_minute[program, template_of(text)] += 1
        if level in BAD_LEVELS or line.startswith("Traceback (most recent call last)"):
            repetitions = REPETITIONS.match(text)
            text = repetitions["text"] if repetitions else text
            seconds = sum(float(match["seconds"]) for match in (repetitions, IN_THE_LAST.search(text)) if match)
            words = tuple(word for pattern, names in EXPLAINED if re.search(pattern, text) for word in names)
            if program == "worker-tight":
                words += ("squeeze",)  # without memory, anything may fail
            return [BadLine(program, line, words, seconds)]
        return []

    def _end_minute(self) -> None:
        allowed = MOST_REPEATS_A_MINUTE + (self._fault_count - self._faults_before) // FAULTS_PER_REPEAT
        self._faults_before = self._fault_count
        for key, count in self._in_minute.items():
            if count > allowed:
                self._repeated[key] = max(count, self._repeated.get(key, 0))
        self._in_minute.clear()
        for key, count in self._templates_in_minute.items():
            self._most_of_template[key] = max(count, self._most_of_template.get(key, 0))
        self._templates_in_minute.clear()

    def repeated(self) -> List[Tuple[str, str, int]]:
        """Lines that were written too often within a minute: program, text, how often."""
        self._end_minute()
        return sorted(((*key, count) for key, count in self._repeated.items()), key=lambda each: -each[2])

    def most_common(self) -> List[Tuple[str, str, int, int]]:
        """The most frequent kinds of lines, whatever numbers they have: program, text, how often, most in a minute."""
        self._end_minute()
        common = self._templates.most_common(SHOWN_TEMPLATES)
        return [(*key, count, self._most_of_template[key]) for key, count in common]


def template_of(text: str) -> str:
    """The text without what differs between two lines of one kind."""
    return re.sub(r"\b[0-9a-f]*\d[0-9a-f.]*\b", "#", text)[:160]
