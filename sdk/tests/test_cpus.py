"""How many CPUs a process may use, by its affinity and by the quotas of made-up trees of cgroups."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Dict

import pytest

from scaler import Cluster, SchedulerClusterCombo, cpus
from scaler.cpus import default_slots, usable_cpus
from scaler.programs.scaler_options import DEV
from scaler.worker.worker_options import read_options

MANY = 64

V2 = "29 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "33 25 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:11 - cgroup cgroup rw,cpu,cpuacct\n"
V1_MEMORY = "34 25 0:31 / /sys/fs/cgroup/memory rw,nosuid shared:12 - cgroup cgroup rw,memory\n"


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "_scheduled_cpus", lambda: MANY)


def tree(folder: Path, cgroup: str, mounts: str, files: Dict[str, str]) -> str:
    """A root directory with what the kernel would show there."""
    for name, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", MANY), ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("6500000 100000", MANY)],
)
def test_a_quota_of_version_2_limits_the_cpus_and_is_rounded_up(tmp_path: Path, quota: str, expected: int) -> None:
    files = {"sys/fs/cgroup/app/cpu.max": quota + "\n"}
    assert usable_cpus(tree(tmp_path, "0::/app\n", V2.format(root="/"), files)) == expected


def test_the_smallest_quota_of_all_ancestors_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/a/b/c/cpu.max": "max 100000\n",
        "sys/fs/cgroup/a/b/cpu.max": "800000 100000\n",
        "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
        "sys/fs/cgroup/a/b/other/cpu.max": "100000 100000\n",
    }
    assert usable_cpus(tree(tmp_path, "0::/a/b/c\n", V2.format(root="/"), files)) == 3


def test_in_a_container_with_a_namespace_the_root_has_the_quota(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "250000 100000\n"}
    assert usable_cpus(tree(tmp_path, "0::/\n", V2.format(root="/"), files)) == 3


@pytest.mark.parametrize("mounted", ["/docker/4711", "/", "/../.."])
def test_in_a_container_without_a_namespace_the_mounted_cgroup_has_the_quota(tmp_path: Path, mounted: str) -> None:
    files = {"sys/fs/cgroup/cpu.max": "250000 100000\n"}
    assert usable_cpus(tree(tmp_path, "0::/docker/4711\n", V2.format(root=mounted), files)) == 3


@pytest.mark.parametrize(("quota", "expected"), [("-1", MANY), ("350000", 4), ("20000", 1)])
def test_a_quota_of_version_1_limits_the_cpus(tmp_path: Path, quota: str, expected: int) -> None:
    files = {
        "sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us": quota + "\n",
        "sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us": "100000\n",
    }
    cgroup = "12:memory:/elsewhere\n4:cpu,cpuacct:/jobs\n0::/unified\n"
    assert usable_cpus(tree(tmp_path, cgroup, V1_MEMORY + V1.format(root="/"), files)) == expected


@pytest.mark.parametrize("quota", ["", "nonsense", "100000", "100000 0", "\udcff"])
def test_a_quota_that_cannot_be_read_limits_nothing(tmp_path: Path, quota: str) -> None:
    root = tree(tmp_path, "0::/app\n", V2.format(root="/"), {})
    (tmp_path / "sys/fs/cgroup/app").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/app/cpu.max").write_text(quota, errors="surrogateescape")
    assert usable_cpus(root) == MANY


def test_without_cgroups_nothing_is_limited(tmp_path: Path) -> None:
    assert usable_cpus(str(tmp_path)) == MANY
    assert usable_cpus(tree(tmp_path, "broken\n", "broken\n - cgroup2\n", {})) == MANY


def test_a_path_with_a_blank_is_found(tmp_path: Path) -> None:
    mounts = "29 23 0:26 / /my\\040cgroups rw - cgroup2 cgroup2 rw\n"
    assert usable_cpus(tree(tmp_path, "0::/a b\n", mounts, {"my cgroups/a b/cpu.max": "100000 100000\n"})) == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity of processes")
def test_the_affinity_of_the_process_limits_the_cpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert usable_cpus(str(tmp_path)) == 1 == default_slots()
    finally:
        os.sched_setaffinity(0, allowed)


def test_every_way_to_start_workers_has_the_same_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "usable_cpus", lambda: 24)
    address = "tcp://127.0.0.1:1"
    assert read_options([address]).num_of_workers == 23
    assert DEV.read([]).num_of_workers == 23
    assert "23 slots" in repr(Cluster(address)) and "23" in Cluster(address)._command
    assert inspect.signature(SchedulerClusterCombo).parameters["n_workers"].default is None


@pytest.mark.parametrize(("cpu_count", "slots"), [(1, 1), (2, 1), (3, 2), (64, 63)])
def test_one_cpu_is_left_for_everything_else(monkeypatch: pytest.MonkeyPatch, cpu_count: int, slots: int) -> None:
    monkeypatch.setattr(cpus, "_scheduled_cpus", lambda: cpu_count)
    monkeypatch.setattr(cpus, "_quota", lambda root: None)
    assert default_slots() == slots


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "2", "SLURM_TASKS_PER_NODE": "4"}, 8),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_STEP_TASKS_PER_NODE": "1"}, 8),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2),1"}, 2),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_STEP_TASKS_PER_NODE": "1,12(x40)"}, 1),
        ({"SLURM_CPUS_ON_NODE": "200"}, MANY),
        ({"SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_CPUS_PER_NODE": "2(x3)"}, MANY),
        ({"SLURM_CPUS_ON_NODE": "many"}, MANY),
        ({"SLURM_CPUS_ON_NODE": "0"}, 1),
    ],
    ids=["job script", "step", "four tasks a node", "nodes that differ", "more", "salloc", "malformed", "none"],
)
def test_what_slurm_has_allocated_limits_the_cpus_and_tasks_of_a_step_share_it(
    variables: Dict[str, str], expected: int, tmp_path: Path
) -> None:
    assert usable_cpus(str(tmp_path), variables) == expected


def test_a_job_of_slurm_says_how_many_slots_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "6")
    assert read_options(["tcp://127.0.0.1:1"]).num_of_workers == 5
