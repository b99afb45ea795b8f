"""joblib's calls on a cluster: results, errors, arrays, nested calls, limits, and what ends them."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pickle import PicklingError
from typing import Any, Iterator, List, Optional, Tuple
from unittest import mock

import joblib
import numpy
import pytest
from joblib import Parallel, delayed, parallel_config

import scaler.joblib
from scaler import Client, SchedulerClusterCombo
from scaler.adapters.joblib_workers import Workers
from scaler.exceptions import (
    ArgumentTypeError,
    InvalidArgumentError,
    NoWorkerError,
    ProcessorDiedError,
    RemoteTraceback,
    TaskTimeoutError,
)
from scaler.joblib import ScalerBackend

TIMEOUT_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _calls_run_on_the_cluster(any_address: str) -> Iterator[None]:
    with parallel_config("scaler", address=any_address):
        yield


def square(number: int) -> int:
    return number * number


def divide(dividend: int, divisor: int) -> float:
    return dividend / divisor


def process_id(_: Any = None) -> int:
    return os.getpid()


def about_array(array: Any) -> Tuple[bool, float, Any]:
    return array.flags.writeable, float(array.sum()), array.base is not None


@pytest.mark.parametrize("return_as", ["list", "generator", "generator_unordered"])
def test_calls_return_what_they_return_here(return_as: str) -> None:
    results = Parallel(return_as=return_as)(delayed(square)(number) for number in range(100))
    assert sorted(results) == [number * number for number in range(100)]


def test_calls_run_in_processes_of_the_cluster_and_no_calls_return_an_empty_list() -> None:
    assert os.getpid() not in Parallel()(delayed(process_id)() for _ in range(4))
    assert Parallel()([]) == []


def test_an_exception_is_the_users_with_the_remote_traceback_and_later_calls_work() -> None:
    parallel = Parallel()
    with pytest.raises(ZeroDivisionError) as raised:
        parallel(delayed(divide)(1, divisor) for divisor in (1, 0, 1))
    assert isinstance(raised.value.__cause__, RemoteTraceback)
    assert "in divide" in str(raised.value.__cause__)
    assert parallel(delayed(divide)(1, 1) for _ in range(3)) == [1, 1, 1]


def test_an_exception_of_the_generator_of_calls_reaches_the_caller() -> None:
    def calls() -> Iterator[Any]:
        for number in range(50):
            if number == 40:
                raise LookupError("no more numbers")
            yield delayed(square)(number)

    with pytest.raises(LookupError, match="no more numbers"):
        Parallel(batch_size=1)(calls())


def test_an_argument_that_cannot_be_pickled_is_a_pickling_error() -> None:
    with pytest.raises(PicklingError, match="the task to send"):
        Parallel()(delayed(id)(threading.Lock()) for _ in range(10))


def test_a_call_whose_process_dies_fails() -> None:
    with pytest.raises(ProcessorDiedError):
        Parallel()(delayed(os._exit)(3) for _ in range(2))


def test_a_time_limit_ends_the_calls_and_frees_the_processes() -> None:
    with pytest.raises(multiprocessing.TimeoutError):
        Parallel(timeout=0.1)(delayed(time.sleep)(1000) for _ in range(4))
    assert Parallel(timeout=TIMEOUT_SECONDS)(delayed(square)(number) for number in range(4)) == [0, 1, 4, 9]


class AtOnce:
    """Counts, with files in a folder, how many calls are in progress, and returns the most that each has seen."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, number: int) -> int:
        path = os.path.join(self.folder, str(number))
        open(path, "w").close()
        most = 0
        for _ in range(20):
            most = max(most, len(os.listdir(self.folder)))
            time.sleep(0.001)  # to be in progress for a while
        os.unlink(path)
        return most


def test_no_more_calls_than_jobs_are_in_progress(tmp_path: Any) -> None:
    with SchedulerClusterCombo(n_workers=4, logging_level="WARNING") as combo, Client(combo.get_address()) as client:
        with parallel_config("scaler", client=client):
            assert joblib.effective_n_jobs(-1) == 4
            assert joblib.effective_n_jobs(100) == 4
            in_progress = Parallel(n_jobs=2, batch_size=1, pre_dispatch="all")(
                delayed(AtOnce(str(tmp_path)))(number) for number in range(12)
            )
    assert max(in_progress) <= 2


def test_more_jobs_than_slots_may_use_workers_that_join_later(any_address: str) -> None:
    backend = ScalerBackend(address=any_address)
    slots = backend.effective_n_jobs(-1)
    for asked, limit in ((slots, slots), (slots + 100, slots + 100), (-1, None)):
        backend.configure(n_jobs=asked)
        assert backend._workers is not None and backend._workers._limit == limit
        backend.terminate()


@pytest.mark.parametrize(
    "slots_before, slots_now, most",
    [(4, 0, 2), (2, 4, 2), (2, 2, 12), (1, 0, 12)],
    ids=["not yet heard", "workers have joined", "as many as jobs", "fewer than jobs"],
)
def test_calls_beyond_the_limit_are_submitted_only_if_the_cluster_is_no_larger(
    slots_before: int, slots_now: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitter: Any = types.SimpleNamespace(_shell=types.SimpleNamespace(slots=slots_now))
    workers = Workers(submitter, 2, slots_before, mock.Mock(), None, None, mock.Mock())
    started: List[Any] = []
    monkeypatch.setattr(workers, "_start", started.append)
    for _ in range(12):
        workers.submit([], print)
    workers.stop()
    assert len(started) == most


# Arrays ---------------------------------------------------------------------------------------------------------------


def test_a_large_array_is_sent_once_and_shared_read_only(any_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = numpy.ones(300_000)
    sent: List[Any] = []
    with Client(any_address) as client, parallel_config("scaler", client=client.options(priority=1)):
        send_object = client.send_object

        def note_and_send(value: Any) -> Any:
            sent.append(value)
            return send_object(value)

        monkeypatch.setattr(client, "send_object", note_and_send)
        results = Parallel(batch_size=1)(delayed(about_array)(array=array) for _ in range(10))
        assert len(sent) == 1
        nested = Parallel(batch_size=1)(delayed(lambda given: about_array(given["x"][0]))({"x": [array]}) for _ in "ab")
        assert len(sent) == 2  # it might have changed between the two calls
        assert not client._shell.value_objects
    assert results == [(False, 300_000.0, True)] * 10
    assert nested == results[:2]


@pytest.mark.parametrize("options", [{"mmap_mode": "c"}, {"mmap_mode": None}, {"max_nbytes": None}])
def test_arrays_are_writable_copies_on_request(options: Any) -> None:
    array = numpy.ones(300_000)
    results = Parallel(**options)(delayed(about_array)(array) for _ in range(3))
    assert [(writable, total) for writable, total, _ in results] == [(True, 300_000.0)] * 3


def test_a_medium_array_is_sent_again_only_if_it_has_changed_and_calls_get_writable_copies(
    any_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = numpy.zeros(20_000)
    sent: List[Any] = []

    def calls() -> Iterator[Any]:
        for number in range(12):
            if number == 6:
                array[:] = 1.0
            yield delayed(about_array)(array)

    with Client(any_address) as client, parallel_config("scaler", client=client):
        send_object = client.send_object

        def note_and_send(value: Any) -> Any:
            sent.append(value)
            return send_object(value)

        monkeypatch.setattr(client, "send_object", note_and_send)
        results = Parallel(batch_size=1)(calls())
    assert [(writable, total) for writable, total, _ in results] == [(True, 0.0)] * 6 + [(True, 20_000.0)] * 6
    assert len(sent) == 2


def test_arrays_that_no_longer_exist_are_deleted_while_calls_go_on(any_address: str) -> None:
    most = 0

    def calls(client: Client) -> Iterator[Any]:
        nonlocal most
        for number in range(40):
            most = max(most, len(client._shell.value_objects))
            yield delayed(about_array)(numpy.full(200_000, number))

    with Client(any_address) as client, parallel_config("scaler", client=client):
        totals = [total for _, total, _ in Parallel(batch_size=1)(calls(client))]
    assert totals == [200_000.0 * number for number in range(40)]
    assert most < 20


def test_arrays_of_any_layout_arrive_as_they_are() -> None:
    arrays = [
        numpy.arange(400_000.0).reshape(400, 1000)[:, ::2],
        numpy.asfortranarray(numpy.arange(400_000).reshape(400, 1000)),
        numpy.array([{"an": "object"}] * 200_000, dtype=object),
    ]
    for array, returned in zip(arrays, Parallel()(delayed(numpy.array)(array) for array in arrays)):
        assert numpy.array_equal(array, returned)


def test_memory_maps_that_tasks_could_write_to_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"mmap_mode='r\+'"):
        Parallel(mmap_mode="r+")(delayed(square)(number) for number in range(3))


def test_arguments_of_the_backend_that_are_given_to_parallel_are_refused_with_what_to_write() -> None:
    with pytest.raises(
        ArgumentTypeError, match=r"does not take address, adress here; write parallel_config\('scaler', add"
    ):
        Parallel(n_jobs=2, backend="scaler", address="tcp://127.0.0.1:1", adress="")(
            delayed(square)(1) for _ in range(3)
        )
    with pytest.raises(ArgumentTypeError, match=r"does not take adress here\n"):
        Parallel(n_jobs=2, backend="scaler", adress="")(delayed(square)(1) for _ in range(3))


# Inside calls ---------------------------------------------------------------------------------------------------------


def nested_squares(count: int, n_jobs: Any) -> Tuple[str, List[int], List[int]]:
    parallel = Parallel(n_jobs=n_jobs)
    processes = parallel(delayed(process_id)() for _ in range(count))
    return type(parallel._backend).__name__, processes, parallel(delayed(square)(number) for number in range(count))


def test_nested_calls_use_the_same_cluster_without_waiting_for_each_other() -> None:
    results = Parallel()(delayed(nested_squares)(6, 2) for _ in range(4))
    assert [(name, squares) for name, _, squares in results] == [("ScalerBackend", [0, 1, 4, 9, 16, 25])] * 4


def test_nested_calls_that_ask_for_no_jobs_are_sequential() -> None:
    for name, processes, _ in Parallel()(delayed(nested_squares)(3, None) for _ in range(2)):
        assert name in ("ScalerBackend", "SequentialBackend")
        assert len(set(processes)) == 1


def threads_inside() -> Tuple[Optional[str], Optional[str], Optional[str]]:
    return os.environ.get("OMP_NUM_THREADS"), os.environ.get("OPENBLAS_NUM_THREADS"), os.environ.get("ENABLE_IPC")


def test_the_threads_inside_calls_are_limited_and_other_tasks_are_not(
    any_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with parallel_config("scaler", address=any_address, inner_max_num_threads=3):
        assert set(Parallel()(delayed(threads_inside)() for _ in range(2))) == {("3", "3", "1")}
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert {openmp for openmp, _, _ in Parallel()(delayed(threads_inside)() for _ in range(2))} == {"7"}
    with Client(any_address) as client:
        assert "7" not in [openmp for openmp, _, _ in client.map(lambda _: threads_inside(), range(4))]


def test_an_initializer_runs_once_in_each_process(tmp_path: Any) -> None:
    def begin(folder: str) -> None:
        with open(os.path.join(folder, str(os.getpid())), "a") as begun:
            begun.write("x")

    processes = Parallel(initializer=begin, initargs=(str(tmp_path),), batch_size=1)(
        delayed(process_id)() for _ in range(20)
    )
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {str(each): "x" for each in processes}


# Several Parallels ----------------------------------------------------------------------------------------------------


def test_results_of_one_parallel_feed_another() -> None:
    squares = Parallel(return_as="generator", batch_size=1)(delayed(square)(number) for number in range(30))
    total = Parallel(batch_size=1)(delayed(square)(number) for number in squares)
    assert total == [number**4 for number in range(30)]


def test_a_generator_that_is_dropped_cancels_its_calls_only() -> None:
    kept = Parallel(return_as="generator", batch_size=1)(delayed(square)(number) for number in range(30))
    dropped: Any = Parallel(return_as="generator", batch_size=1)(delayed(time.sleep)(1000) for _ in range(4))
    with pytest.warns(UserWarning, match="have been cancelled"):
        del dropped
    assert list(kept) == [number * number for number in range(30)]


def test_threads_may_call_at_once(any_address: str) -> None:
    def call() -> Any:
        with parallel_config("scaler", address=any_address):
            return Parallel(batch_size=1)(delayed(square)(number) for number in range(20))

    with ThreadPoolExecutor() as threads:  # whose results say how a call has failed
        calls = [threads.submit(call) for _ in range(3)]
    assert [each.result(TIMEOUT_SECONDS) for each in calls] == [[number * number for number in range(20)]] * 3


# Which cluster --------------------------------------------------------------------------------------------------------


def test_without_a_scheduler_a_local_cluster_is_started_and_reused(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path))
    monkeypatch.delenv("SCALER_ADDRESS", raising=False)
    tmp_path.chmod(0o700)
    first = Parallel(n_jobs=2, backend="scaler")(delayed(process_id)() for _ in range(8))
    again = Parallel(n_jobs=2, backend="scaler")(delayed(process_id)() for _ in range(8))
    assert set(first) & set(again)
    assert os.getpid() not in first


def test_a_cluster_without_workers_is_waited_for_and_then_an_error() -> None:
    with SchedulerClusterCombo(n_workers=0, logging_level="WARNING") as combo:
        with parallel_config("scaler", address=combo.get_address(), wait_for_workers=0.01):
            with pytest.raises(NoWorkerError, match="scaler_cluster"):
                Parallel()(delayed(square)(number) for number in range(3))


def test_invalid_arguments_are_refused(any_client: Client) -> None:
    with pytest.raises(ArgumentTypeError, match="client must be"):
        ScalerBackend(client=any_client.get)  # type: ignore[arg-type]  # the error is tested
    with pytest.raises(InvalidArgumentError, match="contradict"):
        ScalerBackend(address="tcp://127.0.0.1:1", client=any_client)
    with pytest.raises(ArgumentTypeError, match="max_tasks"):
        Parallel(backend="scaler", max_tasks=3)(delayed(square)(number) for number in range(3))
    with pytest.raises(ValueError, match="n_jobs == 0"):
        Parallel(n_jobs=0)([])


def test_options_of_the_client_are_those_of_the_calls(any_client: Client) -> None:
    backend = scaler.joblib.ScalerBackend(client=any_client.options(timeout=0.2))
    with parallel_config(backend), pytest.raises(TaskTimeoutError):
        Parallel()(delayed(time.sleep)(1000) for _ in range(2))
