"""Memory for objects is bounded: the excess is spilled to disk, unowned objects are deleted, a full disk is an
error."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
from object_files import nothing_is_left, object_files
from quiet_addresses import quiet_address
from sdk_tasks import identity

from scaler import Client, Cluster, NamedFunction, ObjectReference, Scheduler, SchedulerClusterCombo
from scaler.cluster.scheduler import SchedulerProcess
from scaler.exceptions import MissingObjects, NamedFunctionError, ObjectStorageFullError
from scaler.worker.processor.processor import current

TIMEOUT_SECONDS = 60.0
SIZE = 1_000_000
LIMIT_BYTES = 3 * SIZE


def wait_for(is_so: Callable[[], Any], client: Client) -> None:
    """Wait until it is so, while the cluster works."""
    for _ in range(20_000):
        if is_so():
            return
        client.submit(identity, 0).result(TIMEOUT_SECONDS)
    raise AssertionError("it never was so")


def memory_bytes(folder: Path) -> int:
    """What all files in a folder occupy, each counted once, whatever names it has."""
    sizes = {}
    for parent, _, names in os.walk(folder):  # which passes over folders that are removed meanwhile; rglob does not
        for name in names:
            try:
                status = os.lstat(os.path.join(parent, name))
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


class Places:
    """Folders that stand for memory and disk, and the options that name them."""

    def __init__(self, path: Path) -> None:
        self.memory, self.disk = path / "memory", path / "disk"
        self.memory.mkdir(exist_ok=True)
        self.disk.mkdir(exist_ok=True)
        self.options = {"object_directory": str(self.memory), "object_spill_directory": str(self.disk)}

    def spilled(self) -> List[Path]:
        return [Path(parent, name) for parent, _, names in os.walk(self.disk) for name in names if name != "token"]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


@pytest.fixture
def client(places: Places) -> Iterator[Client]:
    """A client of a cluster whose memory for objects is small."""
    options: Dict[str, Any] = {**places.options, "object_memory_limit": LIMIT_BYTES}
    with SchedulerClusterCombo(2, logging_level="WARNING", **options) as combo:
        with Client(address=combo.get_address()) as client:
            yield client
    assert not list(places.memory.iterdir()) and not list(places.disk.iterdir())


def content_of(number: int) -> bytes:
    return bytes([number]) * SIZE


def test_what_clients_place_beyond_the_limit_leaves_their_memory_too(client: Client, places: Places) -> None:
    references = [client.send_object(content_of(number)) for number in range(10)]
    wait_for(lambda: memory_bytes(places.memory) < LIMIT_BYTES + SIZE // 2, client)
    assert len(places.spilled()) >= 7
    assert client.map(identity, references) == [content_of(number) for number in range(10)]
    client.clear()
    assert nothing_is_left(client)
    wait_for(lambda: not places.spilled(), client)


def test_large_arguments_and_results_beyond_the_limit_are_whole(client: Client, places: Places) -> None:
    futures = [client.submit(identity, content_of(number)) for number in range(20)]
    assert all(future.result(TIMEOUT_SECONDS) == content_of(number) for number, future in enumerate(futures))
    del futures
    assert nothing_is_left(client)
    wait_for(lambda: not places.spilled(), client)


def test_objects_on_disk_outlive_their_scheduler(places: Places) -> None:
    options: Dict[str, Any] = {**places.options, "object_memory_limit": 1, "logging_level": "CRITICAL"}
    address = quiet_address()
    scheduler = Scheduler(address=address, **options)
    scheduler.start()
    with Cluster(address, 1, logging_level="CRITICAL"), Client(address=address) as client:
        reference = client.send_object(content_of(7))
        wait_for(lambda: memory_bytes(places.memory) < SIZE and len(places.spilled()) == 2, client)
        assert scheduler.pid is not None
        os.kill(scheduler.pid, signal.SIGKILL)
        scheduler.join(TIMEOUT_SECONDS)
        scheduler = Scheduler(address=address, **options)
        scheduler.start()
        assert client.submit(identity, reference).result(TIMEOUT_SECONDS) == content_of(7)
        client.clear()
        wait_for(lambda: not places.spilled(), client)
    scheduler.shutdown()


# A file system that is full -------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A memory file system of 4 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def make_bytes(size: int) -> bytes:
    return bytes(size)


def test_what_memory_has_no_room_for_goes_to_disk(small: Path, places: Places) -> None:
    options: Dict[str, Any] = {"object_directory": str(small), "object_spill_directory": str(places.disk)}
    with SchedulerClusterCombo(2, logging_level="WARNING", **options) as combo:
        with Client(address=combo.get_address()) as client:
            large = bytes(8 * SIZE)
            assert client.submit(identity, large).result(TIMEOUT_SECONDS) == large
            reference = client.send_object(large)
            assert client.submit(len, reference).result(TIMEOUT_SECONDS) == len(large)
            assert client.submit(make_bytes, 6 * SIZE).result(TIMEOUT_SECONDS) == bytes(6 * SIZE)
            assert places.spilled()
            client.clear()
            assert nothing_is_left(client)
            wait_for(lambda: not places.spilled(), client)


def test_without_room_anywhere_each_task_has_one_clear_error(small: Path) -> None:
    options: Dict[str, Any] = {"object_directory": str(small), "object_spill_directory": str(small)}
    with SchedulerClusterCombo(2, logging_level="WARNING", **options) as combo:
        with Client(address=combo.get_address()) as client:
            kept = client.send_object(bytes(SIZE))
            client.submit(len, kept).result(TIMEOUT_SECONDS)
            before = sorted(small.rglob("*"))
            for place in (client.send_object, lambda data: client.submit(len, data)):
                with pytest.raises(
                    ObjectStorageFullError, match=r"no room for an object of 80\d+ bytes .*--object-directory"
                ):
                    place(bytes(8 * SIZE))
            with pytest.raises(ObjectStorageFullError, match="the task ran, but its result cannot be stored"):
                client.submit(make_bytes, 8 * SIZE).result(TIMEOUT_SECONDS)
            assert client.submit(len, kept).result(TIMEOUT_SECONDS) == SIZE, "other tasks are not affected"
            assert sorted(small.rglob("*")) == before, "nothing half-written is left"


# The end of owners ----------------------------------------------------------------------------------------------------


def take_and_die(address: str, path: str) -> None:
    """A client that has objects, and results that it has not fetched, is killed."""
    client = Client(address=address)
    client.send_object(bytes(SIZE))
    client.submit(identity, bytes(SIZE)).exception(TIMEOUT_SECONDS)
    client.submit(make_bytes, SIZE)
    with open(os.path.join(client._shell.io.files.own_directory(), "0123456789abcdef"), "wb") as file:
        file.write(b"half-written")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_clients_objects_are_freed(client: Client, places: Places) -> None:
    program = f"import {__name__} as tests; tests.take_and_die({client._shell.address!r}, '')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run([sys.executable, "-c", program], env=environment, timeout=TIMEOUT_SECONDS)
    assert finished.returncode == -signal.SIGKILL
    wait_for(lambda: not object_files(client), client)
    wait_for(lambda: memory_bytes(places.memory) < SIZE and not places.spilled(), client)
    directories = {path.parent for path in places.memory.glob("*/token")}
    wait_for(lambda: len([path for path in directories if path.exists()]) == 1, client)


def write_half_a_result(path: str) -> None:
    """A task that leaves a file half-written, says so, and never ends."""
    processor = current()
    assert processor is not None
    with open(processor.next_object_path(), "wb") as file:
        file.write(bytes(SIZE))
    fork_server = os.getppid()
    with open(f"/proc/{fork_server}/stat") as status:
        agent = int(status.read().rpartition(")")[2].split()[1])
    Path(path).write_text(f"{agent} {fork_server} {os.getpid()}\n")
    signal.pause()


def test_what_a_killed_worker_left_half_written_is_removed(client: Client, places: Places, tmp_path: Path) -> None:
    """Also when the process that cleans up after the worker is killed before it."""
    said = tmp_path / "said"
    future = client.options(at_most_once=True).submit(write_half_a_result, str(said))
    wait_for(lambda: said.exists() and said.read_text().endswith("\n"), client)
    assert any(name.startswith("new-") for name in object_files(client))
    processes = list(map(int, said.read_text().split()))
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            os.kill(process, number)
    assert future.exception(TIMEOUT_SECONDS) is not None
    wait_for(lambda: not object_files(client), client)


def test_a_cleared_reference_is_a_clear_error(client: Client) -> None:
    reference = client.send_object(bytes(SIZE), name="matrix")
    client.clear()
    with pytest.raises(MissingObjects, match="object 'matrix' does not exist any more: it was cleared, send it again"):
        client.submit(len, reference)
    assert nothing_is_left(client)


def wait_and_measure(data: bytes, running: str, go: str) -> int:
    Path(running).touch()
    with open(go, "rb"):
        return len(data)


def test_tasks_keep_what_they_need_when_its_owner_clears(client: Client, done_files: List[Path]) -> None:
    running, go = done_files
    os.mkfifo(go)
    with Client(address=client._shell.address) as owner:
        reference = owner.send_object(bytes(SIZE))
        assert owner.submit(len, reference).result(TIMEOUT_SECONDS) == SIZE  # so it is there for others, too
        future = client.submit(wait_and_measure, reference, str(running), str(go))
        wait_for(running.exists, client)
        queued = client.submit(len, reference)
        client.submit(identity, 0).result(TIMEOUT_SECONDS)  # so the scheduler has that one, too
        owner.clear()
        with pytest.raises(MissingObjects, match="does not exist \\(any more\\)"):
            wait_until_missing(client, reference)
        go.open("wb").close()
        assert (future.result(TIMEOUT_SECONDS), queued.result(TIMEOUT_SECONDS)) == (SIZE, SIZE)
    assert nothing_is_left(client)


def wait_until_missing(client: Client, reference: ObjectReference) -> Tuple[int, ...]:
    """Use it until it is gone: the clear of another client may come later."""
    return tuple(client.submit(len, reference).result(TIMEOUT_SECONDS) for _ in range(10_000))


@pytest.fixture
def address_with_a_limit() -> Iterator[str]:
    """Of a cluster whose scheduler takes no object above SIZE."""
    options = ["--exit-when-stdin-closes", "--maximum-object-bytes", str(SIZE), "--logging-level", "WARNING"]
    scheduler = SchedulerProcess(["tcp://127.0.0.1:0", *options])
    scheduler.start()
    cluster = Cluster(scheduler.get_address(), 1, logging_level="WARNING")
    cluster.start()
    yield scheduler.get_address()
    cluster.shutdown()
    scheduler.shutdown()


def test_what_is_larger_than_the_scheduler_allows_is_an_error_and_harms_no_other_task(
    address_with_a_limit: str,
) -> None:
    with Client(address=address_with_a_limit) as client:
        other = client.submit(identity, 1)
        returned = client.submit(bytes, SIZE)
        named = client.submit(NamedFunction("python:operator:mul"), "x", SIZE)
        for place in (lambda: client.submit(len, bytes(SIZE)), lambda: client.send_object(bytes(SIZE))):
            with pytest.raises(ObjectStorageFullError, match=r"nothing was sent: .* --maximum-object-bytes"):
                place()
        with pytest.raises(ObjectStorageFullError, match=r"the task ran, but .* --maximum-object-bytes"):
            returned.result(TIMEOUT_SECONDS)
        with pytest.raises(NamedFunctionError, match=r"the task ran, but .* --maximum-object-bytes"):
            named.result(TIMEOUT_SECONDS)
        assert other.result(TIMEOUT_SECONDS) == 1
        assert len(client.submit(bytes, SIZE // 2).result(TIMEOUT_SECONDS)) == SIZE // 2
        assert len(client.info().workers) == 1
