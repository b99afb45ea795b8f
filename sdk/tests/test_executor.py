"""ScalerExecutor keeps the promises of `concurrent.futures.Executor`.

The suites of CPython run in `foreign_suites`; these are what they do not ask, and what its next version asks.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import operator
import os
import pickle
import subprocess
import sys
import threading
import weakref
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
from sdk_tasks import identity, wait_for, wait_for_file, wait_until

from scaler import Client, ScalerExecutor, SchedulerClusterCombo
from scaler.exceptions import (
    ArgumentTypeError,
    DisconnectedError,
    InitializerError,
    SerializeObjectError,
)
from scaler.executor.client_executor import ClientExecutor

TIMEOUT_SECONDS = 30.0


@pytest.fixture
def executor(any_client: Client) -> Iterator[ClientExecutor]:
    with any_client.executor() as executor:
        yield executor


def fails_at(limit: int) -> Callable[[int], int]:
    def function(number: int) -> int:
        if number == limit:
            raise LookupError(f"no {number}")
        return number

    return function


# Submitting -----------------------------------------------------------------------------------------------------------


def test_it_is_an_executor_that_event_loops_accept(executor: ClientExecutor) -> None:
    assert {Executor, ThreadPoolExecutor} <= set(type(executor).__mro__)

    async def main() -> List[Any]:
        loop = asyncio.get_running_loop()
        there = [await loop.run_in_executor(executor, os.getpid)]
        loop.set_default_executor(executor)
        return [*there, await loop.run_in_executor(None, operator.add, 1, 2)]

    process_id, total = asyncio.run(main())
    assert process_id != os.getpid() and total == 3
    with pytest.raises(RuntimeError):  # `asyncio.run` shuts the default executor down
        executor.submit(abs, 1)


def test_options_apply_to_all_calls(any_client: Client) -> None:
    with any_client.executor(timeout="20s", priority=3) as executor:
        assert executor.submit(operator.add, 1, 2).result(TIMEOUT_SECONDS) == 3
        assert "'priority': 3" in repr(executor)
        with any_client.options(priority=3).executor(timeout=20) as same:
            assert same._state.submission._options == executor._state.submission._options
    with pytest.raises(TypeError):
        any_client.executor(nonsense=1)


def test_the_number_of_calls_at_once_is_that_of_the_cluster(executor: ClientExecutor) -> None:
    wait_for(lambda: executor._max_workers == 2, "the client knows of the worker")


def test_arguments_are_checked() -> None:
    for arguments, message in (
        ({"n_workers": 0}, "n_workers must be greater than 0"),
        ({"max_workers": -1}, "max_workers must be greater than 0"),
        ({"address": 0}, "n_workers must be greater than 0"),
        ({"address": "tcp://127.0.0.1:1", "n_workers": 2}, "address of another one"),
    ):
        keywords: Any = arguments
        with pytest.raises(ValueError, match=message):
            ScalerExecutor(**keywords)
    with pytest.raises(ArgumentTypeError, match="initializer must be a callable"):
        ScalerExecutor(1, initializer=3)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(SerializeObjectError, match="initargs"):
        ScalerExecutor(1, initializer=abs, initargs=(threading.Lock(),))


# Mapping --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"chunksize": 3}, {"buffersize": 2}, {"chunksize": 4, "buffersize": 9}], ids=str
)
def test_map_gives_results_in_order_and_those_before_a_failure(executor: ClientExecutor, options: Any) -> None:
    assert list(executor.map(pow, range(10), range(10), **options)) == list(map(pow, range(10), range(10)))
    assert list(executor.map(abs, [], **options)) == []
    assert list(executor.map(str, **options)) == []
    results: List[int] = []
    with pytest.raises(LookupError, match="no 7"):
        results.extend(executor.map(fails_at(7), range(20), **options))
    assert results == list(range(7))


def test_map_runs_everything_without_iteration(executor: ClientExecutor, tmp_path: Path) -> None:
    executor.map(Path.touch, [tmp_path / str(number) for number in range(10)])
    executor.map(Path.touch, [tmp_path / str(number) for number in range(10, 20)], chunksize=4)
    executor.shutdown()
    assert len(list(tmp_path.iterdir())) == 20


def test_map_raises_at_once_what_the_iterables_raise(executor: ClientExecutor) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise LookupError("no more")

    for chunksize in (1, 2):
        with pytest.raises(LookupError, match="no more"):
            executor.map(abs, numbers(), chunksize=chunksize)
    stream = executor.map(abs, numbers(), buffersize=3)
    assert next(stream) == 1
    with pytest.raises(LookupError, match="no more"):
        next(stream)


@pytest.mark.parametrize("options", [{}, {"chunksize": 2}, {"buffersize": 2}], ids=str)
def test_map_has_a_time_limit(executor: ClientExecutor, done_files: List[Path], options: Any) -> None:
    stream = executor.map(wait_for_file, [str(done_files[1])] * 3, timeout=0.05, **options)
    with pytest.raises(FutureTimeoutError):
        list(stream)
    done_files[1].touch()


@pytest.mark.parametrize(
    "options", [{"chunksize": 0}, {"chunksize": -1}, {"buffersize": 0}, {"buffersize": -1}], ids=str
)
def test_sizes_are_positive(executor: ClientExecutor, options: Dict[str, int]) -> None:
    name = next(iter(options))
    with pytest.raises(ValueError, match=f"{name} must be"):
        executor.map(str, range(4), **options)


def test_an_endless_iterable_is_taken_as_far_as_the_buffer_reaches(executor: ClientExecutor) -> None:
    taken = itertools.count()
    stream = executor.map(operator.add, taken, itertools.count(), buffersize=2)
    assert [next(stream) for _ in range(3)] == [0, 2, 4]
    assert next(taken) <= 5

    numbers = iter(range(4))
    executor.map(str, numbers, buffersize=2)
    executor.shutdown()
    assert next(numbers) == 2


def test_a_stream_of_an_executor_that_was_shut_down_says_so_after_what_it_had(executor: ClientExecutor) -> None:
    stream = executor.map(identity, itertools.count(), buffersize=2)
    assert next(stream) == 0
    executor.shutdown()
    results: List[int] = []
    with pytest.raises(RuntimeError, match="after shutdown"):
        results.extend(stream)
    assert results == [1, 2]


# Ending ---------------------------------------------------------------------------------------------------------------


def test_shutdown_waits_for_its_own_calls_and_leaves_the_client(any_client: Client, done_files: List[Path]) -> None:
    other = any_client.submit(wait_for_file, str(done_files[1]))
    with any_client.executor() as executor:
        futures = [executor.submit(identity, number) for number in range(100)]
    assert all(future.done() for future in futures)
    assert not other.done()
    done_files[1].touch()
    other.result(TIMEOUT_SECONDS)
    executor.shutdown()
    for call in (lambda: executor.submit(abs, 1), lambda: executor.map(abs, [1])):
        with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
            call()
    assert any_client.submit(abs, -1).result(TIMEOUT_SECONDS) == 1


def test_after_shutdown_the_callbacks_have_run(any_client: Client) -> None:
    for _ in range(20):
        seen: List[Any] = []
        with any_client.executor() as executor:
            for number in range(30):
                executor.submit(identity, number).add_done_callback(seen.append)
        assert sorted(future.result() for future in seen) == list(range(30))

    executor = any_client.executor()
    ended = threading.Event()

    def end(_: Any) -> None:
        executor.shutdown()  # in the thread of the callbacks
        ended.set()

    executor.submit(identity, 1).add_done_callback(end)
    assert ended.wait(TIMEOUT_SECONDS)


def test_shutdown_cancels_what_has_not_started(any_client: Client, done_files: List[Path]) -> None:
    executor = any_client.executor()
    started, go = done_files
    running = executor.submit(wait_for_file, str(go), str(started))
    wait_until(started)
    waiting = [executor.submit(wait_for_file, str(go)) for _ in range(20)]
    executor.shutdown(wait=False, cancel_futures=True)
    wait_for(lambda: sum(future.cancelled() for future in waiting) >= 19, "the cancellation")
    go.touch()
    executor.shutdown()
    assert running.result() == str(go)
    assert all(future.done() for future in waiting)


def test_futures_are_not_kept(executor: ClientExecutor) -> None:
    future = executor.submit(identity, 1)
    future.result(TIMEOUT_SECONDS)
    reference = weakref.ref(future)
    del future
    wait_for(lambda: reference() is None, "the end of the future")
    assert not executor._state._futures


def cluster_of(executor: ScalerExecutor) -> SchedulerClusterCombo:
    """The cluster that an executor has started."""
    address = executor._state.submission._shell.address
    return next(
        each for each in gc.get_objects() if isinstance(each, SchedulerClusterCombo) and each.get_address() == address
    )


def test_its_own_cluster_ends_with_it(tmp_path: Path) -> None:
    executor = ScalerExecutor(2)
    cluster = cluster_of(executor)
    assert executor._max_workers == 2
    slow = executor.submit(wait_for_file, str(tmp_path / "go"))
    executor.shutdown(wait=False)
    assert cluster.scheduler.is_alive()
    (tmp_path / "go").touch()
    executor.shutdown()
    assert slow.result() and not cluster.scheduler.is_alive()

    executor = ScalerExecutor(max_workers=1)
    cluster, state = cluster_of(executor), executor._state
    results = executor.map(abs, range(-5, 5))
    del executor
    gc.collect()
    assert state._closer is not None
    state._closer.join(TIMEOUT_SECONDS)
    assert not cluster.scheduler.is_alive()
    assert list(results) == list(map(abs, range(-5, 5)))


PROGRAM = """
import atexit, os, sys, time
from scaler import ScalerExecutor

def write(seconds, path):
    time.sleep(seconds)
    open(path, "w").close()

@atexit.register
def late():
    try:
        executor.submit(abs, 1)
    except RuntimeError as error:
        print(error)

executor = ScalerExecutor(1)
executor.submit(abs, 1).result()
child = os.fork()
if not child:
    atexit.unregister(late)
    try:
        executor.submit(abs, 1)
    except ConnectionError:
        executor.shutdown()
        sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
executor.submit(write, 0.5, sys.argv[1])
"""


def test_the_end_of_the_program_waits_and_that_of_a_fork_does_not(tmp_path: Path) -> None:
    # Python 3.12 warns of any fork of a process with threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, str(tmp_path / "written")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert finished.stderr == ""
    assert finished.stdout.splitlines() == ["7", "cannot schedule new futures after interpreter shutdown"]
    assert (tmp_path / "written").exists()


def test_a_client_that_disconnects_ends_what_its_executor_waits_for(any_address: str, done_files: List[Path]) -> None:
    client = Client(any_address)
    executor = client.executor()
    future = executor.submit(wait_for_file, str(done_files[1]))
    client.disconnect()
    executor.shutdown()
    assert future.cancelled()
    with pytest.raises(DisconnectedError):
        client.executor().submit(abs, 1)
    done_files[1].touch()


def test_an_executor_passed_to_a_task_uses_the_same_cluster(any_client: Client) -> None:
    def nested(executor: ClientExecutor) -> int:
        return sum(executor.map(abs, range(-10, 0)))

    with any_client.executor(retries=1) as executor:
        assert executor.submit(nested, executor).result(TIMEOUT_SECONDS) == 55
        assert pickle.loads(pickle.dumps(executor))._state.submission._options.retries == 1


# Initializers ---------------------------------------------------------------------------------------------------------


def test_an_initializer_runs_once_in_each_process_before_its_calls(any_client: Client, tmp_path: Path) -> None:
    """Also for functions that travel by value, each of which has a copy of the globals."""
    variables: Dict[str, Any] = {"setting": None}
    exec(
        "def begin(value, folder):\n"
        "    global setting\n"
        "    import os\n"
        "    setting = value\n"
        "    os.close(os.open(folder / str(os.getpid()), os.O_CREAT | os.O_EXCL))\n"
        "def read(*_): return setting\n"
        "def read_pair(*_): return setting, setting",
        variables,
    )
    with any_client.executor(initializer=variables["begin"], initargs=("ready", tmp_path)) as executor:
        assert list(executor.map(variables["read"], range(50))) == ["ready"] * 50
        assert list(executor.map(variables["read_pair"], range(50), chunksize=5)) == [("ready", "ready")] * 50
        assert list(executor.map(variables["read"], range(50), buffersize=10)) == ["ready"] * 50
    assert 1 <= len(list(tmp_path.iterdir())) <= 3


def test_a_coroutine_function_is_run_after_a_coroutine_function(any_client: Client) -> None:
    async def begin(value: int) -> None:
        os.environ["SCALER_TEST_OF_AN_INITIALIZER"] = str(value)

    async def read() -> str:
        return os.environ["SCALER_TEST_OF_AN_INITIALIZER"]

    with any_client.executor(initializer=begin, initargs=[5]) as executor:
        value: object = executor.submit(read).result(TIMEOUT_SECONDS)
    assert value == "5"


def test_an_initializer_that_fails_breaks_the_executor(any_client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def begin() -> None:
        raise LookupError("no model")

    executor = any_client.executor(initializer=begin)
    with caplog.at_level(logging.CRITICAL, "concurrent.futures"):
        future = executor.submit(identity, 1)
        with pytest.raises(BrokenExecutor, match="LookupError: no model") as caught:
            future.result(TIMEOUT_SECONDS)
        wait_for(lambda: executor._broken, "the executor to notice")
    assert isinstance(caught.value, InitializerError) and isinstance(caught.value.__cause__, LookupError)
    assert "Exception in initializer" in caplog.text
    for call in (lambda: executor.submit(abs, 1), lambda: executor.map(abs, [1], chunksize=2)):
        with pytest.raises(InitializerError):
            call()
    assert "broken" in repr(executor)
    assert any_client.submit(abs, -1).result(TIMEOUT_SECONDS) == 1


def test_a_stream_yields_what_was_submitted_before_a_shutdown_and_then_says_that_no_more_can_be(client: Client) -> None:
    executor = client.executor()
    results = executor.map(str, range(9), buffersize=3)
    assert next(results) == "0"
    executor.shutdown()
    rest = []
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        for result in results:
            rest.append(result)
    assert rest == [str(number) for number in range(1, 1 + len(rest))] and len(rest) in (2, 3)
