"""How much memory the programs of this process's group may use together, and how much of it is left.

Rule: the smallest limit counts: that of the host, and those of the control groups that this process is in. What cannot
be read is no limit.
"""

from __future__ import annotations

import os
from typing import Iterator, List, NamedTuple, Optional, Union

CGROUP_ROOT = "/sys/fs/cgroup"
OWN_CGROUPS = "/proc/self/cgroup"

PathText = Union[str, "os.PathLike[str]"]  # `pathlib` takes a noticeable part of the start of a small program


def memory_limit_bytes(root: PathText = CGROUP_ROOT, own: PathText = OWN_CGROUPS) -> Optional[int]:
    """The limit of this process's memory in bytes; None if there is none.

    Parameters:
        root: where the control groups are mounted.
        own: a file with those of this process, as in cgroups(7).
    """
    limits = [*(group.limit_bytes for group in _limited_groups(root, own)), *_host_memory()]
    return min(limits, default=None)


def room_in_groups_bytes(root: PathText = CGROUP_ROOT, own: PathText = OWN_CGROUPS) -> Optional[int]:
    """What the programs of this process's groups may use more than they do; None if no group has a limit.

    Pages of files that were not used lately are room: the system takes them back first.

    Parameters:
        root, own: see `memory_limit_bytes`.
    """
    rooms = map(_room_in, _limited_groups(root, own))
    return min((room for room in rooms if room is not None), default=None)


class _Group(NamedTuple):
    """A control group with a limit, and the names that its version has for what it uses."""

    directory: str
    limit_bytes: int
    usage: str
    reclaimable: bytes


_VERSION_2 = ("memory.max", "memory.current", b"inactive_file")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file")


def _room_in(group: _Group) -> Optional[int]:
    try:
        with open(os.path.join(group.directory, group.usage), "rb") as file:
            used = int(file.read())
        with open(os.path.join(group.directory, "memory.stat"), "rb") as file:
            lines = [line.split() for line in file]
    except (OSError, ValueError):
        return None
    used -= sum(int(line[1]) for line in lines if len(line) == 2 and line[0] == group.reclaimable)
    return max(0, group.limit_bytes - max(0, used))


def _host_memory() -> Iterator[int]:
    try:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        pass


def _limited_groups(root: PathText, own: PathText) -> Iterator[_Group]:
    """This process's groups and those around them, as far as they have limits; version 2's, or memory groups of 1."""
    try:
        with open(own, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _limits_along(root, path, *_VERSION_2)
        elif "memory" in controllers.split(","):
            yield from _limits_along(os.path.join(root, "memory"), path, *_VERSION_1)


def _limits_along(root: PathText, path: str, name: str, usage: str, reclaimable: bytes) -> Iterator[_Group]:
    parts: List[str] = [part for part in path.split("/") if part]
    for depth in range(len(parts), -1, -1):
        directory = os.path.join(root, *parts[:depth])
        try:
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                text = file.read().strip()
        except OSError:
            continue  # in a container, the outer groups are not visible
        if text.isdigit():  # otherwise "max"
            yield _Group(directory, int(text), usage, reclaimable)
