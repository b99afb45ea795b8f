"""How much memory the programs of this process's group may use together.

Rule: the smallest limit counts: that of the host, and those of the control groups that this process is in. What cannot
be read is no limit.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Iterator, Optional

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def memory_limit_bytes(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> Optional[int]:
    """The limit of this process's memory in bytes; None if there is none.

    Parameters:
        root: where the control groups are mounted.
        own: a file with those of this process, as in cgroups(7).
    """
    limits = [*_cgroup_limits(root, own), *_host_memory()]
    return min(limits, default=None)


def _host_memory() -> Iterator[int]:
    try:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        pass


def _cgroup_limits(root: Path, own: Path) -> Iterator[int]:
    """Limits of this process's groups and of the groups around them; of version 2, or of version 1's memory groups."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _limits_along(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_along(root / "memory", path, "memory.limit_in_bytes")


def _limits_along(root: Path, path: str, name: str) -> Iterator[int]:
    group = PurePosixPath(path.lstrip("/"))
    for each in (group, *group.parents):
        try:
            text = (root / each / name).read_text(encoding="utf-8").strip()
        except OSError:
            continue  # in a container, the outer groups are not visible
        if text.isdigit():  # otherwise "max"
            yield int(text)
