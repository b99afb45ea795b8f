"""Futures as arguments: a task waits for others and gets their results."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import pickle
import threading
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from sdk_tasks import identity, wait_for_file

from scaler import Client, NamedFunction, ScalerFuture, Serializer
from scaler.client.core.commands import Barrier
from scaler.client.core.deferring import DeferredTask
from scaler.client.shell.client_shell import ClientShell
from scaler.exceptions import DependencyError, SerializeObjectError
from scaler_protocol.wire import messages as m

LARGE_BYTES = 200_000


@pytest.fixture(params=["the scheduler waits", "the client waits"])
def either(request: pytest.FixtureRequest, any_client: Client) -> Client:
    """A client whose scheduler lets tasks wait for others, and one whose scheduler cannot."""
    if request.param == "the client waits":
        any_client._shell.core.features = []
    return any_client


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that `hold` waits for."""
    return tmp_path / "go"


def hold(gate: str, value: Any) -> Any:
    wait_for_file(gate)
    return value


def fail(gate: str) -> None:
    wait_for_file(gate)
    raise ValueError("broken")


def held(client: Client, gate: Path, value: Any) -> ScalerFuture[Any]:
    """A future that is not done before the gate opens."""
    return client.submit(hold, str(gate), value)


class Pair:
    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second


def describe(*args: Any, **kwargs: Any) -> Tuple[Any, Any]:
    def described(value: Any) -> Any:
        return (value.first, value.second) if isinstance(value, Pair) else value

    return [described(each) for each in args], {name: described(each) for name, each in kwargs.items()}


def everywhere(one: Any, two: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Arguments with two values at all depths."""
    return (one, [two, (one, {"key": [two]})], Pair(two, one)), {"named": one, "nested": {"key": (two,)}}


@pytest.mark.parametrize("are_done", [False, True], ids=["pending", "done"])
def test_a_future_stands_for_its_result_wherever_it_is(either: Client, gate: Path, are_done: bool) -> None:
    one, two = held(either, gate, 1), held(either, gate, "two")
    if are_done:
        gate.touch()
        assert two.result() == "two" and one.exception() is None
    args, kwargs = everywhere(one, two)
    future = either.submit(describe, *args, **kwargs)
    verbose = either.submit_verbose(describe, args, kwargs)
    gate.touch()
    expected = everywhere(1, "two")
    assert future.result() == verbose.result() == describe(*expected[0], **expected[1])


def test_a_result_may_be_loaded_before_it_is_an_argument_and_after(either: Client, gate: Path) -> None:
    gate.touch()
    future = held(either, gate, [1, 2])
    assert future.result() == [1, 2]
    assert either.submit(sum, future).result() == 3
    assert future.result() == [1, 2]


@pytest.mark.parametrize("size", [10, LARGE_BYTES], ids=["small", "large"])
@pytest.mark.parametrize("padding", [0, LARGE_BYTES], ids=["", "with large arguments"])
def test_results_of_any_size_arrive(either: Client, gate: Path, size: int, padding: int) -> None:
    value, other = bytes(size), bytes(range(256))
    first, second = held(either, gate, value), held(either, gate, other)
    future = either.submit(lambda *args: args, first, bytes(padding), second, first)
    gate.touch()
    assert future.result() == (value, bytes(padding), other, value)


def test_a_large_result_goes_to_its_dependants_without_its_client(
    any_client: Client, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = held(any_client, gate, bytes(LARGE_BYTES))
    lengths = [any_client.submit(len, large) for _ in range(3)]
    any_client._shell.flush(None)  # else the result may come before the tasks that need it are sent
    monkeypatch.setattr(ClientShell, "send_object", None)
    gate.touch()
    assert [length.result() for length in lengths] == [LARGE_BYTES] * 3


def test_a_long_chain_and_a_wide_tree_of_futures(either: Client) -> None:
    chain = either.submit(operator.add, 0, 1)
    for _ in range(50):
        chain = either.submit(operator.add, chain, 1)
    leaves = [either.submit(operator.mul, number, 2) for number in range(50)]
    items: Any = leaves  # stand for numbers
    root: ScalerFuture[int] = either.submit(sum, items)
    assert (chain.result(), root.result()) == (51, 2 * sum(range(50)))


def test_items_of_map_may_hold_futures(either: Client) -> None:
    numbers = [either.submit(operator.mul, number, 10) for number in range(5)]
    assert either.map(operator.neg, numbers) == [0, -10, -20, -30, -40]
    assert either.starmap(operator.add, [(number, 1) for number in numbers]) == [1, 11, 21, 31, 41]


def test_options_hold_for_tasks_that_wait(either: Client, gate: Path) -> None:
    future = either.options(profiling=True).submit(identity, held(either, gate, 5))
    gate.touch()
    assert future.result() == 5
    assert future.profiling_info().duration_us > 0


def submit_both(client: Client) -> int:
    doubled = client.submit(operator.mul, 4, 2)
    return int(client.submit(operator.add, doubled, 1).result())


def test_tasks_may_submit_tasks_that_wait_for_each_other(any_client: Client) -> None:
    assert any_client.submit(submit_both, any_client).result() == 9


# Ends other than a result --------------------------------------------------------------------------------------------


def cause_of(future: ScalerFuture[Any]) -> Optional[BaseException]:
    error = future.exception()
    assert error is not None
    return error.__cause__


@pytest.mark.parametrize("are_done", [False, True], ids=["pending", "done"])
def test_a_failure_is_the_cause_of_what_depends_on_it(either: Client, gate: Path, are_done: bool) -> None:
    failing = either.submit(fail, str(gate))
    if are_done:
        gate.touch()
        failing.exception()
    dependent = either.submit(identity, [failing])
    indirect = either.submit(identity, [held(either, gate, 0), dependent])
    gate.touch()
    for future in (dependent, indirect):
        with pytest.raises(
            DependencyError, match=rf"{future.task_id} of identity .* {failing.task_id} of fail .*broken"
        ):
            future.result()
        assert cause_of(future) is failing.exception()
        assert either.explain(future).startswith("the task has failed: DependencyError")


@contextlib.contextmanager
def sender_at_rest(client: Client) -> Iterator[None]:
    """What is submitted within waits until the end."""
    entered, end = threading.Event(), threading.Event()

    class Asker:
        def put(self, _: object) -> None:
            entered.set()
            assert end.wait(30)

    client._shell.post(Barrier(Asker()))
    assert entered.wait(30)
    yield
    end.set()


def test_tasks_before_and_after_one_that_is_never_sent_keep_their_results(either: Client, gate: Path) -> None:
    failed, pending = either.submit(operator.truediv, 1, 0), held(either, gate, 3)
    assert failed.exception()
    with sender_at_rest(either):  # all leave in one batch
        before = either.submit(operator.neg, 1)
        dependents = [either.submit(operator.neg, failed), either.submit(operator.neg, pending)]
        after = either.submit(operator.neg, 2)
    gate.touch()
    assert (before.result(), after.result(), dependents[1].result()) == (-1, -2, -3)
    assert isinstance(dependents[0].exception(), DependencyError)


@pytest.mark.parametrize("are_done", [False, True], ids=["pending", "done"])
def test_what_needs_a_cancelled_task_is_cancelled(either: Client, gate: Path, are_done: bool) -> None:
    needed = held(either, gate, 1)
    if are_done:
        assert needed.cancel()
    dependent = either.submit(identity, needed)
    indirect = either.submit(identity, dependent)
    assert needed.cancel()
    for future in (dependent, indirect):
        with pytest.raises(CancelledError):
            future.result()


def test_a_task_that_waits_for_others_can_be_cancelled_alone(either: Client, gate: Path) -> None:
    needed = held(either, gate, 1)
    dependent, other = either.submit(identity, needed), either.submit(identity, needed)
    assert dependent.cancel()
    gate.touch()
    assert (needed.result(), other.result()) == (1, 1)


def test_clear_ends_what_waits(either: Client, gate: Path) -> None:
    dependent = either.submit(identity, held(either, gate, 1))
    either.clear()
    assert dependent.cancelled()
    assert either.submit(identity, either.submit(identity, 2)).result() == 2


def test_disconnecting_ends_what_waits(any_address: str, gate: Path) -> None:
    with Client(address=any_address) as client:
        dependent = client.submit(identity, held(client, gate, 1))
    assert dependent.cancelled()


def test_explain_says_what_a_task_waits_for(either: Client, gate: Path) -> None:
    first, second = held(either, gate, 1), held(either, gate, 2)
    dependent = either.submit(operator.add, first, second)
    explained = either.explain(dependent)
    assert f"task {first.task_id} of hold and 1" in explained
    gate.touch()
    assert dependent.result() == 3


# When an outcome and a task cross ------------------------------------------------------------------------------------


class Crossing:
    """Keeps results from a client, while they are on their way to it."""

    def __init__(self, client: Client) -> None:
        self._shell = client._shell
        self._receive = self._shell.core._reactions[m.TaskResult]
        self._shell.core._reactions[m.TaskResult] = self._keep
        self._kept: List[Any] = []
        self.arrived = threading.Event()

    def _keep(self, *message: Any) -> None:
        self._kept.append(message)
        self.arrived.set()

    def end(self) -> None:
        """What was kept arrives now, after all that was submitted before."""
        self._shell.post(Barrier(self))

    def put(self, _: object) -> None:
        self._shell.core._reactions[m.TaskResult] = self._receive
        for message in self._kept:
            self._receive(*message)


@pytest.mark.parametrize("size", [10, LARGE_BYTES], ids=["small", "large"])
def test_a_task_and_the_result_that_it_needs_may_cross(any_client: Client, size: int) -> None:
    crossing = Crossing(any_client)
    needed = any_client.submit(bytes, size)
    assert crossing.arrived.wait(30)
    dependent = any_client.submit(lambda *parts: b"".join(parts), needed, bytes(LARGE_BYTES))
    indirect = any_client.submit(len, dependent)
    crossing.end()
    assert indirect.result() == LARGE_BYTES + size
    assert len(dependent.result()) == LARGE_BYTES + size


def test_a_task_and_the_failure_of_one_that_it_needs_may_cross(any_client: Client) -> None:
    crossing = Crossing(any_client)
    failing = any_client.submit(operator.truediv, 1, 0)
    assert crossing.arrived.wait(30)
    dependent = any_client.submit(identity, failing)
    crossing.end()
    assert isinstance(dependent.exception(), DependencyError)
    assert cause_of(dependent) is failing.exception()


def test_a_task_that_was_given_back_waits_for_its_other_predecessors_here(any_client: Client, gate: Path) -> None:
    slow = held(any_client, gate, 10)
    crossing = Crossing(any_client)
    needed = any_client.submit(identity, 1)
    assert crossing.arrived.wait(30)
    dependents = [any_client.submit(operator.add, needed, slow) for _ in range(3)]
    crossing.end()
    while not all(type(dependent._source) is DeferredTask for dependent in dependents):
        any_client.info()  # an answer comes after what was sent before
    assert "waits in this client" in any_client.explain(dependents[0])
    assert dependents[2].cancel()
    gate.touch()
    assert [dependent.result() for dependent in dependents[:2]] == [11, 11]


# What is refused -----------------------------------------------------------------------------------------------------


def future_of_another_client(client: Client) -> Iterator[Any]:
    with Client(address=client._address) as other:
        yield other.submit(identity, 1)


def future_of_concurrent_futures(client: Client) -> Iterator[Any]:
    yield Future()


def future_of_asyncio(client: Client) -> Iterator[Any]:
    loop = asyncio.new_event_loop()
    yield loop.create_future()
    loop.close()


def future_of_a_named_function(client: Client) -> Iterator[Any]:
    named = client.submit(NamedFunction("example.org/unserved"), 1)
    yield named
    named.cancel()


@pytest.mark.parametrize(
    "futures",
    [future_of_another_client, future_of_concurrent_futures, future_of_asyncio, future_of_a_named_function],
)
def test_a_future_that_a_task_cannot_wait_for_is_refused_at_once(
    any_client: Client, futures: Callable[[Client], Iterator[Any]]
) -> None:
    for future in futures(any_client):
        with pytest.raises(SerializeObjectError, match=r"pass its result\(\)"):
            any_client.submit(identity, {"key": [future]})


def return_a_future(client: Client) -> Any:
    return client.submit(identity, 1)


def test_a_future_travels_in_arguments_alone(any_client: Client, gate: Path) -> None:
    future = held(any_client, gate, 1)
    attempts: List[Callable[[], Any]] = [
        lambda: any_client.submit(lambda: future.result()),
        lambda: any_client.send_object([future]),
        lambda: any_client.get({"a": (identity, future)}, ["a"]),
        lambda: pickle.dumps(future),
    ]
    for attempt in attempts:
        with pytest.raises(TypeError, match="pass it to submit"):
            attempt()
    gate.touch()
    with pytest.raises(Exception, match="pass it to submit"):
        any_client.submit(return_a_future, any_client).result()


def test_a_function_called_by_name_takes_no_futures(any_client: Client) -> None:
    with pytest.raises(TypeError, match=r"pass their result\(\)"):
        any_client.submit(NamedFunction("f"), any_client.submit(identity, 1))


class Reversed(Serializer):
    """Writes pickles backwards."""

    @staticmethod
    def serialize(obj: Any) -> bytes:
        return pickle.dumps(obj)[::-1]

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        return pickle.loads(payload[::-1])


@pytest.mark.parametrize("are_done", [False, True], ids=["pending", "done"])
def test_a_users_serializer_sees_results_and_not_futures(any_address: str, gate: Path, are_done: bool) -> None:
    with Client(address=any_address, serializer=Reversed()) as client:
        first, second = held(client, gate, 1), held(client, gate, "two")
        if are_done:
            gate.touch()
            first.result(), second.result()
        future = client.submit(describe, first, [second, (first,)], {"key": second}, named=first)
        gate.touch()
        assert tuple(future.result()) == ([1, ["two", (1,)], {"key": "two"}], {"named": 1})
