"""The folders above a file of keys: in which of them another user could put another file in its place."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List

import pytest
from other_user import OTHER_USER_ID, needs_root

from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys import private_files
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.private_files import read_private, read_trusted

pytestmark = pytest.mark.exhaustive_on_pypy  # files are the same there

READERS: List[Callable[[str], str]] = [read_private, lambda path: read_trusted(path, 1000)]
USERS_GROUP = 4711


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Which has a file of keys in a folder of its own."""
    made = tmp_path / "shared"
    (made / "own").mkdir(parents=True)
    (made / "own").chmod(0o700)
    (made / "own" / "a.key").write_text("secret")
    (made / "own" / "a.key").chmod(0o600)
    monkeypatch.setenv("HOME", "/nowhere")
    return made


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("mode, mended", [(0o775, "g-w"), (0o777, "go-w"), (0o757, "o-w")])
def test_a_folder_that_others_can_write_is_refused_with_the_command_that_mends_it(
    folder: Path, read: Callable[[str], str], mode: int, mended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_files, "_is_own_group", lambda group: False)
    path = folder / "own" / "a.key"
    folder.chmod(mode)
    with pytest.raises(KeyFileError) as caught:
        read(str(path))
    assert str(caught.value) == (
        f"cannot use {path}: other users can replace what is in the folder {folder} (mode {mode:04o}); run: chmod"
        f" {mended} {folder}"
    )


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777, 0o1775, 0o2755])
def test_a_folder_in_which_only_its_owner_can_replace_a_file_is_used(
    folder: Path, read: Callable[[str], str], mode: int
) -> None:
    folder.chmod(mode)
    assert read(str(folder / "own" / "a.key")) == "secret"


@needs_root
@pytest.mark.parametrize("read", READERS)
def test_a_folder_of_another_user_is_refused(folder: Path, read: Callable[[str], str]) -> None:
    os.chown(folder, OTHER_USER_ID, OTHER_USER_ID)
    with pytest.raises(KeyFileError, match=f"{folder} belongs to the user with the id {OTHER_USER_ID}.*of your own"):
        read(str(folder / "own" / "a.key"))


@needs_root
def test_in_a_user_namespace_a_folder_of_a_user_that_it_does_not_know_is_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, folders of the host's root belong to that user, too."""
    os.chown(folder, OTHER_USER_ID, OTHER_USER_ID)
    monkeypatch.setattr(private_files, "user_of_others", lambda: OTHER_USER_ID)
    assert read_private(str(folder / "own" / "a.key")) == "secret"


def test_the_home_is_the_last_folder_that_is_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(0o757)
    monkeypatch.setenv("HOME", str(folder / "own"))
    assert read_private(str(folder / "own" / "a.key")) == "secret"
    monkeypatch.setenv("HOME", str(folder))
    with pytest.raises(KeyFileError, match="chmod o-w"):
        read_private(str(folder / "own" / "a.key"))


def test_the_folders_are_those_of_the_file_that_a_link_leads_to(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.key"
    link.symlink_to(folder / "own" / "a.key")
    assert read_private(str(link)) == "secret"
    folder.chmod(0o757)
    with pytest.raises(KeyFileError, match="chmod o-w"):
        read_private(str(link))


@pytest.mark.parametrize(
    "name, members, is_own",
    [
        ("me", [], True),
        ("me", ["me"], True),
        ("me", ["me", "bob"], False),
        ("users", [], False),
        ("users", ["me"], False),
    ],
)
def test_a_private_group_of_the_user_is_no_other_user(
    name: str, members: List[str], is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    users: Any = SimpleNamespace(pw_name="me")
    group: Any = SimpleNamespace(gr_name=name, gr_mem=members)
    monkeypatch.setattr(pwd, "getpwuid", lambda user: users)
    monkeypatch.setattr(grp, "getgrgid", lambda number: group)
    assert private_files._is_own_group(USERS_GROUP) is is_own
    assert private_files._is_own_group(0), "root's"


def test_a_user_or_group_without_a_name_has_no_private_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(number: int) -> Any:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", missing)
    assert not private_files._is_own_group(USERS_GROUP)


def test_a_scheduler_makes_all_folders_of_its_keys_private(folder: Path) -> None:
    """Also with a umask that lets a group write, as where each user has a group of its own."""
    before = os.umask(0o002)
    try:
        KeyDirectory(str(folder / "configuration" / "scaler" / "keys")).open_or_create(load_sodium())
    finally:
        os.umask(before)
    for made in (folder / "configuration", folder / "configuration" / "scaler"):
        assert made.stat().st_mode & 0o777 == 0o700
