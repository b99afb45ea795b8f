"""Finding programs of the same user on the same host."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from scaler_protocol.host import discovery
from scaler_protocol.host.discovery import (
    SCHEDULER,
    USER_INTERFACE,
    Announcement,
    DiscoveryError,
    entries,
    find_scheduler,
    keep_announced,
)

ADDRESS = "tcp://127.0.0.1:2345"
MONITOR_ADDRESS = "ipc:///tmp/127.0.0.1_2345_monitor"

ANNOUNCE = """
import sys
from scaler_protocol.host.discovery import Announcement
announcement = Announcement("scheduler", sys.argv[1])
print("announced", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs announce themselves in this test; it is not made yet."""
    path = tmp_path / "run"
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(path))
    monkeypatch.delenv("SCALER_ADDRESS", raising=False)
    return path


@pytest.fixture
def other_program() -> Iterator[Tuple[subprocess.Popen[bytes], str]]:
    """A process that has announced itself as a scheduler, and its address."""
    address = "tcp://127.0.0.1:4711"
    command = [sys.executable, "-c", ANNOUNCE, address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"announced\n"
        yield process, address
        process.kill()


def test_what_is_announced_is_found_until_it_is_closed(folder: Path) -> None:
    with Announcement(SCHEDULER, ADDRESS, monitor_address=MONITOR_ADDRESS):
        found = find_scheduler()
        assert (found.address, found.process_id) == (ADDRESS, os.getpid())
        assert found.details == {"monitor_address": MONITOR_ADDRESS}
    assert entries(SCHEDULER) == []
    assert list(folder.iterdir()) == []


def test_what_others_remove_is_announced_again_until_it_is_closed(folder: Path) -> None:
    timers: List[Tuple[Any, ...]] = []

    def call_later(seconds: float, *call: Any) -> None:
        timers.append(call)

    with Announcement(SCHEDULER, ADDRESS) as announcement:
        keep_announced(announcement, call_later)
        first = find_scheduler()
        shutil.rmtree(folder)
        assert entries(SCHEDULER) == []
        function, *arguments = timers.pop()
        function(*arguments)
        assert find_scheduler() == first
        (file,) = folder.iterdir()
        os.utime(file, (0, 0))
        function, *arguments = timers.pop()
        function(*arguments)
        assert file.stat().st_mtime > 0, "old files are cleaned up"
    function, *arguments = timers.pop()
    function(*arguments)
    assert not timers and not list(folder.iterdir())


def test_other_users_cannot_read_the_folder(folder: Path) -> None:
    before = os.umask(0)
    try:
        with Announcement(SCHEDULER, ADDRESS) as announcement:
            assert folder.stat().st_mode & 0o777 == 0o700
            assert os.stat(announcement.path).st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_of_several_the_newest_is_taken_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with Announcement(SCHEDULER, ADDRESS), caplog.at_level(logging.INFO, "scaler"):
        find_scheduler()
        assert caplog.messages == [f"found the scheduler at {ADDRESS} (process {os.getpid()})"]
        caplog.clear()
        with Announcement(SCHEDULER, "tcp://127.0.0.1:1"), Announcement(SCHEDULER, "tcp://127.0.0.1:2"):
            assert find_scheduler().address == "tcp://127.0.0.1:2"
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "3 schedulers" in record.getMessage() and "tcp://127.0.0.1:2 " in record.getMessage()


def test_a_wall_clock_that_is_set_back_makes_no_older_scheduler_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    with Announcement(SCHEDULER, ADDRESS):
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now - 3600.0)
        with Announcement(SCHEDULER, "tcp://127.0.0.1:1"):
            assert find_scheduler().address == "tcp://127.0.0.1:1"


def test_a_scheduler_of_an_earlier_version_says_by_the_wall_clock_when_it_was_started() -> None:
    with Announcement(SCHEDULER, ADDRESS) as earlier, Announcement(SCHEDULER, "tcp://127.0.0.1:1"):
        path = Path(earlier.path)
        said = json.loads(path.read_bytes())
        del said["started_steady"]
        path.write_text(json.dumps(said))
        assert find_scheduler().address == "tcp://127.0.0.1:1"
        path.write_text(json.dumps({**said, "started": time.time() + 5.0}))
        assert find_scheduler().address == ADDRESS


def test_none_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DiscoveryError, match=r"scaler dev.*SCALER_ADDRESS"):
        find_scheduler()


def test_the_environment_goes_before_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with Announcement(SCHEDULER, ADDRESS):
        monkeypatch.setenv("SCALER_ADDRESS", "tcp://elsewhere:1")
        assert discovery.address_given_or_found() == "tcp://elsewhere:1"
        monkeypatch.delenv("SCALER_ADDRESS")
        assert discovery.address_given_or_found() == ADDRESS


def test_a_killed_program_is_not_found_and_its_file_is_removed(
    folder: Path, other_program: Tuple[subprocess.Popen[bytes], str]
) -> None:
    process, address = other_program
    assert find_scheduler().address == address
    process.kill()
    process.wait()
    assert len(list(folder.iterdir())) == 1
    assert entries(SCHEDULER) == []
    assert list(folder.iterdir()) == []


def test_an_entry_whose_process_id_is_reused_is_ignored(folder: Path) -> None:
    with Announcement(SCHEDULER, ADDRESS) as announcement:
        copy = folder / f"scheduler-{os.getpid()}-1-00000000.json"
        copy.write_bytes(Path(announcement.path).read_bytes())  # with the id of this process, which is alive
        assert len(entries(SCHEDULER)) == 1
        assert not copy.exists()


@pytest.mark.parametrize(
    ("address", "connectable"),
    [
        ("tcp://0.0.0.0:1", "tcp://127.0.0.1:1"),
        ("tcp://*:1", "tcp://127.0.0.1:1"),
        ("tcp://[::]:1", "tcp://127.0.0.1:1"),
        ("tcp://192.0.2.1:1", "tcp://192.0.2.1:1"),
        ("ipc:///tmp/x", "ipc:///tmp/x"),
    ],
)
def test_an_address_is_announced_as_one_to_connect_to(address: str, connectable: str) -> None:
    with Announcement(SCHEDULER, address):
        assert find_scheduler().address == connectable


def test_a_folder_that_others_may_look_into_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    with pytest.raises(DiscoveryError, match=r"others can access it \(mode 0755\).*SCALER_RUN_DIRECTORY"):
        Announcement(SCHEDULER, ADDRESS)
    with pytest.raises(DiscoveryError, match="others can access it"):
        find_scheduler()


def test_a_link_to_a_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DiscoveryError, match="it is not a directory"):
        Announcement(SCHEDULER, ADDRESS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    with pytest.raises(DiscoveryError, match="it belongs to the user with the id 12345"):
        Announcement(SCHEDULER, ADDRESS)
    with pytest.raises(DiscoveryError, match="it belongs to the user"):
        find_scheduler()


def test_what_cannot_be_read_is_passed_over(folder: Path) -> None:
    with Announcement(SCHEDULER, ADDRESS), Announcement(SCHEDULER, ADDRESS) as broken:
        whole = Path(broken.path).read_text()
        too_large = whole.replace(f'"process_id": {os.getpid()}', '"process_id": 1e999')
        no_address = whole.replace(ADDRESS, "somewhere")
        texts = (
            "",
            "{",
            "[]",
            "{}",
            '{"kind": "scheduler", "details": 1}',
            "\x00",
            "[" * 60_000,
            too_large,
            no_address,
        )
        for text in texts:
            Path(broken.path).write_text(text)
            assert len(entries(SCHEDULER)) == 1
        Path(broken.path).write_bytes(b"\xff")
        assert len(entries(SCHEDULER)) == 1


def test_other_files_in_the_folder_are_neither_read_nor_removed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(mode=0o700)
    own_name = "scheduler-4711-1-0123456{}.json".format
    (folder / "package.json").write_text('{"name": "the user\'s own"}')
    (folder / "scheduler-4711.json").write_text("{}")
    (folder / own_name("x")).write_text("{}")
    os.mkfifo(folder / own_name(0))
    (folder / own_name(1)).mkdir()
    (folder / own_name(2)).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("{}")
    before = sorted(folder.iterdir())
    with Announcement(SCHEDULER, ADDRESS):
        assert [entry.address for entry in entries(SCHEDULER)] == [ADDRESS]
    assert sorted(folder.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_neither_used_nor_removed(folder: Path) -> None:
    with Announcement(SCHEDULER, ADDRESS) as announcement:
        os.chown(announcement.path, 12345, -1)
        assert entries(SCHEDULER) == []
        left = folder / "scheduler-4711-1-00000000.json"
        left.write_text("{}")
        os.chown(left, 12345, -1)
        assert entries(SCHEDULER) == [] and left.exists() and os.path.exists(announcement.path)


def test_a_file_that_cannot_be_locked_counts_as_that_of_a_running_program(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Announcement(SCHEDULER, ADDRESS) as announcement:

        def no_locks(*_: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", no_locks)
        assert [entry.address for entry in entries(SCHEDULER)] == [ADDRESS]
        with pytest.raises(OSError, match="locks"):
            Announcement(SCHEDULER, ADDRESS)
        assert list(folder.iterdir()) == [Path(announcement.path)], "nothing is left of the one that failed"


def test_a_program_that_looks_while_another_one_announces_itself_removes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: List[bool] = []
    calls: Dict[str, Callable[..., Any]] = {"open": os.open, "rename": os.rename, "flock": fcntl.flock}

    def looking(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if not looked or looked[-1]:
                looked.append(False)  # what looks calls these, too
                entries(SCHEDULER)
                looked[-1] = True
            return calls[name](*arguments)

        return call

    monkeypatch.setattr(os, "open", looking("open"))
    monkeypatch.setattr(os, "rename", looking("rename"))
    monkeypatch.setattr(fcntl, "flock", looking("flock"))
    with Announcement(SCHEDULER, ADDRESS) as announcement:
        assert len(looked) >= 3 and all(looked)
        assert [Path(announcement.path)] == list(folder.iterdir()) and len(entries(SCHEDULER)) == 1


def test_what_another_host_or_container_announced_is_left_alone() -> None:
    with Announcement(SCHEDULER, ADDRESS) as announcement:
        path = Path(announcement.path)
        path.write_text(json.dumps({**json.loads(path.read_text()), "network": "elsewhere"}))
        assert entries(SCHEDULER) == []
        assert path.exists()


def test_a_program_without_the_runtime_directory_is_found_by_one_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCALER_RUN_DIRECTORY")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "runtime").mkdir(mode=0o700)
    with Announcement(SCHEDULER, ADDRESS) as announcement:
        assert announcement.path.startswith(f"{tmp_path}/scaler-{os.geteuid()}/")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
        assert find_scheduler().address == ADDRESS
        with Announcement(SCHEDULER, "tcp://127.0.0.1:1") as newer:
            assert newer.path.startswith(f"{tmp_path}/runtime/scaler/")
            assert find_scheduler().address == "tcp://127.0.0.1:1"


def test_another_users_runtime_directory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCALER_RUN_DIRECTORY")
    (tmp_path / "runtime").mkdir(mode=0o777)
    (tmp_path / "runtime").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    assert [os.path.basename(folder) for folder in discovery.folders()] == [f"scaler-{os.geteuid()}"]


def test_a_user_interface_is_found_by_what_it_watches() -> None:
    url = "http://127.0.0.1:8080/?token=secret"
    with Announcement(USER_INTERFACE, MONITOR_ADDRESS, url=url):
        assert discovery.link_to(MONITOR_ADDRESS) == url
        assert discovery.link_to("ipc:///tmp/another") == ""
        assert entries(SCHEDULER) == []
    assert discovery.link_to(MONITOR_ADDRESS) == ""


def test_a_program_that_announces_itself_removes_what_killed_ones_left(
    folder: Path, other_program: Tuple[subprocess.Popen[bytes], str]
) -> None:
    process, _ = other_program
    process.kill()
    process.wait()
    unfinished, new = (folder / f"new-scheduler-4711-{number}-00000000.json" for number in (1, 2))
    unfinished.touch()
    os.utime(unfinished, (1, 1))
    new.touch()  # another program is about to lock it
    with Announcement(SCHEDULER, ADDRESS) as announcement:
        assert sorted(folder.iterdir()) == sorted([Path(announcement.path), new])


def test_a_program_that_announces_itself_leaves_running_ones_alone(
    other_program: Tuple[subprocess.Popen[bytes], str],
) -> None:
    _, address = other_program
    with Announcement(SCHEDULER, ADDRESS):
        assert {entry.address for entry in entries(SCHEDULER)} == {address, ADDRESS}
