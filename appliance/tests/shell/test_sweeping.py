"""Files without an owner are removed some at a time, while peers are served."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
from scheduler_process import SchedulerProcess
from shell.faulty_system import SimulatedSystem
from shell.test_faults import Played

from scaler_appliance.core.effects import Forget
from scaler_appliance.shell.object_files import ObjectFiles
from scaler_protocol.host import segments
from scaler_protocol.host.segments import (
    TOKEN_NAME,
    ObjectDirectory,
    object_name,
    remove_abandoned,
    shares_directory,
)
from scaler_protocol.host.spill import LOCK_SUFFIX, remove_orphans
from scaler_protocol.session.ids import object_id_of

PART = 10
SIZE = 10 * PART


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "NAMES_OF_A_PART", PART)


def removed_by(directory: Path, steps: Iterator[object]) -> List[int]:
    """How many files each step removes."""
    left = [len(os.listdir(directory))]
    for _ in steps:
        left.append(len(os.listdir(directory)) if directory.exists() else 0)
    return [before - after for before, after in zip(left, left[1:])]


def test_files_of_ended_sessions_are_removed_some_at_a_time(tmp_path: Path) -> None:
    directory = ObjectDirectory(str(tmp_path))
    files, path = ObjectFiles(directory, lambda copied: None), Path(directory.path)
    for number in range(1, SIZE + 1):
        for session in (5, 6):
            (path / object_name(object_id_of(session, number))).touch()
    (path / "new-1-1").touch()
    kept = object_id_of(5, 7)
    removed = removed_by(path, files.remove_of_sessions({5}, lambda object_id: object_id == kept))
    assert sum(removed) == SIZE - 1 and max(removed) <= PART
    others = {object_name(object_id_of(6, number)) for number in range(1, SIZE + 1)}
    assert set(os.listdir(path)) == others | {object_name(kept), "new-1-1", TOKEN_NAME}
    files.close()


def test_a_directory_of_a_killed_peer_is_removed_some_files_at_a_time(tmp_path: Path) -> None:
    abandoned, used = ObjectDirectory(str(tmp_path)), ObjectDirectory(str(tmp_path))
    path = Path(abandoned.path)
    for number in range(SIZE):
        (path / object_name(number)).touch()
        (Path(used.path) / object_name(number)).touch()
    abandoned.after_fork_in_child()  # its lock is free now, as if its owner had been killed
    removed = removed_by(path, remove_abandoned(str(tmp_path)))
    assert sum(removed) == SIZE + 1 and max(removed) <= PART + 1
    assert os.listdir(tmp_path) == [os.path.basename(used.path)] and len(os.listdir(used.path)) == SIZE + 1
    used.remove()


def test_a_directory_that_was_removed_in_part_is_removed_by_the_next_sweep(tmp_path: Path) -> None:
    abandoned = ObjectDirectory(str(tmp_path))
    for number in range(SIZE):
        Path(abandoned.object_path(number)).touch()
    abandoned.after_fork_in_child()
    steps = remove_abandoned(str(tmp_path))
    next(steps)
    assert 0 < len(os.listdir(abandoned.path)) < SIZE
    for _ in remove_abandoned(str(tmp_path)):
        pass
    assert not os.listdir(tmp_path)


def test_half_written_files_of_a_killed_writer_are_removed_some_at_a_time(tmp_path: Path) -> None:
    for number in range(SIZE):
        (tmp_path / f"new-1-{number}").touch()
        (tmp_path / f"new-2-{number}").touch()
    (tmp_path / f"new-1-{LOCK_SUFFIX}").write_bytes(b"held")
    removed = removed_by(tmp_path, remove_orphans(str(tmp_path)))
    assert max(removed) <= PART
    assert sorted(os.listdir(tmp_path)) == sorted(f"new-2-{number}" for number in range(SIZE))


@pytest.mark.parametrize("fails", [False, True])
def test_peers_are_served_between_the_parts_of_a_sweep(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    played = Played(SimulatedSystem(100, 100), monkeypatch)
    server: Any = played.server
    swept: List[Any] = []

    def remove_of_sessions(sessions: Any, is_kept: Any) -> Iterator[None]:
        swept.append(set(sessions))
        yield
        if fails and len(swept) == 1:
            raise OSError(24, "Too many open files")
        yield

    server._files.remove_of_sessions = remove_of_sessions
    server._forget(Forget(b"peer", 5))
    server._on_timer()
    assert swept == [{5}] and played.loop.soon, "the rest comes later"
    server._forget(Forget(b"peer", 6))
    server._on_timer()
    assert swept == [{5}], "one sweep at a time"
    while played.loop.soon:
        played.loop.soon.popleft()()
    server._on_timer()
    assert swept == [{5}, {5, 6} if fails else {6}]


def test_a_scheduler_whose_directory_was_removed_stores_objects_again(start: Callable[..., SchedulerProcess]) -> None:
    scheduler = start()
    welcome = scheduler.client().welcome
    shutil.rmtree(welcome.object_directory)
    scheduler.wait_for_output("another program has removed the directory of objects")
    assert shares_directory(welcome.object_directory, welcome.object_directory_token)
