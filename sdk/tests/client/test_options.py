"""Each option of a task does what it says, from the client to the process that runs it."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from sdk_tasks import identity, wait_for_file, wait_until

from scaler import Client, Cluster, Scheduler, SchedulerClusterCombo
from scaler.client.client_options import Options
from scaler.client.core.outbox import Outbox, TaskRun
from scaler.exceptions import (
    ProcessorDiedError,
    RemoteTraceback,
    ScalerError,
    TaskMemoryLimitError,
    TaskTimeoutError,
    WorkerDiedError,
)

TIMEOUT_SECONDS = 30.0


def append(path: str, text: str) -> None:
    """Write down that a task ran; appending is atomic."""
    with open(path, "a") as file:
        file.write(text)


def die_until(path: str, attempts: int) -> str:
    """Kill the processor until so many attempts were made."""
    append(path, "x")
    if len(Path(path).read_text()) < attempts:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def everything(*args: Any, **kwargs: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    return args, kwargs


@pytest.fixture(scope="module")
def one_worker() -> Iterator[Client]:
    with SchedulerClusterCombo(n_workers=1, logging_level="ERROR") as combo, Client(combo.get_address()) as client:
        yield client


# The view -------------------------------------------------------------------------------------------------------------


def test_the_functions_own_keywords_stay_its_own(client: Client) -> None:
    view = client.options(priority=3, timeout=60, retries=2)
    keywords = {"priority": "a", "timeout": "b", "capabilities": "c", "profiling": "d", "fn": "e", "self": "f"}
    assert view.submit(everything, 1, **keywords).result(TIMEOUT_SECONDS) == ((1,), keywords)
    assert client.submit_verbose(everything, (1,), keywords).result(TIMEOUT_SECONDS) == ((1,), keywords)


def test_a_view_maps(client: Client) -> None:
    view = client.options(priority=3)
    assert view.map(identity, range(1000)) == list(range(1000))
    assert view.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
    assert view.map(pow, [2, 3], [3, 2]) == [8, 9]


def test_a_view_runs_graphs_with_its_options(client: Client, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "ab"]
    graph = {"a": (die_until, paths[0], 2), "b": (die_until, paths[1], 2), "both": (everything, "a", "b")}
    view = client.options(retries=1, profiling=True)
    assert view.get(graph, ["both", "a"]) == {"both": (("survived", "survived"), {}), "a": "survived"}
    assert [Path(path).read_text() for path in paths] == ["xx", "xx"]

    graph["c"] = (die_until, str(tmp_path / "c"), 99)
    futures = view.submit_graph(graph, ["both", "c"])
    assert futures[0].result(TIMEOUT_SECONDS) and futures[0].profiling_info().duration_us > 0
    with pytest.raises(ProcessorDiedError, match="attempt 2"):
        futures[1].result(TIMEOUT_SECONDS)


def test_views_are_refined_and_leave_each_other_alone(client: Client) -> None:
    first = client.options(priority=3, retries=1)
    second = first.options(retries=0, at_most_once=True)
    assert first._options == Options(priority=3, retries=1)
    assert second._options == Options(priority=3, at_most_once=True)
    assert client._options == Options()
    assert "'priority': 3" in repr(second) and "Client" in repr(second)


def test_a_view_is_passed_to_a_task(one_worker: Client) -> None:
    def parent(view: Any) -> List[int]:
        return [view.submit(abs, -1).result(), view._options.priority]

    view = one_worker.options(priority=7)
    assert one_worker.submit(parent, view).result(TIMEOUT_SECONDS) == [1, 7]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"capabilities": ["gpu"]}, TypeError, "must be a dict"),
        ({"capabilities": {"gpu": "1"}}, TypeError, "amount of 'gpu' must be a number"),
        ({"capabilities": {"": 1}}, TypeError, "the name .* must be a non-empty str"),
        ({"capabilities": {"gpu": -2}}, ValueError, "amount of 'gpu' must be finite and >= 0, got -2"),
        ({"capabilities": {"gpu": float("nan")}}, ValueError, "must be finite"),
        ({"capabilities": {"gpu": 10**400}}, ValueError, "must be finite"),
        ({"priority": 1.5}, TypeError, "priority must be a whole number"),
        ({"priority": 1 << 31}, ValueError, "priority must be"),
        ({"retries": -1}, ValueError, "retries must be >= 0 and < 65536, got -1"),
        ({"retries": True}, TypeError, "retries must be a whole number"),
        ({"timeout": [1]}, TypeError, "timeout must be a duration: .* got list"),
        ({"timeout": "30 parsecs"}, ValueError, "timeout must be a duration: .* got '30 parsecs'"),
        ({"timeout": "-5s"}, ValueError, "timeout"),
        ({"timeout": -1}, ValueError, "timeout must be >= 0 and < .* seconds, got -1"),
        ({"timeout": float("inf")}, ValueError, "timeout must be .* got inf"),
        ({"memory_limit": "1G"}, ValueError, "memory_limit must be a size: .* got '1G'"),
        ({"memory_limit": 1.5}, TypeError, "memory_limit must be a size: .* got float"),
        ({"at_most_once": 1}, TypeError, "at_most_once must be True or False"),
        ({"profiling": "yes"}, TypeError, "profiling must be True or False"),
        ({"stream_output": print}, TypeError, "stream_output must be True or False"),
        ({"retries": 1, "at_most_once": True}, ValueError, "contradict each other"),
    ],
)
def test_a_bad_option_is_named(any_client: Client, options: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        any_client.options(**options)
    assert isinstance(caught.value, ScalerError)


def test_durations_and_sizes_may_have_units(any_client: Client) -> None:
    view = any_client.options(timeout="1min30s", memory_limit="1GB")
    assert (view._options.timeout, view._options.memory_limit) == (90.0, 10**9)
    assert view.submit(abs, -1).result(TIMEOUT_SECONDS) == 1
    smaller = any_client.options(timeout="250ms", memory_limit="1GiB")
    assert smaller._options == Options(timeout=0.25, memory_limit=1 << 30)


def test_tasks_of_equal_options_share_a_batch() -> None:
    outbox = Outbox(find_object=lambda object_id: None)
    for number, options in enumerate(
        [
            Options(),
            Options(),
            Options(priority=1, capabilities=(("gpu", 1.0),)),
            Options(priority=1).refined(capabilities={"gpu": 1}),
            Options(priority=2),
        ]
    ):
        outbox.add_task(1, number, b"", (), options.message())
    messages = [run.message(lambda object_id: object_id)[0] for run in outbox.take() if isinstance(run, TaskRun)]
    assert [(list(task.ids), task.options.priority) for task in messages] == [([0, 1], 0), ([2, 3], 1), ([4], 2)]


def test_options_survive_pickling() -> None:
    options = Options(capabilities=(("gpu", 1.0),), priority=-5, timeout=0.5)
    assert pickle.loads(pickle.dumps(options)) == options
    message = options.message()
    assert message is not None and (message.time_limit_milliseconds, message.priority) == (500, -5)


# Capabilities ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["per worker", "of the host"])
def equipped(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Four workers that have two of `gpu` together, and that all are `linux`."""
    options: Dict[str, Any] = (
        {"per_worker_capabilities": {"gpu": 0.5, "linux": -1}}
        if request.param == "per worker"
        else {"capabilities": {"gpu": 2, "linux": -1}}
    )
    with SchedulerClusterCombo(n_workers=4, logging_level="ERROR", **options) as combo:
        with Client(combo.get_address()) as client:
            yield client


def test_capabilities_of_a_graphs_nodes_are_counted(equipped: Client) -> None:
    view = equipped.options(capabilities={"gpu": 1})
    graph: Dict[Any, Any] = {str(number): (identity, number) for number in range(20)}
    graph["all"] = (everything, *map(str, range(20)))
    assert view.get(graph, ["all"]) == {"all": (tuple(range(20)), {})}
    [impossible] = equipped.options(capabilities={"gpu": 1000}).submit_graph({"a": (identity, 1)}, ["a"])
    assert "gpu=1000" in equipped.explain(impossible) and impossible.cancel()


def test_capabilities_are_counted(equipped: Client, tmp_path: Path) -> None:
    view = equipped.options(capabilities={"gpu": 1})
    futures = [view.submit(wait_for_file, str(tmp_path / "go"), str(tmp_path / f"r{n}")) for n in range(4)]
    plain = [equipped.submit(identity, number) for number in range(100)]
    wait_until(tmp_path / "r0")
    wait_until(tmp_path / "r1")
    assert [future.result(TIMEOUT_SECONDS) for future in plain] == list(range(100)), "two slots are left for others"
    assert not (tmp_path / "r2").exists() and not (tmp_path / "r3").exists()
    (tmp_path / "go").touch()
    assert all(future.result(TIMEOUT_SECONDS) for future in futures)


def test_a_name_alone_is_asked_for_in_either_generations_way(equipped: Client) -> None:
    for amount in (0, -1, 1, 1000):
        view = equipped.options(capabilities={"linux": amount})
        assert [view.submit(identity, n).result(TIMEOUT_SECONDS) for n in range(10)] == list(range(10))
    assert equipped.submit_verbose(identity, (1,), {}, capabilities={"gpu": 2}).result(TIMEOUT_SECONDS) == 1
    assert equipped.map(identity, range(100), capabilities={"gpu": 1}) == list(range(100))
    assert equipped.starmap(pow, [(2, 2)], capabilities={"linux": -1}) == [4]


def test_a_capability_that_no_worker_offers_waits_without_blocking_others(equipped: Client) -> None:
    waiting = equipped.options(capabilities={"gpu": 3}).submit(identity, 1)
    unknown = equipped.options(capabilities={"unobtainium": 0}).submit(identity, 1)
    assert [equipped.submit(identity, n).result(TIMEOUT_SECONDS) for n in range(10)] == list(range(10))
    assert not waiting.done() and not unknown.done()
    assert waiting.cancel(TIMEOUT_SECONDS) and unknown.cancel(TIMEOUT_SECONDS)


# Priority, retries, at most once --------------------------------------------------------------------------------------


def test_tasks_of_higher_priority_start_first(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    with Scheduler(logging_level="ERROR") as scheduler, Client(scheduler.get_address()) as client:
        futures = [client.options(priority=p).submit(append, log, f"{p} ") for p in (0, -1, 5, 0, 9, -1, 5)]
        assert futures.pop().cancel(TIMEOUT_SECONDS), "so all of them have arrived, before there is a worker"
        with Cluster(scheduler.get_address(), n_workers=1, logging_level="ERROR"):
            for future in futures:
                future.result(TIMEOUT_SECONDS)
    assert Path(log).read_text() == "9 5 0 0 -1 -1 "


def test_retries_run_a_task_again_whose_processor_died(client: Client, tmp_path: Path) -> None:
    view = client.options(retries=3)
    assert view.submit(die_until, str(tmp_path / "a"), 3).result(TIMEOUT_SECONDS) == "survived"
    with pytest.raises(ProcessorDiedError, match="attempt 4") as raised:
        view.submit(die_until, str(tmp_path / "b"), 99).result(TIMEOUT_SECONDS)
    assert len((tmp_path / "b").read_text()) == 4
    for part in ("task die_until", "signal 9 (SIGKILL)", f"on {os.uname().nodename}", "retries="):
        assert part in str(raised.value)


def test_without_retries_a_task_runs_once(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ProcessorDiedError, match="attempt 1"):
        client.submit(die_until, str(tmp_path / "a"), 99).result(TIMEOUT_SECONDS)
    assert (tmp_path / "a").read_text() == "x"


def test_a_task_at_most_once_ends_with_its_worker_and_others_run_again(tmp_path: Path) -> None:
    once, again, go = tmp_path / "once", tmp_path / "again", tmp_path / "go"

    def step(log: str) -> None:
        append(log, "x")
        wait_for_file(str(go))

    with SchedulerClusterCombo(n_workers=2, logging_level="CRITICAL") as combo, Client(combo.get_address()) as client:
        lost = client.options(at_most_once=True).submit(step, str(once))
        repeated = client.submit(step, str(again))
        wait_until(once)
        wait_until(again)
        while (once.read_text(), again.read_text()) != ("x", "x"):
            pass  # the files are there, what is written in them follows
        assert combo.cluster.pid is not None
        os.kill(combo.cluster.pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=r"task .*step.*not run again"):
            lost.result(TIMEOUT_SECONDS)
        go.touch()
        with Cluster(combo.get_address(), n_workers=1, logging_level="CRITICAL") as cluster:
            repeated.result(TIMEOUT_SECONDS)
            assert cluster.is_alive()
    assert (once.read_text(), again.read_text()) == ("x", "xx")


def test_no_finished_task_runs_again_because_a_neighbour_at_most_once_kills_its_processor(
    one_worker: Client, tmp_path: Path
) -> None:
    log = str(tmp_path / "log")

    def step(number: int) -> int:
        append(log, f"{number} ")
        if number == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    view = one_worker.options(at_most_once=True)
    futures = [view.submit(step, number) for number in range(100)]
    for number, future in enumerate(futures):
        if number == 50:
            with pytest.raises(ProcessorDiedError):
                future.result(TIMEOUT_SECONDS)
        else:
            assert future.result(TIMEOUT_SECONDS) == number
    assert sorted(map(int, Path(log).read_text().split())) == list(range(100))


# Limits ---------------------------------------------------------------------------------------------------------------


def sleep_long() -> None:
    time.sleep(300)


def hold_the_interpreter_lock() -> None:
    ctypes.PyDLL(None).sleep(300)


def block_all_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(300)


def wait_for_a_thread() -> None:
    thread = threading.Thread(target=time.sleep, args=(300,), daemon=True)
    thread.start()
    thread.join()


@pytest.mark.parametrize("function", [sleep_long, hold_the_interpreter_lock, wait_for_a_thread])
def test_a_time_limit_stops_the_function_and_reports_its_stack(client: Client, function: Any) -> None:
    neighbours = [client.submit(identity, number) for number in range(100)]
    with pytest.raises(TaskTimeoutError) as raised:
        client.options(timeout=0.1).submit(function).result(TIMEOUT_SECONDS)
    for part in (f"task {function.__name__}", f"on {os.uname().nodename}", "attempt 1", "0.1 seconds", "timeout="):
        assert part in str(raised.value)
    cause = raised.value.__cause__
    assert isinstance(cause, RemoteTraceback) and "most recent call last" in cause.text
    assert f", in {function.__name__}\n" in cause.text
    assert "chunk_runner" not in cause.text and "processor.py" not in cause.text, "the user's frames, not ours"
    assert [neighbour.result(TIMEOUT_SECONDS) for neighbour in neighbours] == list(range(100))


def test_a_function_that_blocks_all_signals_is_stopped_without_a_stack(any_client: Client) -> None:
    with pytest.raises(TaskTimeoutError) as raised:
        any_client.options(timeout=0.1).submit(block_all_signals).result(TIMEOUT_SECONDS)
    assert "stack is not known" in str(raised.value.__cause__)


def test_a_time_limit_is_that_of_each_task_and_of_each_item_of_a_map(any_client: Client) -> None:
    view = any_client.options(timeout=5)
    start = time.monotonic()
    while time.monotonic() - start < 0.1:
        assert [future.result() for future in [view.submit(identity, n) for n in range(50)]] == list(range(50))
    assert view.map(identity, range(50)) == list(range(50))
    with pytest.raises(TaskTimeoutError):
        any_client.options(timeout=0.2).map(time.sleep, [0, 0, 300, 0])


def test_time_spent_on_loading_the_function_does_not_count(any_client: Client) -> None:
    class Slow:
        def __reduce__(self) -> Any:
            return (time.sleep, (0.6,))

    slow = Slow()

    def function() -> bool:
        return slow is None

    assert any_client.options(timeout=0.3).submit(function).result(TIMEOUT_SECONDS) is True


def test_a_memory_limit_stops_the_function_and_reports_its_stack(client: Client) -> None:
    def eat() -> None:
        pieces = []
        for _ in range(300):
            pieces.append(b"x" * (1 << 20))
        time.sleep(300)

    with pytest.raises(TaskMemoryLimitError, match="memory_limit=") as raised:
        client.options(memory_limit=200 << 20).submit(eat).result(TIMEOUT_SECONDS)
    assert "eat" in str(raised.value) and ", in eat" in str(raised.value.__cause__)
    assert client.options(memory_limit=1 << 30).submit(identity, 1).result(TIMEOUT_SECONDS) == 1


# submit_verbose -------------------------------------------------------------------------------------------------------


def test_a_function_is_serialised_again_when_asked(any_client: Client) -> None:
    state = [1]

    def total() -> int:
        return sum(state)

    assert any_client.submit_verbose(total, (), {}).result(TIMEOUT_SECONDS) == 1
    state.append(2)
    assert any_client.submit_verbose(total, (), {}).result(TIMEOUT_SECONDS) == 3
    assert any_client.submit_verbose(total, (), {}, reserialize=True).result(TIMEOUT_SECONDS) == 3
    assert any_client.submit(total).result(TIMEOUT_SECONDS) == 3
    record = any_client._shell.functions.find(total)
    assert record is not None and record.uses == 1
