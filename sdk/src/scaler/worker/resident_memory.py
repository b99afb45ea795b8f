"""How much memory this process has, as the system sees it.

Rules:
- Linux answers from /proc; elsewhere the figures come from getrusage, or are 0 where nobody knows.
- Reading never raises: a figure is not worth a task.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Any

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def resident_bytes(process_id: int = 0) -> int:
    """Resident memory of a process in bytes, this one by default; 0 when it is gone or nobody knows."""
    try:
        with open(f"/proc/{process_id or 'self'}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def private_bytes(process_id: int) -> int:
    """Resident memory of a process without what it shares with others, such as objects it has mapped."""
    try:
        with open(f"/proc/{process_id}/statm", "rb") as file:
            _, resident, shared = map(int, file.read().split()[:3])
        return (resident - shared) * _PAGE_BYTES
    except (OSError, ValueError):
        return 0


def reset_peak() -> bool:
    """Start measuring the peak anew; False where the system cannot."""
    try:
        with open("/proc/self/clear_refs", "wb") as file:
            file.write(b"5")
        return True
    except OSError:
        return False


def peak_bytes() -> int:
    """The highest resident memory of this process since `reset_peak`, or in all its life."""
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT


def trim() -> None:
    """Give freed memory back to the system, where the C library can."""
    try:
        library: Any = ctypes.CDLL(None)
        library.malloc_trim(0)
    except (OSError, AttributeError):
        pass
