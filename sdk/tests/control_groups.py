"""Control groups whose memory is limited."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sdk_tasks import wait_for

CGROUPS = Path("/sys/fs/cgroup")


def make_group(limit_mib: int) -> Path:
    """A control group whose memory is limited; a test that needs one is skipped where none can be made."""
    for parent, name in ((CGROUPS, "memory.max"), (CGROUPS / "memory", "memory.limit_in_bytes")):
        group = parent / f"scaler-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / name).exists():  # otherwise the parent is no control group, or one without this controller
            (group / name).write_text(str(limit_mib << 20))
            return group
        group.rmdir()
    pytest.skip("control groups cannot be made here")


def remove_group(group: Path) -> None:
    """Once all its processes have ended."""
    wait_for(lambda: not (group / "cgroup.procs").read_text(), "all processes to leave their control group")
    group.rmdir()
