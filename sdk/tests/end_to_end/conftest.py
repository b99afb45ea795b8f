"""What tests of real processes share."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Callable, Iterator, List

import pytest
from sdk_tasks import wait_for

CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def make_group() -> Iterator[Callable[[int], Path]]:
    """Makes a control group with so many MiB of memory. A test is skipped where none can be made."""
    groups: List[Path] = []

    def make(limit_mib: int) -> Path:
        for parent, name in ((CGROUPS, "memory.max"), (CGROUPS / "memory", "memory.limit_in_bytes")):
            group = parent / f"scaler-test-{os.getpid()}"
            try:
                group.mkdir()
            except OSError:
                continue
            if (group / name).exists():  # otherwise the parent is no control group, or one without this controller
                (group / name).write_text(str(limit_mib << 20))
                groups.append(group)
                return group
            group.rmdir()
        pytest.skip("control groups cannot be made here")

    yield make
    for group in groups:
        wait_for(partial(is_empty, group), "all processes to leave their control group")
        group.rmdir()


def is_empty(group: Path) -> bool:
    return not (group / "cgroup.procs").read_text()
