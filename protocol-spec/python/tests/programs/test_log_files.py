"""Log files of a day, of which several processes may have one."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Iterator, List

import pytest

from scaler_protocol.host import system
from scaler_protocol.programs import log_files
from scaler_protocol.programs.log_files import RotatedLogFile

EVENING = time.mktime((2026, 11, 28, 23, 59, 59, 0, 0, -1))
YESTERDAY = ".2026-11-28"


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = EVENING

    localtime = staticmethod(time.localtime)
    mktime = staticmethod(time.mktime)
    strftime = staticmethod(time.strftime)

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(log_files, "time", clock)
    return clock


class Writers:
    """Processes with one log file: handlers that share only its path."""

    def __init__(self, path: Path, count: int) -> None:
        self._handlers = [RotatedLogFile(str(path)) for _ in range(count)]
        for each in self._handlers:  # which they find, and which is not from before today
            each.rolloverAt = each.computeRollover(int(EVENING))

    def write(self, number: int, text: str) -> None:
        self._handlers[number].emit(logging.makeLogRecord({"msg": text}))

    def close(self) -> None:
        for each in self._handlers:
            each.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def writers(log: Path, clock: Clock) -> Iterator[Writers]:
    writers = Writers(log, 3)
    yield writers
    writers.close()


def lines(path: Path) -> List[str]:
    return path.read_text().splitlines()


def test_at_midnight_the_file_gets_its_date_once_and_no_line_of_any_process_is_lost(
    log: Path, clock: Clock, writers: Writers
) -> None:
    for number in range(3):
        writers.write(number, f"evening {number}")
    clock.now += 1
    for number in (1, 0, 2, 1):
        writers.write(number, f"morning {number}")
    assert lines(log.with_name(log.name + YESTERDAY)) == ["evening 0", "evening 1", "evening 2"]
    assert lines(log) == ["morning 1", "morning 0", "morning 2", "morning 1"]
    clock.now += 24 * 3600
    writers.write(0, "next")
    assert lines(log) == ["next"] and len(lines(log.with_name(log.name + ".2026-11-29"))) == 4


def test_a_process_that_renames_a_file_just_before_another_one_does_is_noticed(
    log: Path, clock: Clock, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers.write(0, "evening")
    clock.now += 1
    locks: List[int] = []
    flock = system.flock

    def other_first(descriptor: int, operation: int) -> None:
        locks.append(descriptor)
        if len(locks) == 1:  # the other one had the lock, and this one waited for it
            writers.write(1, "other")
        flock(descriptor, operation)

    monkeypatch.setattr(system, "flock", other_first)
    writers.write(0, "own")
    assert len(locks) == 2
    assert lines(log.with_name(log.name + YESTERDAY)) == ["evening"] and lines(log) == ["other", "own"]


def test_a_file_that_cannot_be_renamed_gets_the_lines_of_the_next_day_too(
    log: Path, clock: Clock, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: str) -> None:
        raise PermissionError("not in this folder")

    writers.write(0, "evening")
    clock.now += 1
    monkeypatch.setattr(os, "rename", fail)
    for text in ("morning", "noon"):
        writers.write(0, text)
    assert lines(log) == ["evening", "morning", "noon"] and len(list(log.parent.iterdir())) == 1


def test_a_device_is_not_renamed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed: List[str] = []
    monkeypatch.setattr(os, "rename", lambda *names: renamed.extend(names))
    writers = Writers(Path(os.devnull), 1)
    clock.now += 1
    writers.write(0, "nothing")
    writers.close()
    assert renamed == []


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe"])
def test_each_day_ends_at_its_midnight_also_where_clocks_change(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        handler = RotatedLogFile(os.devnull)
        now = int(time.mktime((2018, 1, 1, 12, 0, 0, 0, 0, -1)))
        for _ in range(366):
            day = time.localtime(now).tm_yday
            now = handler.computeRollover(now)
            assert time.localtime(now).tm_yday != day == time.localtime(now - 1).tm_yday
        handler.close()
    finally:
        monkeypatch.undo()
        time.tzset()
