"""The smallest limit of memory counts."""

from __future__ import annotations

import os
from pathlib import Path

from scaler_protocol.host.memory import memory_limit_bytes, room_in_groups_bytes

HOST_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_groups_it_is_the_hosts(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path, tmp_path / "none") == HOST_BYTES


def test_the_group_and_the_groups_around_it_count(tmp_path: Path) -> None:
    write(tmp_path / "own", "0::/system.slice/scaler.service\n")
    write(tmp_path / "system.slice/scaler.service/memory.max", "max\n")
    assert memory_limit_bytes(tmp_path, tmp_path / "own") == HOST_BYTES
    write(tmp_path / "system.slice/memory.max", "1000000\n")
    assert memory_limit_bytes(tmp_path, tmp_path / "own") == 1_000_000
    write(tmp_path / "system.slice/scaler.service/memory.max", "5000\n")
    assert memory_limit_bytes(tmp_path, tmp_path / "own") == 5000


def test_groups_of_version_1(tmp_path: Path) -> None:
    write(tmp_path / "own", "5:cpu,cpuacct:/other\n4:memory:/box\n")
    write(tmp_path / "memory/box/memory.limit_in_bytes", "700000\n")
    write(tmp_path / "other/memory.max", "1\n")
    assert memory_limit_bytes(tmp_path, tmp_path / "own") == 700_000


def test_a_limit_larger_than_the_host_is_none(tmp_path: Path) -> None:
    write(tmp_path / "own", "4:memory:/\n")
    write(tmp_path / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_limit_bytes(tmp_path, tmp_path / "own") == HOST_BYTES


def test_the_group_with_the_least_room_counts_and_pages_of_files_are_room(tmp_path: Path) -> None:
    write(tmp_path / "own", "0::/kubepods/pod1/box\n")
    assert room_in_groups_bytes(tmp_path, tmp_path / "own") is None
    box, pod = tmp_path / "kubepods/pod1/box", tmp_path / "kubepods/pod1"
    write(box / "memory.max", "max\n")
    write(pod / "memory.max", "1000\n")
    assert room_in_groups_bytes(tmp_path, tmp_path / "own") is None, "what it uses is not known"
    write(pod / "memory.current", "900\n")
    write(pod / "memory.stat", "anon 500\ninactive_file 300\nactive_file 100\n")
    assert room_in_groups_bytes(tmp_path, tmp_path / "own") == 400
    write(box / "memory.max", "700\n")
    write(box / "memory.current", "650\n")
    write(box / "memory.stat", "anon 650\ninactive_file 0\n")
    assert room_in_groups_bytes(tmp_path, tmp_path / "own") == 50
    write(box / "memory.current", "800\n")
    assert room_in_groups_bytes(tmp_path, tmp_path / "own") == 0


def test_room_in_groups_of_version_1(tmp_path: Path) -> None:
    write(tmp_path / "own", "4:memory:/slurm/job_7\n")
    write(tmp_path / "memory/slurm/job_7/memory.limit_in_bytes", "700\n")
    write(tmp_path / "memory/slurm/job_7/memory.usage_in_bytes", "300\n")
    write(tmp_path / "memory/slurm/job_7/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n")
    assert room_in_groups_bytes(tmp_path, tmp_path / "own") == 500
