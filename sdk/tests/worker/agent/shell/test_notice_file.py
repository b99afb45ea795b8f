"""A file by which notice is given is not another user's, where all users can make files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scaler.worker.agent.shell.notice_file import is_there

ANOTHER_USER = 54_321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """It is like /tmp: all users can make files in it."""
    os.mkdir(tmp_path / "shared")
    os.chmod(tmp_path / "shared", 0o1777)
    return tmp_path / "shared"


def test_a_file_of_this_user_is_a_notice_wherever_it_is(shared: Path, tmp_path: Path) -> None:
    for file in (shared / "notice", tmp_path / "notice"):
        assert not is_there(str(file))
        file.touch()
        assert is_there(str(file))


def test_where_there_is_no_folder_there_is_no_notice(tmp_path: Path) -> None:
    assert not is_there(str(tmp_path / "none" / "notice"))


@needs_root
@pytest.mark.parametrize("is_link", [False, True], ids=["file", "link"])
def test_a_file_of_another_user_is_no_notice_where_all_can_make_files(shared: Path, is_link: bool) -> None:
    file = shared / "notice"
    file.symlink_to("/etc/hostname") if is_link else file.touch()
    os.chown(file, ANOTHER_USER, -1, follow_symlinks=False)
    with pytest.raises(PermissionError, match=f"user with the id {ANOTHER_USER}, and all users can write to {shared}"):
        is_there(str(file))


@needs_root
def test_a_service_of_another_user_may_give_notice_in_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "notice").touch()
    os.chown(tmp_path / "notice", ANOTHER_USER, -1)
    assert is_there(str(tmp_path / "notice"))
