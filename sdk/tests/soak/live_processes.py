"""What /proc says about processes: who lives, whose child it is, and what it uses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class LiveProcess(NamedTuple):
    """A process, which no other with the same id can be taken for."""

    pid: int
    started: str  # as the system counts it

    @staticmethod
    def find(pid: int) -> Optional[LiveProcess]:
        stat = _stat(pid)
        return LiveProcess(pid, stat[19]) if stat and stat[0] != "Z" else None

    def is_alive(self) -> bool:
        return LiveProcess.find(self.pid) == self

    def signal(self, number: int) -> None:
        if self.is_alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass


def _stat(pid: int) -> List[str]:
    """State, parent and so on of a process; nothing when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def children_by_parent() -> Dict[int, List[int]]:
    children: Dict[int, List[int]] = {}
    for entry in os.listdir("/proc"):
        stat = _stat(int(entry)) if entry.isdigit() else []
        if stat and stat[0] != "Z":
            children.setdefault(int(stat[1]), []).append(int(entry))
    return children


class Usage(NamedTuple):
    """What one process uses."""

    resident_bytes: int
    proportional_bytes: int  # PSS of private memory: what forks share counts in parts
    descriptors: int
    threads: int


def usage_of(pid: int) -> Optional[Usage]:
    """None if the process has ended."""
    try:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        if "VmRSS" not in status:
            return None  # a zombie
        return Usage(
            int(status["VmRSS"].split()[0]) << 10,
            _proportional_bytes(pid),
            len(os.listdir(f"/proc/{pid}/fd")),
            int(status["Threads"]),
        )
    except OSError:
        return None


def _proportional_bytes(pid: int) -> int:
    """Of private memory, which a leak would fill; mapped object files come and go with the load."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0]) << 10
    return fields.get("Pss_Anon", fields["Pss"])
