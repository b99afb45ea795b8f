"""Who shares a directory of object files."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaler_protocol.host import system
from scaler_protocol.host.segments import ObjectDirectory, shares_directory


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
