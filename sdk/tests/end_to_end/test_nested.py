"""Tasks that submit tasks and wait for them: none waits for ever, for any number of workers, and processes are few."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import CancelledError, as_completed, wait
from pathlib import Path
from typing import Any, FrozenSet, Iterator, List, Tuple

import pytest
from sdk_tasks import identity, wait_for_file, wait_until

from scaler import Client, SchedulerClusterCombo
from scaler.client.submitter import Submitter
from scaler.exceptions import ProcessorDiedError, RemoteTraceback

TIMEOUT_SECONDS = 60.0


@pytest.fixture(scope="module")
def one_worker_address() -> Iterator[str]:
    with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as combo:
        yield combo.get_address()


@pytest.fixture
def one_worker(one_worker_address: str) -> Iterator[Client]:
    with Client(address=one_worker_address) as client:
        yield client


def fibonacci(client: Client, n: int) -> int:
    if n < 2:
        return n
    first, second = client.submit(fibonacci, client, n - 1), client.submit(fibonacci, client, n - 2)
    return first.result() + second.result()


def test_recursion_on_one_worker(one_worker: Client) -> None:
    assert one_worker.submit(fibonacci, one_worker, 8).result(TIMEOUT_SECONDS) == 21


@pytest.mark.slow
@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize("n, number", [(9, 34), pytest.param(16, 987, marks=pytest.mark.exhaustive)])
def test_deep_recursion_on_four_workers(n: int, number: int, client: Client) -> None:
    assert client.submit(fibonacci, client, n).result(TIMEOUT_SECONDS) == number


def fibonacci_and_processes(client: Client, n: int) -> Tuple[int, FrozenSet[int]]:
    """The number, and which processes took part."""
    if n < 2:
        return n, frozenset([os.getpid()])
    futures = [
        client.submit(fibonacci_and_processes, client, n - 1),
        client.submit(fibonacci_and_processes, client, n - 2),
    ]
    results = [future.result() for future in futures]
    return sum(number for number, _ in results), frozenset([os.getpid()]).union(*(ids for _, ids in results))


def test_processes_are_as_many_as_the_recursion_is_deep_and_not_as_it_is_wide(one_worker: Client) -> None:
    """Of 753 tasks 376 wait for others, but few at a time: what a task submits runs before its siblings."""
    number, processes = one_worker.submit(fibonacci_and_processes, one_worker, 13).result(TIMEOUT_SECONDS)
    assert number == 233
    assert len(processes) < 80


def ask_child(client: Client, number: int) -> int:
    result: int = client.submit(identity, number).result()
    return result


def test_many_parents_on_few_workers(any_client: Client) -> None:
    futures = [any_client.submit(ask_child, any_client, number) for number in range(200)]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(200))


def ask_child_when_all_run(client: Client, number: int, mine: str, others: str) -> int:
    wait_for_file(others, running=mine)
    return ask_child(client, number)


def test_parents_that_hold_every_slot_at_once(any_client: Client, tmp_path: Path) -> None:
    """While a parent waits, its child gets the slot: otherwise neither could ever continue."""
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    futures = [
        any_client.submit(ask_child_when_all_run, any_client, 1, first, second),
        any_client.submit(ask_child_when_all_run, any_client, 2, second, first),
    ]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [1, 2]


def chain(client: Client, depth: int) -> int:
    return depth if depth == 0 else 1 + client.submit(chain, client, depth - 1).result()


def test_a_chain_far_longer_than_there_are_slots(one_worker: Client) -> None:
    assert one_worker.submit(chain, one_worker, 40).result(TIMEOUT_SECONDS) == 40


def by_wait(client: Client, count: int) -> List[int]:
    futures = [client.submit(identity, number) for number in range(count)]
    done, _ = wait(futures)
    return sorted(future.result() for future in done)


def by_as_completed(client: Client, count: int) -> List[int]:
    futures = [client.submit(identity, number) for number in range(count)]
    return sorted(future.result() for future in as_completed(futures))


def by_await(client: Client, count: int) -> List[int]:
    async def gather() -> List[int]:
        return list(await asyncio.gather(*(client.submit(identity, number) for number in range(count))))

    return asyncio.run(gather())


def by_exception(client: Client, count: int) -> List[int]:
    futures = [client.submit(identity, number) for number in range(count)]
    return [number for number, future in enumerate(futures) if future.exception() is None]


def by_graph(client: Client, count: int) -> List[int]:
    keys = [(number,) for number in range(count)]
    return list(client.get({key: (identity, key[0]) for key in keys}, keys).values())


@pytest.mark.parametrize("way", [by_wait, by_as_completed, by_await, by_exception, by_graph])
def test_however_a_task_waits_it_frees_its_slot(one_worker: Client, way: Any) -> None:
    futures = [one_worker.submit(way, one_worker, 5) for _ in range(20)]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [list(range(5))] * 20


# Ways to a client and to submit ---------------------------------------------------------------------------------------


def countdown(levels: int) -> List[int]:
    if levels == 0:
        return [0]
    with Client() as client:
        return [levels, *client.submit(countdown, levels - 1).result()]


def test_a_client_without_address_finds_its_scheduler_in_a_task(any_client: Client) -> None:
    assert any_client.submit(countdown, 3).result(TIMEOUT_SECONDS) == [3, 2, 1, 0]


def double_all(client: Client, numbers: List[int]) -> List[int]:
    return client.map(_double, numbers)


def _double(number: int) -> int:
    return 2 * number


def test_maps_inside_maps(one_worker: Client) -> None:
    rows = [list(range(start, start + 20)) for start in range(10)]
    assert one_worker.map(lambda row: double_all(one_worker, row), rows) == [
        [2 * number for number in row] for row in rows
    ]


def sum_by_graph(client: Client, numbers: List[int]) -> int:
    """A graph whose nodes are tasks that run graphs."""
    if len(numbers) == 1:
        return numbers[0]
    half = len(numbers) // 2
    graph = {
        "left": (sum_by_graph, client, numbers[:half]),
        "right": (sum_by_graph, client, numbers[half:]),
        "sum": (lambda left, right: left + right, "left", "right"),
    }
    result: int = client.get(graph, ["sum"])["sum"]
    return result


def test_graphs_inside_graphs_on_one_worker(one_worker: Client) -> None:
    assert one_worker.get({"all": (sum_by_graph, one_worker, list(range(16)))}, ["all"]) == {"all": 120}


def priorities(client: Submitter, levels: int) -> List[int]:
    options = client._travelling_options()
    mine = [options.priority if options is not None else 0]
    return mine + (client.submit(priorities, client, levels - 1).result() if levels else [])


def test_what_a_task_submits_runs_before_its_siblings(any_client: Client) -> None:
    assert any_client.submit(priorities, any_client, 2).result(TIMEOUT_SECONDS) == [1, 2, 3]
    view = any_client.options(priority=5)
    assert view.submit(priorities, any_client, 1).result(TIMEOUT_SECONDS) == [6, 7]
    assert any_client.submit(priorities, view, 1).result(TIMEOUT_SECONDS) == [5, 6]
    lowest = any_client.options(priority=-(1 << 31))
    assert lowest.submit(priorities, lowest, 1).result(TIMEOUT_SECONDS) == [1 - (1 << 31), 2 - (1 << 31)]
    highest = any_client.options(priority=(1 << 31) - 1)
    assert highest.submit(priorities, any_client, 1).result(TIMEOUT_SECONDS) == [(1 << 31) - 1] * 2


# Ends -----------------------------------------------------------------------------------------------------------------


def ask_for_ever(client: Client, running: str, never: str, levels: int) -> str:
    Path(f"{running}{levels}.new").write_text(str(os.getpid()))
    os.rename(f"{running}{levels}.new", f"{running}{levels}")  # this process may be stopped as soon as the file is seen
    if levels == 0:
        return wait_for_file(never, seconds=600.0)
    return str(client.submit(ask_for_ever, client, running, never, levels - 1).result())


@pytest.mark.parametrize("by", ["cancel", "clear", "disconnect"])
def test_children_end_with_their_parent(any_address: str, tmp_path: Path, by: str) -> None:
    running = str(tmp_path / "running")
    with Client(address=any_address) as client:
        futures = [client.submit(ask_for_ever, client, f"{running}{n}-", str(tmp_path / "never"), 2) for n in range(2)]
        leaves = [Path(f"{running}{n}-0") for n in range(2)]
        for leaf in leaves:
            wait_until(leaf)
        if by == "cancel":
            assert all(future.cancel() for future in futures)
        elif by == "clear":
            client.clear()
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(TIMEOUT_SECONDS)
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    with Client(address=any_address) as client:  # both slots are free again
        meeting = [client.submit(wait_for_file, first, second), client.submit(wait_for_file, second, first)]
        wait(meeting, TIMEOUT_SECONDS)
        assert [future.exception(0) for future in meeting] == [None, None]
        for process_id in (int(leaf.read_text()) for leaf in leaves):
            assert client.submit(wait_for_end_of_process, process_id).result(TIMEOUT_SECONDS)


def wait_for_end_of_process(process_id: int) -> bool:
    import time

    deadline = time.monotonic() + TIMEOUT_SECONDS
    while os.path.exists(f"/proc/{process_id}") and time.monotonic() < deadline:
        time.sleep(0.01)
    return not os.path.exists(f"/proc/{process_id}")


def let_child(client: Client, function: Any, *arguments: Any) -> Any:
    return client.submit(function, *arguments).result()


def test_a_childs_failure_is_its_parents(any_client: Client) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        any_client.submit(let_child, any_client, lambda: 1 // 0).result(TIMEOUT_SECONDS)
    assert type(raised.value.__cause__) is RemoteTraceback and "in let_child" in str(raised.value.__cause__)
    with pytest.raises(ProcessorDiedError, match="code 3"):
        any_client.submit(let_child, any_client, os._exit, 3).result(TIMEOUT_SECONDS)
    futures = [any_client.submit(ask_child, any_client, number) for number in range(10)]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(10))
