"""Who shares a directory of object files."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Iterator, List

import pytest
from other_user import OTHER_USER_ID, needs_root

from scaler_protocol.host import segments, system
from scaler_protocol.host.segments import (
    SPILL_NAME,
    TOKEN_NAME,
    Neighbours,
    ObjectDirectory,
    is_lock_abandoned,
    map_object,
    shares_directory,
    write_chunk,
)
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


def test_a_directory_that_another_program_removes_is_made_again(tmp_path: Path) -> None:
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    directory = ObjectDirectory(str(tmp_path / "memory"))
    try:
        spill = directory.open_spill(str(tmp_path / "disk"))
        assert not directory.restore()
        shutil.rmtree(directory.path)
        assert directory.restore() and not directory.restore()
        shutil.rmtree(spill.path)
        assert directory.restore() and not directory.restore()
        assert shares_directory(directory.path, directory.token)
        assert os.path.samefile(os.path.join(directory.path, SPILL_NAME), spill.path)
        assert not is_lock_abandoned(os.path.join(directory.path, TOKEN_NAME))
    finally:
        directory.remove()
    assert not directory.restore(), "its owner has removed it"
    assert os.listdir(tmp_path / "memory") == os.listdir(tmp_path / "disk") == []


def is_locked(path: str) -> bool:
    """Whether an open file shares the lock of a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def test_a_directory_is_locked_until_it_is_removed_also_when_it_is_made_again(tmp_path: Path) -> None:
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    directory = ObjectDirectory(str(tmp_path / "memory"))
    on_disk = directory.open_spill(str(tmp_path / "disk"))
    assert is_locked(directory.path) and is_locked(on_disk.path)
    shutil.rmtree(on_disk.path)
    assert directory.restore()
    assert is_locked(directory.path) and is_locked(on_disk.path)
    directory.after_fork_in_child()
    assert not is_locked(directory.path) and not is_locked(on_disk.path)
    directory.remove()


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="no systemd-tmpfiles here (Debian: systemd)")
def test_what_cleans_temporary_directories_keeps_objects_until_their_owner_has_ended(tmp_path: Path) -> None:
    rules = tmp_path / "rules.conf"
    rules.write_text(f"d {tmp_path}/tmp 0700 - - 0\n")  # all is old enough to be removed
    (tmp_path / "tmp").mkdir()
    directory = ObjectDirectory(str(tmp_path / "tmp"))
    path = Path(directory.object_path(1))
    path.write_bytes(b"content")
    for is_owned in (True, False):
        subprocess.run(["systemd-tmpfiles", "--clean", str(rules)], check=True)
        assert path.exists() is is_owned
        directory.after_fork_in_child()  # as if its process had ended
    directory.remove()


def test_a_directory_whose_name_another_user_has_taken_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = ObjectDirectory(str(tmp_path))
    try:
        shutil.rmtree(directory.path)
        os.mkdir(directory.path)
        other_user = system.user_id() + 1
        monkeypatch.setattr(system, "user_id", lambda: other_user)
        with pytest.raises(FileExistsError):
            directory.restore()
        assert os.listdir(directory.path) == []
    finally:
        directory.remove()


def test_only_the_first_chunk_makes_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "object")
    with pytest.raises(FileNotFoundError):
        write_chunk(path, 2, b"rest", is_first=False)
    write_chunk(path, 0, b"a ")
    write_chunk(path, 2, b"rest", is_first=False)
    assert Path(path).read_bytes() == b"a rest"


class Pair:
    """Two directories of one user, and who looks for files from the second one."""

    def __init__(self, parent: Path) -> None:
        self.first, self.second = ObjectDirectory(str(parent)), ObjectDirectory(str(parent))
        self.file, self.copy = Path(self.first.path, "name"), Path(self.second.path, "name")
        self.neighbours = Neighbours(self.second.path)

    def link(self, size: int = 7) -> bool:
        return self.neighbours.link("name", size)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.first.remove()
    made.second.remove()


def test_a_file_of_another_directory_of_this_user_gets_a_name_here(pair: Pair) -> None:
    assert not pair.link()
    pair.file.write_bytes(b"content")
    assert pair.link() and pair.copy.samefile(pair.file)
    pair.first.remove()
    assert pair.copy.read_bytes() == b"content", "it is there until both are removed"
    assert not pair.link(), "it is no file of another directory"


def test_a_file_of_another_size_is_no_copy(pair: Pair) -> None:
    pair.file.write_bytes(b"content")
    assert not pair.link(size=8) and not pair.copy.exists()


def test_a_file_that_is_here_stays(pair: Pair) -> None:
    pair.file.write_bytes(b"content")
    pair.copy.write_bytes(b"ours")
    assert not pair.link() and pair.copy.read_bytes() == b"ours"


def test_what_another_owner_has_on_disk_is_no_copy(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.first.open_spill(str(tmp_path))
    link_to_disk(str(pair.file))
    pair.file.write_bytes(b"content")
    assert pair.file.is_symlink()
    assert not pair.link() and not os.path.lexists(pair.copy)

    def link_what_has_just_been_moved(source: str, target: str) -> None:
        os.symlink(os.readlink(pair.file), target)

    monkeypatch.setattr(segments, "_is_file", lambda path, size: path == str(pair.file))
    monkeypatch.setattr(os, "link", link_what_has_just_been_moved)
    assert not pair.link() and not os.path.lexists(pair.copy)


def test_what_others_could_have_put_there_is_not_taken(pair: Pair, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "name").write_bytes(b"content")
    (tmp_path / f"scaler-{system.user_id()}-link").symlink_to(outside)
    assert not pair.link(), "behind a link, it may be anywhere"
    (tmp_path / f"scaler-{system.user_id() + 1}-of-another-user").mkdir()
    (tmp_path / f"scaler-{system.user_id() + 1}-of-another-user" / "name").write_bytes(b"content")
    assert not pair.link()


@needs_root
def test_a_directory_of_another_user_with_our_name_is_not_used(pair: Pair) -> None:
    pair.file.write_bytes(b"content")
    os.chown(pair.first.path, OTHER_USER_ID, OTHER_USER_ID)
    assert not pair.link()


def test_directories_that_come_and_go_are_noticed_and_others_are_not_listed_again(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: List[str] = []
    names_in_parts = segments.names_in_parts

    def list_names(path: str) -> Iterator[List[str]]:
        listed.append(path)
        return names_in_parts(path)

    monkeypatch.setattr(segments, "names_in_parts", list_names)
    settled = 1_000_000_000
    os.utime(tmp_path, ns=(settled, settled))
    assert not pair.link() and not pair.link() and listed == [str(tmp_path)]
    third = ObjectDirectory(str(tmp_path))
    Path(third.path, "name").write_bytes(b"content")
    listed.clear()
    assert pair.link() and listed == [str(tmp_path)]
    pair.copy.unlink()
    third.remove()
    assert not pair.link()
