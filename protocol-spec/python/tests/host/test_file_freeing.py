"""Large files are removed without waiting for the system to free them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Iterator, List

import pytest

from scaler_protocol.host import file_freeing
from scaler_protocol.host.file_freeing import MOST_WAITING, FileFreeing

TIMEOUT_SECONDS = 30.0


class Freed:
    """Files are freed when the test says so.

    Attributes:
        begun: released for each file that the thread has begun with.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self._dup2 = os.dup2
        monkeypatch.setattr(os, "dup2", self._free)

    def _free(self, source: int, target: int) -> int:
        if threading.current_thread() in threads():  # and not pytest
            self.begun.release()
            assert self.may_go_on.wait(TIMEOUT_SECONDS)
        return self._dup2(source, target)


@pytest.fixture(autouse=True)
def _no_thread_is_left_of_earlier_tests() -> None:
    """They were told to end, and nothing waits for that."""
    for thread in threads():
        thread.join(TIMEOUT_SECONDS)


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Freed]:
    monkeypatch.setattr(file_freeing, "LARGE_BYTES", 100)
    freed = Freed(monkeypatch)
    yield freed
    freed.may_go_on.set()


@pytest.fixture
def freeing() -> Iterator[FileFreeing]:
    freeing = FileFreeing()
    yield freeing
    freeing.close()


def file_of(folder: Path, size: int, name: str = "object") -> str:
    path = folder / name
    path.write_bytes(bytes(size))
    return str(path)


def open_files(folder: Path) -> List[str]:
    """The names of this process's open files that are or were in a folder."""
    links = (os.path.join("/proc/self/fd", each) for each in os.listdir("/proc/self/fd"))
    return [os.readlink(each) for each in links if os.path.lexists(each) and str(folder) in os.readlink(each)]


def threads() -> List[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "scaler-free"]


def test_the_name_is_gone_before_the_file_is_freed(tmp_path: Path, freed: Freed, freeing: FileFreeing) -> None:
    path = file_of(tmp_path, 100)
    freeing.remove(path)
    assert freed.begun.acquire(timeout=TIMEOUT_SECONDS)
    assert not os.path.exists(path)
    assert open_files(tmp_path) == [f"{path} (deleted)"]
    freed.may_go_on.set()
    (thread,) = threads()
    freeing.close()
    thread.join(TIMEOUT_SECONDS)
    assert open_files(tmp_path) == []
    assert threads() == []


def test_a_file_on_disk_goes_with_its_link(tmp_path: Path, freed: Freed, freeing: FileFreeing) -> None:
    target = file_of(tmp_path, 100, "on disk")
    link = tmp_path / "link"
    link.symlink_to(target)
    freeing.remove(str(link))
    assert freed.begun.acquire(timeout=TIMEOUT_SECONDS)
    assert list(tmp_path.iterdir()) == []


def test_what_takes_the_place_of_a_file_leaves_it_to_be_freed(
    tmp_path: Path, freed: Freed, freeing: FileFreeing
) -> None:
    path = file_of(tmp_path, 100)
    with freeing.freed_later(path):
        os.rename(file_of(tmp_path, 1, "other"), path)
    assert freed.begun.acquire(timeout=TIMEOUT_SECONDS)
    assert os.path.getsize(path) == 1


def test_a_small_file_is_freed_at_once(tmp_path: Path, freed: Freed, freeing: FileFreeing) -> None:
    freeing.remove(file_of(tmp_path, 99))
    assert (list(tmp_path.iterdir()), open_files(tmp_path), threads()) == ([], [], [])


def test_a_file_that_does_not_exist_is_an_error(tmp_path: Path, freeing: FileFreeing) -> None:
    with pytest.raises(FileNotFoundError):
        freeing.remove(str(tmp_path / "none"))


def test_without_room_for_a_thread_a_file_is_freed_at_once(
    tmp_path: Path, freed: Freed, freeing: FileFreeing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    freeing.remove(file_of(tmp_path, 100))
    assert (list(tmp_path.iterdir()), open_files(tmp_path)) == ([], [])


def test_without_a_descriptor_a_file_is_freed_at_once(
    tmp_path: Path, freed: Freed, freeing: FileFreeing, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path, 100)

    def no_descriptor(*_: object) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_descriptor)
        freeing.remove(path)
    assert (list(tmp_path.iterdir()), threads()) == ([], [])


def test_a_bounded_number_of_files_waits(tmp_path: Path, freed: Freed, freeing: FileFreeing) -> None:
    for number in range(MOST_WAITING + 3):
        freeing.remove(file_of(tmp_path, 100, f"object {number}"))
        if number == 0:
            assert freed.begun.acquire(timeout=TIMEOUT_SECONDS)
    assert list(tmp_path.iterdir()) == []
    assert len(open_files(tmp_path)) == 1 + MOST_WAITING, "the one that is being freed, and those that wait"
