"""Objects beyond the memory limit are files on disk, which readers find by the same name."""

from __future__ import annotations

import errno
import os
import queue
import re
import stat
import threading
from pathlib import Path
from typing import Callable, List, Tuple
from unittest import mock

import pytest
from scheduler_process import RawPeer, SchedulerProcess, check_others_work, wait_for

from scaler_appliance.core.effects import StoreChunk
from scaler_appliance.shell import spilling
from scaler_appliance.shell.core_inputs import InputKind
from scaler_appliance.shell.object_files import ObjectEffects, ObjectFiles
from scaler_appliance.shell.spilling import Copied
from scaler_protocol import messages as m
from scaler_protocol.host.segments import ObjectDirectory, map_object, write_chunk
from scaler_protocol.host.spill import NoRoomError, copy_file

Start = Callable[..., SchedulerProcess]
SIZE = 1_000_000


@pytest.fixture
def outcomes() -> queue.SimpleQueue[Copied]:
    """Of all copies."""
    return queue.SimpleQueue()


@pytest.fixture
def files(tmp_path: Path, outcomes: queue.SimpleQueue[Copied]) -> ObjectFiles:
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    directory = ObjectDirectory(str(tmp_path / "memory"))
    directory.open_spill(str(tmp_path / "disk"))
    return ObjectFiles(directory, outcomes.put)


def copy(files: ObjectFiles, outcomes: queue.SimpleQueue[Copied], object_id: int = 1) -> Copied:
    """Have an object copied, and wait for the outcome."""
    files.copy_to_disk(object_id)
    return outcomes.get(timeout=30)


def on_disk(files: ObjectFiles) -> List[str]:
    assert files.directory.spill is not None
    return sorted(set(os.listdir(files.directory.spill.path)) - {"token"})


def nothing_is_on_disk(files: ObjectFiles) -> bool:
    wait_for(lambda: not on_disk(files), "the files on disk to be deleted")
    return True


def make_object(files: ObjectFiles, object_id: int, content: bytes) -> str:
    path = files.directory.object_path(object_id)
    with open(path, "wb") as file:
        file.write(content)
    return path


def test_a_spilled_file_is_read_by_its_name_and_goes_with_it(
    files: ObjectFiles, outcomes: queue.SimpleQueue[Copied]
) -> None:
    content = os.urandom(SIZE)
    path = make_object(files, 1, content)
    mapped = map_object(path)
    copied = copy(files, outcomes)
    assert (copied.object_id, copied.error) == (1, None)
    files.use_copy(1, copied.name)
    assert files.is_on_disk(1) and on_disk(files) == [copied.name]
    assert mapped == content, "who has it mapped keeps it"
    assert map_object(path) == content and files.read_chunk(1, 10, 5) == content[10:15]
    files.remove(1)
    assert not files.exists(1) and nothing_is_on_disk(files)
    files.close()


def test_a_file_that_cannot_be_read_as_its_maker_said_is_an_answer(files: ObjectFiles) -> None:
    make_object(files, 1, b"short")
    os.mkdir(files.directory.object_path(2))
    assert files.read_chunk(1, 0, 6) is None and files.read_chunk(1, 0, 5) == b"short"
    assert files.read_chunk(2, 0, 5) is None
    assert files.read_chunk(3, 0, 5) is None
    os.rmdir(files.directory.object_path(2))
    files.remove(1)
    files.close()


def test_a_copy_that_comes_too_late_is_dropped(files: ObjectFiles, outcomes: queue.SimpleQueue[Copied]) -> None:
    make_object(files, 1, b"content")
    copied = copy(files, outcomes)
    files.remove(1)
    files.drop_copy(copied.name)
    assert nothing_is_on_disk(files)
    files.close()


def test_a_copy_of_an_object_removed_meanwhile_is_not_finished(
    files: ObjectFiles, outcomes: queue.SimpleQueue[Copied], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_object(files, 1, bytes(SIZE))
    make_object(files, 2, b"next")
    whole = copy_file

    def copy_while_it_is_removed(source: str, target: str, is_wanted: Callable[[], bool]) -> bool:
        if source.endswith("1"):
            files.remove(1)
        return whole(source, target, is_wanted)

    monkeypatch.setattr(spilling, "copy_file", copy_while_it_is_removed)
    assert copy(files, outcomes).name == ""
    assert nothing_is_on_disk(files)
    files.close()


def test_without_room_for_a_thread_nothing_is_copied_and_the_next_copy_is(
    files: ObjectFiles, outcomes: queue.SimpleQueue[Copied], monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_no_room(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    make_object(files, 1, b"content")
    assert files.directory.spill is not None
    left = os.path.join(files.directory.spill.path, "left")
    os.close(os.open(left, os.O_CREAT))
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(threading.Thread, "start", has_no_room)
        copied = copy(files, outcomes)
        files.drop_copy("left")
    assert copied.name == "" and "no room for a thread" in str(copied.error)
    assert not os.path.exists(left), "files are deleted all the same"
    assert copy(files, outcomes).name
    files.remove(1)
    files.close()


def test_a_disk_without_room_is_an_outcome(
    files: ObjectFiles, outcomes: queue.SimpleQueue[Copied], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_object(files, 1, b"content")
    monkeypatch.setattr("scaler_protocol.host.spill.has_room", lambda directory, size: False)
    copied = copy(files, outcomes)
    assert copied.error is not None and copied.error.strerror == "No space left on device"
    assert files.read_chunk(1, 0, 7) == b"content" and nothing_is_on_disk(files)
    files.close()


@pytest.mark.parametrize(("error_number", "is_told"), [(errno.ENOSPC, True), (errno.ENOENT, False)])
def test_of_an_object_that_has_ended_only_a_full_disk_counts(
    files: ObjectFiles, error_number: int, is_told: bool
) -> None:
    objects, inputs, loop = mock.Mock(), mock.Mock(), mock.Mock()
    objects.find.return_value = None
    loop.time.return_value = 5.0
    why = os.strerror(error_number)
    ObjectEffects(objects, files, inputs, loop).on_copied(Copied(1, "", OSError(error_number, why)))
    expected = [mock.call(InputKind.OBJECT_SPILL_FAILED, 5.0, 1, why)] if is_told else []
    assert inputs.call.mock_calls == expected
    files.close()


def test_what_arrives_goes_to_disk_when_memory_has_no_room(files: ObjectFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    has_room = [False, True]
    monkeypatch.setattr("scaler_protocol.host.spill.has_room", lambda directory, size: has_room.pop(0))
    assert files.store_chunk(StoreChunk(1, 0, b"first ", False, 10, False))
    assert files.store_chunk(StoreChunk(1, 6, b"last", True, 10, False))
    assert files.is_on_disk(1) and files.read_chunk(1, 0, 10) == b"first last"
    has_room[:] = [True]
    assert files.store_chunk(StoreChunk(2, 0, b"large", True, 5, True)), "it was to be there"
    assert len(on_disk(files)) == 2
    has_room[:] = [False, True]
    assert not files.store_chunk(StoreChunk(4, 0, b"large", True, 5, True)), "it was to be there, and could not"
    assert len(on_disk(files)) == 2
    has_room[:] = [False, False]
    with pytest.raises(NoRoomError, match="no room for an object of 10 bytes"):
        files.store_chunk(StoreChunk(3, 0, b"first", False, 10, False))
    with pytest.raises(FileNotFoundError):
        files.store_chunk(StoreChunk(3, 5, b"other", True, 10, False))
    for object_id in (1, 2, 3, 4):
        files.remove(object_id)
    assert nothing_is_on_disk(files) and sorted(os.listdir(files.directory.path)) == ["spill", "token"]
    files.close()


def test_what_arrives_goes_on_on_disk_when_memory_becomes_full(
    files: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not files.store_chunk(StoreChunk(1, 0, b"first ", False, 16, False))

    def write_to_full_memory(path: str, offset: int, chunk: bytes) -> None:
        if not os.path.islink(path):
            write_chunk(path, offset, chunk[:2])  # as much as there is room for
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_chunk(path, offset, chunk)

    monkeypatch.setattr("scaler_appliance.shell.object_files.write_chunk", write_to_full_memory)
    assert files.store_chunk(StoreChunk(1, 6, b"second", False, 16, False))
    assert files.read_chunk(1, 0, 12) == b"first second"
    assert files.store_chunk(StoreChunk(1, 12, b"last", True, 16, True))
    assert files.is_on_disk(1) and files.read_chunk(1, 0, 16) == b"first secondlast"
    assert files.store_chunk(StoreChunk(2, 0, b"only", True, 4, False)) and files.read_chunk(2, 0, 4) == b"only"
    for object_id in (1, 2):
        files.remove(object_id)
    assert nothing_is_on_disk(files) and sorted(os.listdir(files.directory.path)) == ["spill", "token"]
    files.close()


def test_what_arrives_is_lost_when_memory_and_disk_become_full(
    files: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_to_full_memory(path: str, offset: int, chunk: bytes) -> None:
        write_chunk(path, offset, b"")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("scaler_appliance.shell.object_files.write_chunk", write_to_full_memory)
    with pytest.raises(OSError, match="No space left"):
        files.store_chunk(StoreChunk(1, 0, b"first", False, 10, False))
    assert nothing_is_on_disk(files) and sorted(os.listdir(files.directory.path)) == ["spill", "token"]
    files.close()


# With a scheduler -------------------------------------------------------------------------------------------------


def announcement(object_id: int, size: int) -> m.ObjectInstruction:
    """An object whose file is in the scheduler's directory."""
    return m.ObjectInstruction(ids=[object_id], sizes=[size], storages=[m.ObjectStorage.SHARED])


def share(peer: RawPeer, number: int, content: bytes) -> int:
    """Make an object whose file is in the scheduler's directory."""
    object_id = peer.welcome.session << 40 | number
    with open(path_of(peer, object_id), "wb") as file:
        file.write(content)
    peer.send(announcement(object_id, len(content)))
    return object_id


def path_of(peer: RawPeer, object_id: int) -> str:
    return os.path.join(peer.welcome.object_directory, f"{object_id:016x}")


def bytes_in_memory(peer: RawPeer) -> int:
    directory = peer.welcome.object_directory
    paths = [os.path.join(directory, name) for name in os.listdir(directory)]
    return sum(map(_own_bytes, paths))


def _own_bytes(path: str) -> int:
    try:
        found = os.lstat(path)
    except FileNotFoundError:  # it has moved since the folder was listed
        return 0
    return 0 if stat.S_ISLNK(found.st_mode) else found.st_size


def test_memory_stays_under_the_limit_and_nothing_is_lost(start: Start, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    options = ("--object-memory-limit", str(3 * SIZE), "--object-spill-directory", str(tmp_path / "disk"))
    scheduler = start(*options)
    client = scheduler.client()
    contents = {}
    for number in range(1, 11):
        content = os.urandom(SIZE)
        contents[share(client, number, content)] = content
    wait_for(lambda: bytes_in_memory(client) <= 3 * SIZE + 100, "the others to leave memory")
    told: List[int] = []
    while len(told) < 7:
        told += client.take(m.ObjectInstruction)[0].ids
    assert told == list(contents)[:7]
    for object_id, content in contents.items():
        assert map_object(path_of(client, object_id)) == content
        client.send(m.ObjectRequest(id=object_id, offset=SIZE - 5, length=5))
        assert client.take(m.ObjectResponse)[1] == content[-5:]
    (spill,) = (tmp_path / "disk").iterdir()
    assert len(list(spill.iterdir())) == 7 + 1
    # What left is logged once a second: on a slow machine that may be more than one line.
    spilled = re.compile(rf"Scheduler: spilled (\d+) objects of (\d+) bytes to {re.escape(str(spill))};")
    wait_for(lambda: sum(int(n) for n, _ in spilled.findall(scheduler.output())) == 7, "7 objects in the log")
    assert sum(int(size) for _, size in spilled.findall(scheduler.output())) == 7 * SIZE
    client.send(m.ObjectInstruction(action=m.ObjectAction.CLEAR))
    wait_for(lambda: [path.name for path in spill.iterdir()] == ["token"], "the files on disk to be removed")
    scheduler.process.terminate()
    assert scheduler.wait_for_end() == 0
    assert not list((tmp_path / "disk").iterdir())


def test_a_disk_that_cannot_be_written_is_said_and_loses_no_object(start: Start, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    scheduler = start("--object-memory-limit", "1", "--object-spill-directory", str(tmp_path / "disk"))
    (spill,) = (tmp_path / "disk").iterdir()
    os.rename(spill, tmp_path / "away")
    client = scheduler.client()
    object_id = share(client, 1, b"content")
    scheduler.wait_for_output("objects stay in memory, beyond the limit of 1 bytes")
    client.send(m.ObjectRequest(id=object_id, length=7))
    assert client.take(m.ObjectResponse)[1] == b"content"
    os.rename(tmp_path / "away", spill)
    wait_for(lambda: os.path.islink(path_of(client, object_id)), "the object to leave when that is possible again")
    check_others_work(scheduler)


def announce_pipe(start: Start, tmp_path: Path) -> Tuple[SchedulerProcess, RawPeer, int]:
    """A scheduler that spills all, and a client's object whose file is a pipe: a copy takes as long as a test wants."""
    (tmp_path / "disk").mkdir()
    scheduler = start("--object-memory-limit", "1", "--object-spill-directory", str(tmp_path / "disk"))
    client = scheduler.client()
    object_id = client.welcome.session << 40 | 1
    os.mkfifo(path_of(client, object_id))
    client.send(announcement(object_id, SIZE))
    return scheduler, client, object_id


def test_peers_are_served_while_an_object_is_copied(start: Start, tmp_path: Path) -> None:
    scheduler, client, object_id = announce_pipe(start, tmp_path)
    content = os.urandom(SIZE)
    with open(path_of(client, object_id), "wb") as pipe:  # when it has been opened, the copy has begun
        check_others_work(scheduler)
        pipe.write(content)
    assert list(client.take(m.ObjectInstruction)[0].ids) == [object_id]
    assert map_object(path_of(client, object_id)) == content


def test_a_copy_that_does_not_end_holds_up_no_shutdown(start: Start, tmp_path: Path) -> None:
    scheduler, client, object_id = announce_pipe(start, tmp_path)
    with open(path_of(client, object_id), "wb"):
        scheduler.process.terminate()
        assert scheduler.wait_for_end() == 0


def test_what_a_killed_scheduler_had_on_disk_goes_with_the_next(start: Start, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    options = ("--object-memory-limit", "1", "--object-spill-directory", str(tmp_path / "disk"))
    killed = start(*options)
    client = killed.client()
    share(client, 1, b"content")
    client.take(m.ObjectInstruction)
    (left,) = (tmp_path / "disk").iterdir()
    killed.process.kill()
    killed.wait_for_end()
    start(*options)
    assert left not in (tmp_path / "disk").iterdir()


def test_a_spill_directory_that_is_not_there_is_said_at_once(start: Start, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="--object-spill-directory /nowhere: No such file or directory"):
        start("--object-spill-directory", "/nowhere")
