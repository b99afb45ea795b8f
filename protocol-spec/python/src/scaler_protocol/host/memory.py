"""How much memory the programs of this process's group may use together.

Rule: the smallest limit counts: that of the host, and those of the control groups that this process is in. What cannot
be read is no limit.
"""

from __future__ import annotations

import os
from typing import Iterator, List, Optional, Union

CGROUP_ROOT = "/sys/fs/cgroup"
OWN_CGROUPS = "/proc/self/cgroup"

PathText = Union[str, "os.PathLike[str]"]  # `pathlib` takes a noticeable part of the start of a small program


def memory_limit_bytes(root: PathText = CGROUP_ROOT, own: PathText = OWN_CGROUPS) -> Optional[int]:
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


def _cgroup_limits(root: PathText, own: PathText) -> Iterator[int]:
    """Limits of this process's groups and of the groups around them; of version 2, or of version 1's memory groups."""
    try:
        with open(own, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _limits_along(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_along(os.path.join(root, "memory"), path, "memory.limit_in_bytes")


def _limits_along(root: PathText, path: str, name: str) -> Iterator[int]:
    parts: List[str] = [part for part in path.split("/") if part]
    for depth in range(len(parts), -1, -1):
        try:
            with open(os.path.join(root, *parts[:depth], name), encoding="utf-8") as file:
                text = file.read().strip()
        except OSError:
            continue  # in a container, the outer groups are not visible
        if text.isdigit():  # otherwise "max"
            yield int(text)
