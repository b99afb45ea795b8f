"""The number of CPUs that this process may use, and the default number of slots of a worker.

    the smallest of    the CPUs of the system         os.cpu_count, -X cpu_count, PYTHON_CPU_COUNT
                       the affinity of this process   taskset, cpuset
                       the quotas of its cgroups      docker --cpus, Kubernetes limits, systemd CPUQuota=
                       the allocation of its job      Slurm: SLURM_CPUS_ON_NODE

Rules:
- Every program and class that starts workers uses `default_slots`, so that all start the same number.
- A quota applies to a cgroup and all below it: the quotas of every ancestor count, and the smallest wins. It is rounded
  up, because a slot that is sometimes throttled does more than a CPU that is never used.
- Slurm need not enforce what it allocates, so its variables count, too. The CPUs of a step on a node are for all of its
  tasks there: each has a share. `salloc` sets other variables, since its shell runs outside of the allocation.
- A limit that cannot be read is ignored.
"""

from __future__ import annotations

import os
import re
from math import ceil
from typing import Iterator, List, Mapping, NamedTuple, Optional

SLURM_CPUS = "SLURM_CPUS_ON_NODE"
SLURM_TASKS = "SLURM_STEP_TASKS_PER_NODE"
"""Of a step: the numbers of tasks on its nodes, such as `4(x2),1`. A job script has no such variable."""

_QUOTA_FILES = {"cgroup2": ("cpu.max",), "cgroup": ("cpu.cfs_quota_us", "cpu.cfs_period_us")}


class _Mount(NamedTuple):
    """The mount point of a cgroup hierarchy.

    Parameters:
        kind: "cgroup2", or "cgroup" for the version 1 hierarchy of the CPU controller.
        root: the cgroup that the directory shows: in a container it may be the container's own.
    """

    kind: str
    root: str
    directory: str


def default_slots() -> int:
    """The default number of slots of a worker: one fewer than there are usable CPUs, at least 1."""
    return max(1, usable_cpus() - 1)


def usable_cpus(root: str = "/", environment: Mapping[str, str] = os.environ) -> int:
    """The number of CPUs that this process may use at once; at least 1.

    Parameters:
        root: the root of /proc and the cgroups.
        environment: has the variables of a Slurm job, in one.
    """
    limits = [_scheduled_cpus()]
    quota = _quota(root)
    if quota is not None:
        limits.append(ceil(quota))
    allocated = _allocated(environment)
    if allocated is not None:
        limits.append(allocated)
    return max(1, min(limits))


def _allocated(environment: Mapping[str, str]) -> Optional[int]:
    """The number of CPUs that Slurm has allocated to this process; None outside of a job."""
    on_node = environment.get(SLURM_CPUS, "")
    if not re.fullmatch("[0-9]{1,6}", on_node, re.ASCII):
        return None
    tasks = [int(each) for each in re.findall(r"(?:^|,)([0-9]{1,6})", environment.get(SLURM_TASKS, ""))]
    return int(on_node) // max(1, *tasks, 1)


def _scheduled_cpus() -> int:
    if hasattr(os, "process_cpu_count"):  # since Python 3.13: the affinity, unless the user has set another number
        return os.process_cpu_count() or 1
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def _quota(root: str) -> Optional[float]:
    """The number of CPUs that the cgroups of this process allow; None without a limit."""
    found = []
    for mount in _mounts(root):
        path = _cgroup_path(root, mount)
        while path is not None:
            quota = _quota_in(os.path.join(mount.directory, path), mount.kind)
            if quota is not None:
                found.append(quota)
            path = os.path.dirname(path) if path else None
    return min(found) if found else None


def _mounts(root: str) -> Iterator[_Mount]:
    for line in _lines(os.path.join(root, "proc/self/mountinfo")):
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        if len(fields) < 5 or len(described) < 3:
            continue
        kind, options = described[0], described[2].split(",")
        if kind == "cgroup2" or (kind == "cgroup" and "cpu" in options):
            yield _Mount(kind, _unescaped(fields[3]), os.path.join(root, _unescaped(fields[4]).lstrip("/")))


def _cgroup_path(root: str, mount: _Mount) -> Optional[str]:
    """The cgroup of this process, below the directory of a mount; None if it has none there."""
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if mount.kind == "cgroup2" and (number, controllers) != ("0", ""):
            continue
        if mount.kind == "cgroup" and "cpu" not in controllers.split(","):
            continue
        below = os.path.relpath(path, mount.root)
        # In a container without a cgroup namespace the path is the host's: only the mounted cgroup can be read.
        return "" if below == "." or below.startswith("..") else below
    return None


def _quota_in(directory: str, kind: str) -> Optional[float]:
    """The number of CPUs that one cgroup allows: its quota in microseconds per period."""
    words: List[str] = []
    for name in _QUOTA_FILES[kind]:
        for line in _lines(os.path.join(directory, name)):
            words += line.split()
    try:
        quota, period = float(words[0]), float(words[1])  # "max" and -1 mean no limit
        return quota / period if quota > 0 and period > 0 else None
    except (IndexError, ValueError):
        return None


def _lines(path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read().splitlines()
    except OSError:
        return []


def _unescaped(path: str) -> str:
    """Decode a path of mountinfo, in which blanks and other characters are octal escapes."""
    for code in (" ", "\t", "\n", "\\"):
        path = path.replace(f"\\{ord(code):03o}", code)
    return path
