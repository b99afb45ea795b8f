"""Files of secrets: which are read, and that no other user can read what is written."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from pathlib import Path
from typing import Iterator, List

import pytest
from other_user import OTHER_USER_ID, needs_root, run_as_other_user

from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.private_files import MAXIMUM_KEY_FILE_BYTES, read_private, write_private

pytestmark = pytest.mark.exhaustive_on_pypy  # files are the same there

IMPORTS = """
import sys
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.private_files import read_private
"""
READ = """
try:
    print("read", read_private(sys.argv[1]))
except KeyFileError as error:
    print("refused:", error)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.key"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def with_mode(path: Path, mode: int) -> str:
    path.write_text("secret")
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_of_its_user_alone_is_read(path: Path, mode: int) -> None:
    assert read_private(with_mode(path, mode)) == "secret"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o620, 0o610, 0o602, 0o601, 0o777])
def test_a_file_that_others_can_access_is_refused_with_the_command_that_mends_it(path: Path, mode: int) -> None:
    with pytest.raises(KeyFileError) as caught:
        read_private(with_mode(path, mode))
    assert str(caught.value) == (
        f"cannot use {path}: other users can access it (mode {mode:04o}); run: chmod 600 {path}"
    )


@needs_root
def test_a_file_that_its_group_can_read_is_refused_unless_it_is_root_s(open_folder: Path) -> None:
    path = open_folder / "a.key"
    assert read_private(with_mode(path, 0o640)) == "secret"

    os.chown(path, OTHER_USER_ID, OTHER_USER_ID)
    assert run_as_other_user(IMPORTS, READ, str(path)) == (
        f"refused: cannot use {path}: other users can access it (mode 0640); run: chmod 600 {path}"
    )


@needs_root
def test_a_secret_that_kubernetes_mounts_for_a_group_is_read(open_folder: Path) -> None:
    data = open_folder / "..data"
    data.mkdir()
    data.chmod(0o755)
    with_mode(data / "a.key", 0o440)
    os.chown(data / "a.key", 0, OTHER_USER_ID)
    (open_folder / "a.key").symlink_to("..data/a.key")

    assert run_as_other_user(IMPORTS, READ, str(open_folder / "a.key")) == "read secret"


@needs_root
def test_a_file_of_another_user_is_refused(open_folder: Path) -> None:
    path = open_folder / "a.key"
    os.chown(with_mode(path, 0o600), OTHER_USER_ID, OTHER_USER_ID)

    with pytest.raises(KeyFileError, match=f"it belongs to the user with the id {OTHER_USER_ID}, .* install -m 600"):
        read_private(str(path))
    assert run_as_other_user(IMPORTS, READ, str(path)) == "read secret"


@needs_root
def test_nothing_is_written_where_another_user_could_replace_it(open_folder: Path) -> None:
    """That file would be refused later; and before that, it might be copied to another host."""
    theirs = open_folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, OTHER_USER_ID, OTHER_USER_ID)
    (open_folder / "link").symlink_to(theirs)

    for path in (theirs / "a.key", open_folder / "link" / "a.key"):
        with pytest.raises(KeyFileError, match=f"cannot write {path}: the folder {theirs} belongs to the user with"):
            write_private(str(path), "secret")
    assert list(theirs.iterdir()) == []
    open_to_all = open_folder / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(KeyFileError, match=f"cannot write .* run: chmod o-w {open_to_all}"):
        write_private(str(open_to_all / "a.key"), "secret")
    open_to_all.chmod(0o1777)
    write_private(str(open_to_all / "a.key"), "secret")


@needs_root
def test_a_file_that_may_not_be_opened_is_an_error_that_says_so(open_folder: Path) -> None:
    path = open_folder / "a.key"

    assert run_as_other_user(IMPORTS, READ, with_mode(path, 0o600)) == f"refused: cannot read {path}: Permission denied"


def test_a_symbolic_link_is_followed_when_a_file_is_read(path: Path, tmp_path: Path) -> None:
    with_mode(path, 0o600)
    (tmp_path / "link").symlink_to(path)
    assert read_private(str(tmp_path / "link")) == "secret"

    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="0644"):
        read_private(str(tmp_path / "link"))


def test_a_link_to_itself_is_an_error(path: Path) -> None:
    path.symlink_to(path)

    with pytest.raises(KeyFileError, match=f"cannot read {path}: Too many levels of symbolic links"):
        read_private(str(path))


def test_a_pipe_is_refused_without_waiting_for_its_writer(path: Path) -> None:
    os.mkfifo(path, 0o600)

    with pytest.raises(KeyFileError, match="is not a regular file"):
        read_private(str(path))


@pytest.mark.parametrize("other", ["/dev/zero", "/"])
def test_a_device_or_folder_is_refused(other: str) -> None:
    with pytest.raises(KeyFileError, match="is not a regular file"):
        read_private(other)


def test_a_file_that_is_missing_is_a_case_of_its_own(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_private(str(path))


def test_a_file_of_64_kib_is_read_and_a_larger_one_is_refused(path: Path) -> None:
    path.touch(0o600)
    path.write_text("x" * MAXIMUM_KEY_FILE_BYTES)
    assert len(read_private(str(path))) == MAXIMUM_KEY_FILE_BYTES == 64 << 10

    path.write_text("x" * (MAXIMUM_KEY_FILE_BYTES + 1))
    with pytest.raises(KeyFileError, match="more than 65536 bytes"):
        read_private(str(path))


def test_bytes_that_are_not_text_are_refused_and_not_quoted(path: Path) -> None:
    path.touch(0o600)
    path.write_bytes(b"\xff\x00secret")

    with pytest.raises(KeyFileError, match="not UTF-8 text") as caught:
        read_private(str(path))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_what_is_written_is_private_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_private(str(path), "secret")
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_private(str(path)) == "secret"
    assert os.listdir(path.parent) == [path.name], "the unfinished file is gone"


def test_a_file_is_not_replaced_unless_asked_to(path: Path) -> None:
    write_private(str(path), "first")

    with pytest.raises(FileExistsError):
        write_private(str(path), "second")
    assert read_private(str(path)) == "first"

    write_private(str(path), "second", is_replaced=True)
    assert read_private(str(path)) == "second"
    assert os.listdir(path.parent) == [path.name]


def test_a_symbolic_link_is_never_written_through(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("as it was")
    path.symlink_to(target)

    with pytest.raises(FileExistsError):
        write_private(str(path), "secret")
    write_private(str(path), "secret", is_replaced=True)
    assert not path.is_symlink() and path.read_text() == "secret"
    assert target.read_text() == "as it was"


def test_a_link_to_nothing_is_not_made_a_file(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "target")

    with pytest.raises(FileExistsError):
        write_private(str(path), "secret")
    assert not (tmp_path / "target").exists()


def test_a_folder_that_is_missing_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=f"cannot write {tmp_path}/none/a.key: No such file or directory"):
        write_private(str(tmp_path / "none" / "a.key"), "secret")


def test_a_reader_sees_one_whole_text_or_another_while_a_file_is_replaced(path: Path) -> None:
    texts = {letter * 20_000 for letter in "ab"}
    write_private(str(path), "a" * 20_000)
    seen: List[str] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            seen.append(read_private(str(path)))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        for text in texts:
            write_private(str(path), text, is_replaced=True)
    is_over.set()
    reader.join()
    assert seen and set(seen) <= texts
