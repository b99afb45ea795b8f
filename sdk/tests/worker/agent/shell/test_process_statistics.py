"""Figures about processes, from the system the tests run on."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import psutil
import pytest

from scaler.worker import resident_memory
from scaler.worker.agent.shell import process_statistics
from scaler.worker.agent.shell.process_statistics import ProcessStatistics, free_memory_bytes


def test_a_busy_process_has_used_its_cpu() -> None:
    statistics = ProcessStatistics()
    assert statistics.usage(os.getpid(), 0.0).cpu_permille == 0
    started = time.process_time()
    while time.process_time() - started < 0.1:
        pass

    usage = statistics.usage(os.getpid(), 1.0)
    assert 50 <= usage.cpu_permille <= 1000
    assert usage.resident_bytes > 1 << 20


def test_a_process_that_is_gone_has_no_figures() -> None:
    process_id = os.fork()
    if process_id == 0:
        os._exit(0)
    os.waitpid(process_id, 0)
    statistics = ProcessStatistics()
    statistics.usage(process_id, 0.0)

    assert statistics.usage(process_id, 1.0) == (0, 0)
    statistics.keep_only([])
    assert statistics.usage(process_id, 2.0) == (0, 0)


def test_memory_is_what_the_system_says() -> None:
    assert free_memory_bytes() > 1 << 20
    before = resident_memory.resident_bytes()
    resettable = resident_memory.reset_peak()
    # Not an object of Python's: the C library may have room for that in memory that is resident already.
    pages = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.write(bytes(64 << 20))

    assert resident_memory.resident_bytes() - before > 60 << 20
    assert resident_memory.private_bytes(os.getpid()) > 60 << 20
    pages.close()
    if resettable:
        assert resident_memory.peak_bytes() - before > 60 << 20
    assert resident_memory.resident_bytes(2**22 + 1) == 0
    assert resident_memory.private_bytes(2**22 + 1) == 0


def test_the_free_memory_is_that_of_a_container_if_that_has_less_than_its_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_statistics, "_free_memory_of_host", lambda: 5000)
    rooms = iter((None, 6000, 700, 0))
    monkeypatch.setattr(process_statistics, "room_in_groups_bytes", lambda: next(rooms))
    assert [free_memory_bytes() for _ in range(4)] == [5000, 5000, 700, 1], "0 would say that it is not known"


def test_a_process_that_the_system_does_not_show_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no /proc, psutil may be refused; that must not keep a heartbeat from being sent."""

    def refuse(process_id: int) -> None:
        raise psutil.AccessDenied(process_id)

    monkeypatch.setattr(resident_memory, "HAS_PROC", False)
    assert ProcessStatistics().usage(os.getpid(), 0.0).resident_bytes > 1 << 20
    monkeypatch.setattr(psutil, "Process", refuse)
    statistics = ProcessStatistics()
    statistics.usage(os.getpid(), 0.0)
    assert statistics.usage(os.getpid(), 1.0) == (0, 0)


def test_each_process_that_was_ended_for_lack_of_memory_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([349, 349, 351, 351, 351, 352])
    monkeypatch.setattr(resident_memory, "_memory_kills", lambda: next(counts))
    kills = resident_memory.MemoryKills()
    assert [kills.is_another() for _ in range(5)] == [False, True, True, False, True]


def test_those_of_others_are_not_taken_for_ours_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([0, 5, 5, 5, 6, 6])
    monkeypatch.setattr(resident_memory, "_memory_kills", lambda: next(counts))
    kills = resident_memory.MemoryKills()
    kills.refresh()
    assert kills.is_another(), "one of the last five, perhaps"
    kills.refresh()
    assert [kills.is_another() for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "content, count", [("nr_free_pages 12\noom_kill 349\ndrop_slab 0\n", 349), ("nr_free_pages 12\n", 0), ("", 0)]
)
def test_they_are_counted_where_linux_does(tmp_path: Path, content: str, count: int) -> None:
    statistics = tmp_path / "vmstat"
    assert resident_memory._memory_kills(str(statistics)) == 0
    statistics.write_text(content)
    assert resident_memory._memory_kills(str(statistics)) == count
