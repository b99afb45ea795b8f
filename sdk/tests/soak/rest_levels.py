"""What must be back at its level when all work has ended: tasks, objects, descriptors, threads, files.

Rule: levels are compared with those of the first rest; a program that was started again, with its predecessor.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

from soak.live_processes import usage_of
from soak.soaked_cluster import SLOTS, SoakedCluster

from scaler import Client
from scaler_protocol.host.segments import is_lock_abandoned

MORE_DESCRIPTORS = 8
"""A worker opens its lock and private directories when it first needs them, and has one for each spare processor."""
MORE_THREADS = 2
MORE_FILES = 4
MORE_SHARED_FILES = 2 * len(SLOTS)
"""A token and a link in the private directory of each worker that needed one. That of a killed worker is removed by the
next worker that needs one."""
INFO_TIMEOUT_SECONDS = 10.0
NOT_OBJECTS = {"token", "spill", "filler"}


class Levels(NamedTuple):
    """What there is at a rest."""

    tasks: int  # that wait or run, as the scheduler says
    workers: int
    object_files: int
    abandoned_directories: int
    run_files: int
    temporary_files: int
    shared_memory_files: int
    descriptors: Dict[str, int]  # by program
    threads: Dict[str, int]


def read_levels(cluster: SoakedCluster) -> Levels:
    """What there is now. Raises ScalerError if the scheduler does not answer."""
    with Client(cluster.address, connect_timeout_seconds=INFO_TIMEOUT_SECONDS) as client:
        info = client.info(timeout_seconds=INFO_TIMEOUT_SECONDS)
    # After the question: workers that were counted had opened what they need.
    found = {name: usage_of(pid) for name, pid in cluster.long_lived().items()}
    usages = {name: usage for name, usage in found.items() if usage is not None}
    folder = cluster.folder
    homes = [cluster.machine.memory, cluster.machine.disk]
    directories = [path for home in homes for path in home.iterdir() if path.is_dir()]
    return Levels(
        tasks=info.tasks_waiting + info.tasks_running,
        workers=info.worker_count,
        object_files=sum(len(_object_files(directory)) for directory in directories),
        abandoned_directories=sum(is_lock_abandoned(str(directory / "token")) for directory in directories),
        run_files=len(os.listdir(folder / "run")),
        temporary_files=sum(len(files) for _, _, files in os.walk(folder / "temporary")),
        shared_memory_files=_own_files(Path("/dev/shm")) if "namespaces" in cluster.machine.means else 0,
        descriptors={name: usage.descriptors for name, usage in usages.items()},
        threads={name: usage.threads for name, usage in usages.items()},
    )


def _object_files(directory: Path) -> List[str]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [name for name in names if name not in NOT_OBJECTS and not name.endswith("lock")]


def _own_files(directory: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(directory))


def differences(levels: Levels, first: Optional[Levels]) -> List[str]:
    """In which way the levels are not what they should be. The first ones are compared with nothing but zero."""
    found = []
    for name in ("tasks", "object_files", "abandoned_directories"):
        if getattr(levels, name):
            found.append(f"{getattr(levels, name)} {name.replace('_', ' ')} are left")
    if levels.workers != len(SLOTS):
        found.append(f"{levels.workers} workers are connected, not {len(SLOTS)}")
    if first is None:
        return found
    allowed = {"run_files": MORE_FILES, "temporary_files": MORE_FILES, "shared_memory_files": MORE_SHARED_FILES}
    for name, more in allowed.items():
        now, then = getattr(levels, name), getattr(first, name)
        if now > then + more:
            found.append(f"{now} {name.replace('_', ' ')}, {then} at the first rest")
    for what, more in (("descriptors", MORE_DESCRIPTORS), ("threads", MORE_THREADS)):
        before, after = getattr(first, what), getattr(levels, what)
        for program in sorted(after):
            if after[program] > before.get(program, after[program]) + more:
                found.append(f"{program} has {after[program]} {what}, {before[program]} at the first rest")
    return found
