"""The memory of a process, as the system reports it.

Rules:
- On Linux the figures come from /proc; elsewhere from psutil and getrusage, or are 0 if unknown. psutil does not tell
  what is shared: there, all resident memory counts as private.
- Reading never raises: a missing figure must not fail a task.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Any

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
HAS_PROC = os.path.exists("/proc/self/statm")
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def resident_bytes(process_id: int = 0) -> int:
    """Resident memory of a process in bytes, this one by default; 0 if it is gone or unknown."""
    if not HAS_PROC:
        return _resident_by_psutil(process_id)
    try:
        with open(f"/proc/{process_id or 'self'}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError, MemoryError):
        return 0


def private_bytes(process_id: int) -> int:
    """Resident memory of a process without what it shares with others, such as objects it has mapped."""
    if not HAS_PROC:
        return _resident_by_psutil(process_id)
    try:
        with open(f"/proc/{process_id}/statm", "rb") as file:
            _, resident, shared = map(int, file.read().split()[:3])
        return (resident - shared) * _PAGE_BYTES
    except (OSError, ValueError, MemoryError):
        return 0


def _resident_by_psutil(process_id: int) -> int:
    try:
        import psutil

        return int(psutil.Process(process_id or None).memory_info().rss)
    except Exception:  # not installed; or the process is gone, or access is denied
        return 0


class MemoryKills:
    """How often Linux has ended a process because a host or control group had no memory left.

    One look per process that was killed. Where the system does not count them, there are none. They may be others'
    processes: what was counted before the last but one `refresh` is none of ours.
    """

    def __init__(self) -> None:
        self._known = _memory_kills()
        self._not_found = 0

    def refresh(self) -> None:
        """To be called periodically."""
        count = _memory_kills()
        self._not_found, self._known = count - self._known, count

    def is_another(self) -> bool:
        """Whether more were ended so lately than looks have found."""
        count = _memory_kills()
        self._not_found += count - self._known
        self._known = count
        if self._not_found <= 0:
            return False
        self._not_found -= 1
        return True


def _memory_kills(path: str = "/proc/vmstat") -> int:
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except (OSError, IndexError, ValueError, MemoryError):
        pass
    return 0


def reset_peak() -> bool:
    """Restart measuring the peak; False if the system does not support it."""
    try:
        with open("/proc/self/clear_refs", "wb") as file:
            file.write(b"5")
        return True
    except OSError:
        return False


def peak_bytes() -> int:
    """The peak of this process's resident memory since `reset_peak`, or since it started."""
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError, MemoryError):
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT


def trim() -> None:
    """Return freed memory to the system, if the C library supports it."""
    try:
        library: Any = ctypes.CDLL(None)
        library.malloc_trim(0)
    except (OSError, AttributeError):
        pass
