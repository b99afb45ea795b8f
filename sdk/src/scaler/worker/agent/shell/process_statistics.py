"""Figures about processes for heartbeats: CPU time and memory, of the agent and its processors.

Rules:
- On Linux the figures come from /proc, in a few tens of microseconds per process; elsewhere from psutil if it is
  installed.
- The figures of a process that is gone, or that cannot be measured, are 0.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Dict, Iterable, NamedTuple

from scaler.worker import resident_memory
from scaler.worker.agent.core.heartbeats import ProcessUsage
from scaler_protocol.host.memory import room_in_groups_bytes

try:
    psutil: Any = importlib.import_module("psutil")
except Exception:  # not installed, or a build that does not fit this interpreter
    psutil = None

MINIMUM_INTERVAL_SECONDS = 0.5
"""Figures younger than this are reused: heartbeats that announce a free slot may follow each other closely."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class _Sample(NamedTuple):
    time: float
    cpu_seconds: float
    usage: ProcessUsage


class ProcessStatistics:
    """CPU and memory of processes, the former since the last sample."""

    def __init__(self) -> None:
        self._samples: Dict[int, _Sample] = {}

    def usage(self, process_id: int, now: float) -> ProcessUsage:
        """Figures of one process; `now` in seconds of a monotonic clock."""
        last = self._samples.get(process_id)
        if last is not None and now - last.time < MINIMUM_INTERVAL_SECONDS:
            return last.usage
        seconds = _cpu_seconds(process_id)
        permille = 0
        if last is not None:
            permille = max(0, int(1000 * (seconds - last.cpu_seconds) / (now - last.time)))
        usage = ProcessUsage(permille, resident_memory.resident_bytes(process_id))
        self._samples[process_id] = _Sample(now, seconds, usage)
        return usage

    def keep_only(self, process_ids: Iterable[int]) -> None:
        """Forget processes that are gone."""
        for process_id in set(self._samples).difference(process_ids):
            del self._samples[process_id]


def free_memory_bytes() -> int:
    """Memory that this worker could use: what the host has left, or what a container or job may use of it.

    0: it is not known; so if nothing is left, it is 1.
    """
    free = _free_memory_of_host()
    try:
        room = room_in_groups_bytes()
    except MemoryError:
        room = None
    return free if room is None else max(1, min(free, room))


def _free_memory_of_host() -> int:
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError, MemoryError):
        pass
    return int(psutil.virtual_memory().available) if psutil is not None else 0


def _cpu_seconds(process_id: int) -> float:
    if resident_memory.HAS_PROC:
        try:
            with open(f"/proc/{process_id}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
        except (OSError, IndexError, ValueError, MemoryError):
            return 0.0
    if psutil is not None:
        try:
            times = psutil.Process(process_id).cpu_times()
            return float(times.user + times.system)
        except Exception:  # psutil's own errors: the process is gone, or access is denied
            return 0.0
    return 0.0
