"""Files at names that another user may have prepared in a shared folder."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import threading
from pathlib import Path
from typing import Callable, Dict

import pytest
from other_user import OTHER_USER_ID, needs_root, run_as_other_user

from scaler_protocol.host.output_files import append_output, create_output, write_at_once
from scaler_protocol.programs.logging_setup import setup_logging


def write_new(path: str) -> None:
    write_at_once(path, "line\n")


def write_to(open_one: Callable[[str], int]) -> Callable[[str], None]:
    def write(path: str) -> None:
        descriptor = open_one(path)
        try:
            os.write(descriptor, b"line\n")
        finally:
            os.close(descriptor)

    return write


WRITERS: Dict[str, Callable[[str], None]] = {
    "at once": write_new,
    "created": write_to(create_output),
    "appended": write_to(append_output),
}
REPLACING = [WRITERS["at once"], WRITERS["created"]]
all_writers = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
replacing_writers = pytest.mark.parametrize("write", REPLACING, ids=["at once", "created"])


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder in which all users can make files, as in /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@all_writers
def test_a_new_file_is_made(write: Callable[[str], None], shared: Path) -> None:
    write(str(shared / "name"))

    assert (shared / "name").read_text() == "line\n"
    assert [path.name for path in shared.iterdir()] == ["name"]


@replacing_writers
def test_a_file_of_this_user_is_replaced_and_the_new_one_is_private(write: Callable[[str], None], shared: Path) -> None:
    path = shared / "name"
    path.write_text("a longer text that was there before\n")
    path.chmod(0o666)
    with open(path, encoding="utf-8") as reader:
        write(str(path))
        assert reader.read() == "a longer text that was there before\n"

    assert path.read_text() == "line\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@replacing_writers
def test_a_link_is_replaced_and_the_file_that_it_leads_to_stays(write: Callable[[str], None], shared: Path) -> None:
    precious = shared / "precious"
    for content in ("kept", None):
        if content is None:
            precious.unlink()
        else:
            precious.write_text(content)
        path = shared / f"name-{content}"
        path.symlink_to(precious)
        write(str(path))
        assert path.read_text() == "line\n" and not path.is_symlink()
        assert (precious.read_text() if precious.exists() else None) == content


def test_a_log_is_continued_also_behind_a_link_of_this_user(shared: Path) -> None:
    (shared / "link").symlink_to(shared / "log")
    for _ in range(2):
        WRITERS["appended"](str(shared / "link"))
        WRITERS["appended"](str(shared / "log"))

    assert (shared / "log").read_text() == "line\n" * 4
    assert (shared / "link").is_symlink()


@all_writers
def test_a_pipe_and_a_device_of_this_user_are_written_to(write: Callable[[str], None], shared: Path) -> None:
    path = shared / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=write, args=[str(path)])
    writer.start()
    assert path.read_text() == "line\n"
    writer.join()
    assert stat.S_ISFIFO(path.stat().st_mode)

    reading, writing = os.pipe()
    write(f"/dev/fd/{writing}")
    os.close(writing)
    with open(reading, encoding="utf-8") as reader:
        assert reader.read() == "line\n"

    write(os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@needs_root
@all_writers
def test_a_link_of_another_user_is_not_followed(write: Callable[[str], None], shared: Path) -> None:
    precious = shared / "precious"
    precious.write_text("kept")
    path = shared / "name"
    path.symlink_to(precious)
    os.lchown(path, OTHER_USER_ID, OTHER_USER_ID)

    with pytest.raises(PermissionError, match=f"this symbolic link belongs to the user with the id {OTHER_USER_ID}"):
        write(str(path))

    assert precious.read_text() == "kept"


@needs_root
@all_writers
def test_a_pipe_of_another_user_gets_nothing_and_is_not_waited_for(write: Callable[[str], None], shared: Path) -> None:
    path = shared / "name"
    os.mkfifo(path, 0o666)
    os.chown(path, OTHER_USER_ID, OTHER_USER_ID)

    with pytest.raises(PermissionError, match="this pipe belongs to"):
        write(str(path))


@needs_root
@all_writers
def test_nothing_is_written_to_a_file_that_another_user_has_prepared(
    write: Callable[[str], None], shared: Path
) -> None:
    path = shared / "name"
    path.write_text("")
    path.chmod(0o666)
    os.chown(path, OTHER_USER_ID, OTHER_USER_ID)
    with open(path, encoding="utf-8") as prepared:
        if write is WRITERS["appended"]:
            with pytest.raises(PermissionError, match="this file belongs to"):
                write(str(path))
        else:
            write(str(path))  # this user is root, who may replace it
            assert path.stat().st_uid == 0 and path.read_text() == "line\n"
        assert prepared.read() == ""


@needs_root
def test_a_user_who_cannot_remove_what_was_prepared_gets_an_error() -> None:
    code = """
import sys
for write in (lambda path: write_at_once(path, "line"), create_output):
    try:
        write(sys.argv[1])
        print("written")
    except PermissionError:
        print("refused")
"""
    imports = "from scaler_protocol.host.output_files import create_output, write_at_once"
    with tempfile.TemporaryDirectory() as folder:  # the other user cannot reach pytest's
        os.chmod(folder, 0o1777)
        path = Path(folder) / "name"
        path.write_text("root's")

        assert run_as_other_user(imports, code, str(path)).split() == ["refused", "refused"]

        assert path.read_text() == "root's"
        assert os.listdir(folder) == ["name"]


@needs_root
def test_a_log_in_a_folder_of_one_user_may_be_another_users(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first\n")
    os.chown(path, OTHER_USER_ID, OTHER_USER_ID)

    WRITERS["appended"](str(path))

    assert path.read_text() == "first\nline\n"


@needs_root
def test_the_log_of_a_program_does_not_follow_a_link_of_another_user(shared: Path) -> None:
    precious = shared / "precious"
    precious.write_text("kept")
    (shared / "log").symlink_to(precious)
    os.lchown(shared / "log", OTHER_USER_ID, OTHER_USER_ID)
    before = list(logging.getLogger("scaler").handlers)
    try:
        with pytest.raises(PermissionError, match="this symbolic link belongs to"):
            setup_logging([str(shared / "log")], "INFO", None)
    finally:
        logging.getLogger("scaler").handlers = before

    assert precious.read_text() == "kept"
