"""Who shares a directory of object files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scaler_protocol.host import system
from scaler_protocol.host.segments import ObjectDirectory, map_object, shares_directory
from scaler_protocol.host.spill import link_to_disk


def test_a_directory_is_shared_by_those_who_read_its_token_and_are_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = ObjectDirectory(str(tmp_path))
    other_user = system.user_id() + 1
    try:
        assert shares_directory(directory.path, directory.token)
        assert not shares_directory(directory.path, bytes(16))
        monkeypatch.setattr(system, "user_id", lambda: other_user)  # root can read the token, and write beside it
        assert not shares_directory(directory.path, directory.token)
    finally:
        directory.remove()


def test_directories_given_by_relative_paths_are_found_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("memory", "disk", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    directory = ObjectDirectory("memory")
    try:
        directory.open_spill("disk")
        monkeypatch.chdir("elsewhere")
        assert shares_directory(directory.path, directory.token)
        spilled = directory.object_path(1)
        link_to_disk(spilled)
        with open(spilled, "wb") as file:
            file.write(b"on disk")
        assert bytes(map_object(spilled)) == b"on disk"
    finally:
        directory.remove()
    assert os.listdir(tmp_path / "memory") == os.listdir(tmp_path / "disk") == []
