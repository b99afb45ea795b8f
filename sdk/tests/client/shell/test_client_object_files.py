"""Where a client keeps large arguments that it shares with a scheduler of its host."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Iterator

import pytest

from scaler.client.shell.client_object_files import ClientObjectFiles, FileContent
from scaler.exceptions import ObjectStorageFullError
from scaler.values.code_notes import Parts
from scaler_protocol import messages as m
from scaler_protocol.host import spill
from scaler_protocol.host.segments import ObjectDirectory
from scaler_protocol.host.spill import is_on_disk

LARGE: Parts = [bytes(1 << 20)]


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[ObjectDirectory]:
    """A scheduler's directories, in memory and on disk."""
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    directory = ObjectDirectory(str(tmp_path / "memory"))
    directory.open_spill(str(tmp_path / "disk"))
    yield directory
    directory.remove()


def test_a_disk_that_was_full_when_the_client_began_is_used_once_it_has_room(
    scheduler: ObjectDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, away = tmp_path / "disk", tmp_path / "away"
    files = ClientObjectFiles(
        m.Welcome(session=1, object_directory=scheduler.path, object_directory_token=scheduler.token)
    )
    disk.rename(away)  # so that nothing can be made there
    first = files.store(LARGE, 1)
    assert isinstance(first, FileContent) and not is_on_disk(first.path)

    monkeypatch.setattr(spill, "has_room", lambda directory, size: os.path.realpath(directory).startswith(str(disk)))
    with pytest.raises(ObjectStorageFullError, match="no room"):
        files.store(LARGE, 2)
    away.rename(disk)
    second = files.store(LARGE, 3)

    assert isinstance(second, FileContent) and is_on_disk(second.path)
    assert Path(second.path).read_bytes() == LARGE[0]
    assert files.own is not None
    files.own.remove()


def test_a_client_whose_directory_was_removed_makes_it_again(scheduler: ObjectDirectory) -> None:
    files = ClientObjectFiles(
        m.Welcome(session=1, object_directory=scheduler.path, object_directory_token=scheduler.token)
    )
    files.store(LARGE, 1)
    assert files.own is not None
    shutil.rmtree(files.own.path)

    stored = files.store(LARGE, 2)

    assert isinstance(stored, FileContent) and Path(stored.path).read_bytes() == LARGE[0]
    files.own.remove()
