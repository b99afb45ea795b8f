"""Memory stays bounded and other clients do not starve, in real clusters with small limits."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Iterator, List

import pytest
from quiet_addresses import quiet_address
from sdk_tasks import logged, wait_for, wait_for_file, wait_until

from scaler import Client, Cluster, Scheduler, SchedulerClusterCombo
from scaler.cluster.appliance import PROGRAM_VARIABLE, scheduler_command
from scaler.exceptions import DisconnectedError, TaskRejectedError

TASKS_LIMIT = 100
BYTES_LIMIT = 1_000_000
TIMEOUT_SECONDS = 60.0


PYPY = Path(__file__).resolve().parents[3] / ".venv-pypy/bin/pypy3"


def start_combo(interpreter: str, *scheduler_options: str, **options: Any) -> SchedulerClusterCombo:
    """A cluster of two workers, its scheduler on the interpreter and with options that the combo has no names for."""
    if interpreter == "pypy" and not PYPY.exists():
        pytest.skip("no PyPy here (make test says why)")
    program = [str(PYPY), "-m", "scaler_appliance"] if interpreter == "pypy" else scheduler_command()
    os.environ[PROGRAM_VARIABLE] = shlex.join([*program, *scheduler_options])
    try:
        return SchedulerClusterCombo(n_workers=2, logging_level="WARNING", **options)
    finally:
        del os.environ[PROGRAM_VARIABLE]


@pytest.fixture(scope="module", params=["cpython", "pypy"])
def strict_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """A cluster of two workers whose clients may have little in flight."""
    limits = ["--client-tasks-in-flight", str(TASKS_LIMIT), "--client-bytes-in-flight", str(BYTES_LIMIT)]
    with start_combo(request.param, *limits) as combo:
        yield combo.get_address()


@pytest.fixture
def strict_client(strict_address: str) -> Iterator[Client]:
    with Client(address=strict_address) as client:
        yield client


def wait_for_submitter(client: Client) -> None:
    """Wait until a thread waits in `submit`."""
    core = client._shell.core
    wait_for(lambda: core._waiting and not core.credit.is_left, "a submitter to wait")


def shut_gate(client: Client, done_files: List[Path]) -> None:
    """Keep both workers busy until the second file is made."""
    running, gate = done_files
    for number in range(2):
        client.submit(wait_for_file, str(gate), f"{running}{number}", TIMEOUT_SECONDS)
    for number in range(2):
        wait_until(Path(f"{running}{number}"))


# submit() waits -------------------------------------------------------------------------------------------------------


def test_submit_waits_at_the_limit_and_goes_on_as_outcomes_come(strict_client: Client, done_files: List[Path]) -> None:
    shut_gate(strict_client, done_files)
    futures: List[Future[int]] = []
    submitter = threading.Thread(target=lambda: futures.extend(strict_client.submit(abs, -i) for i in range(300)))
    submitter.start()
    wait_for_submitter(strict_client)
    assert len(strict_client._shell.core.futures) == TASKS_LIMIT
    done_files[1].touch()
    submitter.join(TIMEOUT_SECONDS)
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(300))


@pytest.mark.parametrize("count", [3000, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_a_loop_that_submits_for_ever_holds_no_more_than_it_was_granted(count: int, strict_client: Client) -> None:
    most = 0
    for number in range(count):
        last = strict_client.submit(abs, -number)
        most = max(most, len(strict_client._shell.core.futures))
    assert last.result(TIMEOUT_SECONDS) == count - 1
    assert most <= TASKS_LIMIT


def test_bytes_are_limited_as_tasks_are(strict_client: Client, done_files: List[Path]) -> None:
    shut_gate(strict_client, done_files)
    futures: List[Future[int]] = []
    payload = bytes(50_000)
    submitter = threading.Thread(target=lambda: futures.extend(strict_client.submit(len, payload) for _ in range(60)))
    submitter.start()
    wait_for_submitter(strict_client)
    assert BYTES_LIMIT // 50_000 - 2 <= len(strict_client._shell.core.futures) - 2 <= BYTES_LIMIT // 50_000 + 1
    done_files[1].touch()
    submitter.join(TIMEOUT_SECONDS)
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [50_000] * 60


def test_a_producer_of_large_arguments_fills_no_memory(strict_client: Client) -> None:
    """Each is a file in memory until its task is done."""
    directory = strict_client._shell.welcome.object_directory
    futures, most_bytes = [], 0
    for _ in range(100):
        futures.append(strict_client.submit(len, bytes(400_000)))
        most_bytes = max(most_bytes, sum(_sizes(directory)))
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [400_000] * 100
    assert most_bytes < BYTES_LIMIT + 3 * 400_100
    wait_for(lambda: max(_sizes(directory)) < 400_000, "files to be removed")


def _sizes(directory: str) -> List[int]:
    """Of the files that are there and not removed at this moment."""
    sizes = []
    for path in Path(directory).iterdir():
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sizes


def test_a_single_argument_above_the_limit_is_no_dead_end(strict_client: Client) -> None:
    futures = [strict_client.submit(len, bytes(3 * BYTES_LIMIT)) for _ in range(3)]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [3 * BYTES_LIMIT] * 3


def test_kept_objects_do_not_block_submissions(strict_client: Client) -> None:
    references = [strict_client.send_object(bytes(BYTES_LIMIT)) for _ in range(3)]
    futures = [strict_client.submit(len, reference) for reference in references * 50]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [BYTES_LIMIT] * 150


def test_a_submit_that_waits_can_be_interrupted(strict_client: Client, done_files: List[Path]) -> None:
    shut_gate(strict_client, done_files)

    def interrupt() -> None:
        wait_for_submitter(strict_client)
        os.kill(os.getpid(), signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(2 * TASKS_LIMIT):
            strict_client.submit(abs, -1)
    helper.join(TIMEOUT_SECONDS)
    done_files[1].touch()
    assert strict_client.submit(abs, -7).result(TIMEOUT_SECONDS) == 7


def test_a_submit_that_waits_ends_with_its_client(strict_client: Client, done_files: List[Path]) -> None:
    shut_gate(strict_client, done_files)
    errors: List[BaseException] = []

    def submit() -> None:
        try:
            for _ in range(2 * TASKS_LIMIT):
                strict_client.submit(abs, -1)
        except DisconnectedError as error:
            errors.append(error)

    submitter = threading.Thread(target=submit)
    submitter.start()
    wait_for_submitter(strict_client)
    strict_client.disconnect()
    submitter.join(TIMEOUT_SECONDS)
    assert len(errors) == 1
    done_files[1].touch()


def test_a_submit_that_waits_goes_on_after_a_clear(strict_client: Client, done_files: List[Path]) -> None:
    shut_gate(strict_client, done_files)
    last: List[Future[int]] = []
    submitter = threading.Thread(target=lambda: last.append([strict_client.submit(abs, -i) for i in range(150)][-1]))
    submitter.start()
    wait_for_submitter(strict_client)
    strict_client.clear()
    submitter.join(TIMEOUT_SECONDS)
    assert last[0].result(TIMEOUT_SECONDS) == 149


def _submit_and_sum(address: str, count: int) -> int:
    with Client(address=address) as client:
        return sum(future.result() for future in [client.submit(abs, -1) for _ in range(count)])


def test_tasks_that_submit_more_than_they_may_have_in_flight(strict_client: Client, strict_address: str) -> None:
    parents = [strict_client.submit(_submit_and_sum, strict_address, 3 * TASKS_LIMIT) for _ in range(4)]
    assert [parent.result(TIMEOUT_SECONDS) for parent in parents] == [3 * TASKS_LIMIT] * 4


def test_callbacks_that_submit_at_the_limit(strict_client: Client) -> None:
    followers: List[Future[int]] = []
    futures = [strict_client.submit(abs, -i) for i in range(TASKS_LIMIT // 2)]
    for future in futures:
        future.add_done_callback(lambda done: followers.extend(strict_client.submit(abs, -1) for _ in range(10)))
    for number in range(5 * TASKS_LIMIT):
        strict_client.submit(abs, -number)
    wait_for(lambda: len(followers) == 10 * len(futures), "the callbacks")
    assert sum(follower.result(TIMEOUT_SECONDS) for follower in followers) == len(followers)


def test_map_over_a_generator_that_submits(strict_client: Client) -> None:
    items = (strict_client.submit(abs, -i).result(TIMEOUT_SECONDS) for i in range(3 * TASKS_LIMIT))
    assert strict_client.map(abs, items) == list(range(3 * TASKS_LIMIT))


def test_a_submit_that_waits_goes_on_with_the_next_scheduler() -> None:
    """What is in flight is counted again in a new session, including arguments that are objects."""
    address = quiet_address()
    limits = ["--client-tasks-in-flight", str(TASKS_LIMIT), "--client-bytes-in-flight", str(BYTES_LIMIT)]
    os.environ[PROGRAM_VARIABLE] = shlex.join([*scheduler_command(), *limits])
    try:
        first, second = (Scheduler(address=address, logging_level="WARNING") for _ in range(2))
        first.start()
    finally:
        del os.environ[PROGRAM_VARIABLE]
    futures: List[Future[int]] = []
    sizes = [10, 30_000, 100_000] * 50
    with first, Client(address=first.get_address()) as client:
        submitter = threading.Thread(target=lambda: futures.extend(client.submit(len, bytes(size)) for size in sizes))
        submitter.start()
        wait_for_submitter(client)
        os.kill(first.pid or 0, signal.SIGKILL)
        first.join(TIMEOUT_SECONDS)
        with second, Cluster(second.get_address(), n_workers=1, logging_level="WARNING"):
            submitter.join(TIMEOUT_SECONDS)
            assert [future.result(TIMEOUT_SECONDS) for future in futures] == sizes


# A client that does not read ------------------------------------------------------------------------------------------

SLOW_CLIENT = """
import sys
from scaler import Client

with Client(address=sys.argv[1]) as client:
    futures = [client.submit(bytes, 50_000) for _ in range(10_000)]
    print("submitted", flush=True)
    print(sum(len(future.result()) for future in futures), flush=True)
"""


@pytest.mark.slow
@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize("interpreter", ["cpython", "pypy"])
def test_a_client_that_does_not_read_fills_no_memory_and_does_not_starve_others(
    interpreter: str, tmp_path: Path
) -> None:
    """It has asked for half a gigabyte of results when it stops reading, and gets them all when it reads again."""
    log = tmp_path / "log"
    with start_combo(interpreter, logging_paths=[str(log)]) as combo:
        address = combo.get_address()
        command = [sys.executable, "-c", SLOW_CLIENT, address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as slow:
            assert slow.stdout is not None
            try:
                assert slow.stdout.readline() == "submitted\n"
                slow.send_signal(signal.SIGSTOP)
                with Client(address=address) as other:
                    wait_for(lambda: "does not read the results" in logged(log), "the scheduler to say so")
                    assert other.map(abs, range(-1000, 0)) == list(range(1000, 0, -1))
                    assert _resident_bytes(combo._scheduler.pid) < 350_000_000
                slow.send_signal(signal.SIGCONT)
                assert slow.stdout.readline() == "500000000\n"
                assert slow.wait(TIMEOUT_SECONDS) == 0
            finally:
                slow.kill()


def _resident_bytes(pid: Any) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


# --max-number-of-tasks-waiting ----------------------------------------------------------------------------------------


def test_no_more_tasks_wait_than_the_scheduler_may_hold(done_files: List[Path]) -> None:
    running, gate = done_files
    with SchedulerClusterCombo(n_workers=1, max_number_of_tasks_waiting=5, logging_level="WARNING") as combo:
        with Client(address=combo.get_address()) as client:
            assert client.submit(abs, -1).result(TIMEOUT_SECONDS) == 1
            futures = [client.submit(wait_for_file, str(gate), str(running), TIMEOUT_SECONDS) for _ in range(50)]
            wait_until(running)
            wait_for(lambda: sum(map(Future.done, futures)) >= 50 - 7, "tasks to be rejected")
            rejected = [future for future in futures if future.done()]
            assert len(rejected) in (50 - 6, 50 - 7)  # one runs, five wait, and one may have been sent ahead
            for future in rejected:
                assert "--max-number-of-tasks-waiting" in str(future.exception())
                assert isinstance(future.exception(), TaskRejectedError)
            gate.touch()
            for future in set(futures) - set(rejected):
                assert future.result(TIMEOUT_SECONDS) == str(gate)
            assert client.submit(abs, -1).result(TIMEOUT_SECONDS) == 1
