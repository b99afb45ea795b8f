"""What a user does with a Client, against schedulers on CPython and on PyPy."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
import math
import operator
import threading
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from sdk_tasks import identity, notes_of, wait_for_file

from scaler import Client, ScalerFuture, SchedulerClusterCombo, Serializer
from scaler.client.future import ScalerFuture as FutureClass

TIMEOUT_SECONDS = 30.0


def test_a_result_comes_back(client: Client) -> None:
    future: object = client.submit(math.sqrt, 16)
    assert isinstance(future, concurrent.futures.Future) and isinstance(future, ScalerFuture)
    assert future.result(TIMEOUT_SECONDS) == 4.0
    assert future.done() and not future.running() and not future.cancelled() and future.exception() is None


@pytest.mark.parametrize(
    "value",
    [None, 7, -1.5, 2j, "text", b"bytes", (1, "a"), [1, 2], {"key": [1, {2, 3}]}, range(5), math.inf, ..., int, len],
    ids=repr,
)
def test_any_value_survives_the_way_there_and_back(client: Client, value: Any) -> None:
    assert client.submit(identity, value).result(TIMEOUT_SECONDS) == value


def test_keyword_arguments_reach_the_function(client: Client) -> None:
    def function(a: int, *rest: int, b: int = 0, **others: int) -> Tuple[Any, ...]:
        return a, rest, b, others

    assert client.submit(function, 1, 2, 3, b=4, c=5).result(TIMEOUT_SECONDS) == (1, (2, 3), 4, {"c": 5})
    assert client.submit(dict, fn=1, self=2).result(TIMEOUT_SECONDS) == {"fn": 1, "self": 2}


def test_unknown_keywords_are_the_functions_error(client: Client) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        untyped: Any = client
        untyped.submit(identity, 1, nonsense=2).result(TIMEOUT_SECONDS)


def test_lambdas_closures_partials_methods_and_classes_are_functions(client: Client) -> None:
    offset = 10

    class Adder:
        def __init__(self, by: int) -> None:
            self.by = by

        def add(self, value: int) -> int:
            return value + self.by

    futures = [
        client.submit(lambda: 1),
        client.submit(lambda value: value + offset, 1),
        client.submit(functools.partial(operator.add, 5), 6),
        client.submit(Adder(3).add, 4),
        client.submit("text".upper),
    ]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [1, 11, 11, 7, "TEXT"]
    assert client.submit(Adder, 9).result(TIMEOUT_SECONDS).by == 9


def test_a_bound_method_takes_the_state_it_has_when_it_is_submitted(client: Client) -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def get(self) -> int:
            return self.count

    counter = Counter()
    before = client.submit(counter.get)
    counter.count = 5
    assert (before.result(TIMEOUT_SECONDS), client.submit(counter.get).result(TIMEOUT_SECONDS)) == (0, 5)


@pytest.mark.exhaustive_on_pypy
def test_a_hundred_thousand_small_tasks_all_come_back(client: Client) -> None:
    futures = [client.submit(identity, number) for number in range(100_000)]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(100_000))


def test_arguments_are_taken_when_they_are_submitted(client: Client) -> None:
    values = [1, 2]
    future = client.submit(identity, values)
    values.append(3)
    assert future.result(TIMEOUT_SECONDS) == [1, 2]


def test_many_threads_use_one_client(client: Client) -> None:
    results: List[int] = []

    def use(base: int) -> None:
        futures = [client.submit(operator.add, base, number) for number in range(500)]
        results.extend(future.result(TIMEOUT_SECONDS) for future in futures)

    threads = [threading.Thread(target=use, args=(1000 * base,)) for base in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    assert sorted(results) == sorted(1000 * base + number for base in range(8) for number in range(500))


# Futures --------------------------------------------------------------------------------------------------------------


def test_wait_and_as_completed_see_every_future(client: Client) -> None:
    futures = [client.submit(identity, number) for number in range(1000)]
    assert {future.result() for future in concurrent.futures.as_completed(futures, TIMEOUT_SECONDS)} == set(range(1000))
    more = [client.submit(identity, number) for number in range(1000)]
    done, not_done = concurrent.futures.wait(more, TIMEOUT_SECONDS)
    assert len(done) == 1000 and not not_done


def test_wait_returns_at_the_first_exception(client: Client, done_files: List[Path]) -> None:
    slow = client.submit(wait_for_file, str(done_files[1]))
    bad = client.submit(operator.truediv, 1, 0)
    done, not_done = concurrent.futures.wait(
        [slow, bad], TIMEOUT_SECONDS, return_when=concurrent.futures.FIRST_EXCEPTION
    )
    assert (done, not_done) == ({bad}, {slow})
    done_files[1].touch()
    assert slow.result(TIMEOUT_SECONDS)


def test_callbacks_run_once_also_when_added_late(client: Client) -> None:
    called: concurrent.futures.Future[int] = concurrent.futures.Future()
    future = client.submit(identity, 5)
    future.add_done_callback(lambda done: called.set_result(done.result()))
    assert called.result(TIMEOUT_SECONDS) == 5
    late: List[ScalerFuture] = []
    future.add_done_callback(late.append)  # type: ignore[arg-type]  # a callback may return what it likes
    assert late == [future]


def test_a_callback_may_wait_for_other_tasks(client: Client) -> None:
    second: concurrent.futures.Future[int] = concurrent.futures.Future()
    client.submit(identity, 5).add_done_callback(
        lambda done: second.set_result(client.submit(identity, done.result() + 1).result(TIMEOUT_SECONDS))
    )
    assert second.result(TIMEOUT_SECONDS) == 6


def test_result_times_out_and_the_task_goes_on(client: Client, done_files: List[Path]) -> None:
    future = client.submit(wait_for_file, str(done_files[1]))
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(timeout=0.01)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.exception(timeout=0)
    done_files[1].touch()
    assert future.result(TIMEOUT_SECONDS) == str(done_files[1])


def test_futures_can_be_awaited(client: Client) -> None:
    async def main() -> List[int]:
        return list(await asyncio.gather(*(client.submit(identity, number) for number in range(100))))

    assert asyncio.run(main()) == list(range(100))


def test_the_futures_repr_says_its_state(client: Client) -> None:
    future = client.submit(identity, 1)
    future.result(TIMEOUT_SECONDS)
    assert "finished" in repr(future) and FutureClass.__name__ in repr(future)


# map ------------------------------------------------------------------------------------------------------------------


def test_map_keeps_the_order(client: Client) -> None:
    assert client.map(identity, range(10_000)) == list(range(10_000))
    assert client.map(identity, iter(range(10))) == list(range(10))
    assert client.map(operator.add, [1, 2, 3], [10, 20, 30, 40]) == [11, 22, 33]


def test_map_unpacks_an_iterable_of_tuples(client: Client) -> None:
    assert client.map(operator.add, [(1, 2), (3, 4)]) == [3, 7]
    assert client.starmap(operator.mul, ((n, n) for n in range(5))) == [0, 1, 4, 9, 16]


def test_map_of_nothing_is_nothing(client: Client) -> None:
    assert client.map(identity, []) == [] and client.starmap(identity, []) == []


def test_map_cuts_items_that_refer_to_many_objects_into_chunks_that_a_task_can_have(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scaler.client.submission.MAXIMUM_DEPENDENCIES", 20)
    reference = client.send_object(b"12")
    items = [([reference._replace() for _ in range(5)],) for _ in range(500)]
    assert client.map(len, items) == [5] * 500
    with pytest.raises(ValueError, match="refer to 25 objects") as raised:
        client.map(len, [*items, ([reference._replace() for _ in range(25)],)])
    assert notes_of(raised.value) == ["(item 500 of map)", "see docs/reference/errors.md#toomanyreferences"]
    assert client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1, "the client lives on"


def test_map_raises_the_first_failing_items_exception_and_names_it(client: Client) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        client.map(lambda value: 1 / (value - 700), range(1000))
    assert "item 700" in "".join(notes_of(raised.value))
    assert client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1, "the client lives on"


# Ending ---------------------------------------------------------------------------------------------------------------


def test_disconnect_cancels_what_is_unfinished_and_is_idempotent(address: str, done_files: List[Path]) -> None:
    client = Client(address=address)
    future = client.submit(wait_for_file, str(done_files[1]))
    client.disconnect()
    client.disconnect()
    assert future.cancelled()
    done_files[1].touch()
    with pytest.raises(ConnectionError, match="make a new Client"):
        client.submit(identity, 1)


def test_clear_cancels_tasks_and_leaves_the_client_usable(client: Client, done_files: List[Path]) -> None:
    futures = [client.submit(wait_for_file, str(done_files[1])) for _ in range(100)]
    client.clear()
    assert all(future.cancelled() for future in futures)
    done_files[1].touch()
    assert client.submit(identity, 2).result(TIMEOUT_SECONDS) == 2


def test_a_client_without_references_leaves_once_its_tasks_are_done(any_address: str, done_files: List[Path]) -> None:
    running, gate = done_files
    done = threading.Event()
    client = Client(address=any_address, heartbeat_interval_seconds=0.05)
    future = client.submit(wait_for_file, str(gate), str(running), TIMEOUT_SECONDS)
    forgotten = Client(address=any_address, heartbeat_interval_seconds=0.05)
    forgotten.submit(wait_for_file, str(gate), str(running), TIMEOUT_SECONDS).add_done_callback(lambda _: done.set())
    threads = [client._shell.io.thread, forgotten._shell.io.thread]
    del client, forgotten
    gc.collect()
    gate.touch()
    assert future.result(TIMEOUT_SECONDS) == str(gate)
    assert done.wait(TIMEOUT_SECONDS)
    del future
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive()


def _submit_and_forget(address: str) -> int:
    return Client(address=address, heartbeat_interval_seconds=0.05).submit(abs, -1).result(TIMEOUT_SECONDS)


def _client_threads() -> List[str]:
    for thread in threading.enumerate():
        if thread.name == "scaler-client":
            thread.join(TIMEOUT_SECONDS)
    return [thread.name for thread in threading.enumerate() if thread.name == "scaler-client"]


def test_clients_that_tasks_forget_do_not_gather_in_the_processor() -> None:
    with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as combo:
        with Client(address=combo.get_address()) as client:
            for _ in range(5):
                assert client.submit(_submit_and_forget, combo.get_address()).result(TIMEOUT_SECONDS) == 1
            assert client.submit(_client_threads).result(TIMEOUT_SECONDS) == []


def test_a_protected_scheduler_refuses_to_shut_down(client: Client) -> None:
    with pytest.raises(ValueError, match="protected mode"):
        client.shutdown()
    assert client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1


# A serializer of the user's own ---------------------------------------------------------------------------------------


def test_a_custom_serializer_serves_function_arguments_and_result(address: str) -> None:
    import pickle
    import struct

    import cloudpickle

    class Tagged(Serializer):
        @staticmethod
        def serialize(obj: Any) -> bytes:
            return b"I" + struct.pack("q", obj) if type(obj) is int else b"P" + cloudpickle.dumps(obj)

        @staticmethod
        def deserialize(payload: bytes) -> Any:
            return struct.unpack("q", payload[1:])[0] if payload[:1] == b"I" else pickle.loads(payload[1:])

    with Client(address=address, serializer=Tagged()) as client:
        assert client.submit(operator.add, 1, 2).result(TIMEOUT_SECONDS) == 3
        assert client.submit(identity, "text").result(TIMEOUT_SECONDS) == "text"
        assert client.submit(dict, a=1).result(TIMEOUT_SECONDS) == {"a": 1}
        reference = client.send_object([1, 2, 3])
        assert client.submit(sum, reference).result(TIMEOUT_SECONDS) == 6
        assert client.map(operator.neg, range(100)) == [-number for number in range(100)]
        with pytest.raises(ZeroDivisionError):
            client.submit(operator.truediv, 1, 0).result(TIMEOUT_SECONDS)
