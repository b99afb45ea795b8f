"""`async def` functions as tasks, and what looks like one."""

from __future__ import annotations

import asyncio
import decimal
import functools
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, AsyncIterator, Iterator, List

import pytest
from sdk_tasks import wait_until

from scaler import Client, SchedulerClusterCombo
from scaler.exceptions import ResultNotSerializableError, SerializeObjectError, TaskTimeoutError
from scaler.values.coroutines import Runner

TIMEOUT_SECONDS = 30.0


async def add(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


class Adder:
    """A callable object, and methods, that are `async def`."""

    async def __call__(self, number: int) -> int:
        return await add(number, 10)

    async def method(self, number: int) -> int:
        return await add(number, 20)

    @classmethod
    async def of_class(cls, number: int) -> int:
        return await add(number, 30)


async def fail(number: int) -> None:
    await asyncio.sleep(0)
    raise KeyError(number)


def plain(number: int) -> int:
    return number


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (add, 2),
        (functools.partial(add, b=5), 6),
        (functools.partial(functools.partial(add, 7)), 8),
        (Adder(), 11),
        (functools.partial(Adder()), 11),
        (Adder().method, 21),
        (Adder.of_class, 31),
    ],
    ids=["function", "partial", "partial of partial", "object", "partial of object", "method", "class method"],
)
def test_an_async_function_in_every_form_returns_its_result(any_client: Client, function: Any, expected: int) -> None:
    calls = functools.partial(function) if isinstance(function, functools.partial) and function.args else function
    arguments = () if calls is not function else (1,)
    assert any_client.submit(calls, *arguments).result(TIMEOUT_SECONDS) == expected
    assert any_client.get({"one": (calls, *arguments), "list": (list, ["one"])}, ["list"]) == {"list": [expected]}
    if arguments:
        assert any_client.map(calls, [1] * 20) == [expected] * 20
        assert any_client.starmap(calls, [(1,)]) == [expected]


def test_it_may_be_called_inside_the_arguments_of_a_graphs_node(any_client: Client) -> None:
    assert any_client.get({"a": (add, (add, 1), (add, 2))}, ["a"]) == {"a": 5}


def test_it_is_profiled_and_its_output_comes_here(any_client: Client) -> None:
    async def say() -> str:
        print("before")
        await asyncio.sleep(0.01)
        print("after")
        return "done"

    output: List[Any] = []
    with Client(any_client._address, stream_output=output.append, profiling=True) as client:
        future = client.submit(say)
        assert future.result(TIMEOUT_SECONDS) == "done"
        assert future.profiling_info().duration_us >= 10_000
    assert "".join(each.text for each in output) == "before\nafter\n"


def test_its_exception_has_the_users_frames_alone(any_client: Client) -> None:
    for raise_it in (
        lambda: any_client.submit(fail, 5).result(TIMEOUT_SECONDS),
        lambda: any_client.map(fail, [5]),
    ):
        with pytest.raises(KeyError, match="5") as raised:
            raise_it()
        text = str(raised.value.__cause__)
        assert "in fail" in text and text.count("File ") == 1


def test_a_time_limit_and_a_cancel_stop_it_while_it_waits(any_client: Client, tmp_path: Path) -> None:
    async def hang(running: str) -> None:
        Path(running).touch()
        await asyncio.sleep(300)

    with pytest.raises(TaskTimeoutError):
        any_client.options(timeout=0.1).submit(hang, str(tmp_path / "limited")).result(TIMEOUT_SECONDS)
    future = any_client.submit(hang, str(tmp_path / "running"))
    wait_until(tmp_path / "running")
    assert future.cancel()


@pytest.mark.parametrize("in_a_map", [False, True])
def test_a_call_leaves_nothing_to_the_next_one(any_client: Client, in_a_map: bool) -> None:
    async def leave(number: int) -> Any:
        before = (decimal.getcontext().prec, len(asyncio.all_tasks()))  # of a context variable
        decimal.setcontext(decimal.Context(prec=number))
        asyncio.get_running_loop().create_task(asyncio.sleep(300))
        return before

    numbers = range(1, 40)
    if in_a_map:
        results = any_client.map(leave, numbers)
    else:
        results = [future.result(TIMEOUT_SECONDS) for future in [any_client.submit(leave, n) for n in numbers]]
    assert results == [(28, 1)] * len(numbers)


def test_the_runner_cancels_what_is_left_and_closes_generators_and_threads(caplog: pytest.LogCaptureFixture) -> None:
    closed: List[str] = []
    pool: List[ThreadPoolExecutor] = []

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append("generator")

    async def wait() -> None:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            closed.append("task")
            raise RuntimeError("while it is cancelled") from None

    kept: List[Any] = []

    async def main() -> str:
        generator = generate()
        kept.append(generator)
        assert await generator.__anext__() == 1
        asyncio.get_running_loop().create_task(wait())
        await asyncio.get_running_loop().run_in_executor(None, plain, 1)
        pool.append(asyncio.get_running_loop()._default_executor)  # type: ignore[attr-defined]  # private
        return "result"

    with Runner() as runner:
        assert runner.run(main()) == "result"
        assert closed == ["task"] and "while it is cancelled" in caplog.text
    assert closed == ["task", "generator"]
    with pytest.raises(RuntimeError, match="shutdown"):
        pool[0].submit(plain, 1)


# Nested tasks ---------------------------------------------------------------------------------------------------------


async def fibonacci(n: int) -> int:
    if n < 2:
        return n
    with Client() as client:
        return sum(await asyncio.gather(client.submit(fibonacci, n - 1), client.submit(fibonacci, n - 2)))


async def one_after_the_other(client: Client) -> List[int]:
    first = await client.submit(add, 1)
    return [first, await asyncio.wait_for(client.submit(add, first), TIMEOUT_SECONDS), sum(client.map(add, [1, 2]))]


async def give_up(client: Client) -> int:
    """One wait is given up while another one goes on."""
    slow = client.submit(asyncio.sleep, 300)
    try:
        await asyncio.wait_for(slow, 0.05)
    except asyncio.TimeoutError:
        pass
    return await client.submit(add, 41)


async def ask_in_a_thread(client: Client) -> int:
    return await asyncio.get_running_loop().run_in_executor(None, client.submit(add, 1).result)


async def wrap(client: Client) -> List[int]:
    return list(await asyncio.gather(*[asyncio.wrap_future(client.submit(add, number)) for number in range(3)]))


@pytest.fixture(scope="module")
def only_slot() -> Iterator[Client]:
    with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as combo, Client(combo.get_address()) as client:
        yield client


def test_coroutines_wait_for_tasks_of_their_own_on_a_single_slot(only_slot: Client) -> None:
    assert only_slot.submit(fibonacci, 5).result(TIMEOUT_SECONDS) == 5
    futures = [only_slot.submit(one_after_the_other, only_slot) for _ in range(5)]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [[2, 3, 5]] * 5
    assert only_slot.map(fibonacci, [3, 4]) == [2, 3]
    assert only_slot.submit(give_up, only_slot).result(TIMEOUT_SECONDS) == 42
    assert only_slot.submit(wrap, only_slot).result(TIMEOUT_SECONDS) == [1, 2, 3]
    assert only_slot.submit(ask_in_a_thread, only_slot).result(TIMEOUT_SECONDS) == 2
    assert only_slot.get({"a": (fibonacci, 4), "b": (add, "a")}, ["b"]) == {"b": 4}


# What is no result ----------------------------------------------------------------------------------------------------


def generate() -> Iterator[int]:
    yield 1


async def generate_later() -> AsyncIterator[int]:
    yield 1


def test_what_cannot_leave_its_process_says_what_to_do_instead(any_client: Client) -> None:
    for function, advice in [
        (generate, "use list(...) of it"),
        (lambda: [generate()], "use list(...) of it"),
        (lambda: add(1), "make the task's function `async def` and await it there"),
        (generate_later, "use a list, [item async for item in ...]"),
    ]:
        with pytest.raises(ResultNotSerializableError, match=re.escape(advice)):
            any_client.submit(function).result(TIMEOUT_SECONDS)
    with pytest.raises(SerializeObjectError, match="use list"):
        any_client.submit(sum, (number for number in range(3)))
