"""Large results that are arguments of later tasks: they are placed in the cluster once."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest
from sdk_tasks import wait_for_file

from scaler import Client, ScalerFuture, Serializer
from scaler.aio import Client as AsyncClient
from scaler.client.core.kept_objects import KeptObject
from scaler.client.placed_results import (
    HELD_SECONDS,
    MOST_HELD_BYTES,
    LargeResult,
    PlacedResults,
)
from scaler.client.shell.client_shell import BaseShell
from scaler.exceptions import MissingObjects, ObjectStorageFullError

LARGE_BYTES = 200_000
TIMEOUT_SECONDS = 60.0


def make(size: int) -> bytearray:
    return bytearray(size)


def total(*data: Any) -> int:
    return sum(map(sum, data))


def overwrite(data: bytearray) -> int:
    """What a task does to its argument."""
    before, data[0] = data[0], 9
    return before


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> List[int]:
    """The sizes of large objects, as they are placed."""
    sizes: List[int] = []
    place = BaseShell.send_object

    def send_object(shell: Any, parts: Any, *others: Any, **named: Any) -> int:
        if sum(map(len, parts)) >= LARGE_BYTES:
            sizes.append(sum(map(len, parts)))
        return place(shell, parts, *others, **named)

    monkeypatch.setattr(BaseShell, "send_object", send_object)
    return sizes


def made(client: Client, is_loaded: bool) -> ScalerFuture[bytearray]:
    """A future that is done, with a large result."""
    future = client.submit(make, LARGE_BYTES)
    client.wait([future])
    if is_loaded:
        assert future.result() == bytes(LARGE_BYTES)
    return future


@pytest.mark.parametrize("is_loaded", [False, True], ids=["as received", "loaded"])
def test_a_result_is_sent_with_the_first_task_and_once_for_all_others(
    any_client: Client, placed: List[int], is_loaded: bool
) -> None:
    future = made(any_client, is_loaded)
    users = [any_client.submit(total, future)]
    users += [any_client.submit(total, bytes([number]), future) for number in range(20)]
    users += [any_client.submit_verbose(total, (future, future), {})]
    assert [user.result() for user in users] == [0, *range(20), 0]
    assert len(placed) == 2


def test_each_task_may_write_to_its_own(any_client: Client, placed: List[int]) -> None:
    future = made(any_client, is_loaded=False)
    assert [any_client.submit(overwrite, future).result() for _ in range(4)] == [0] * 4
    assert future.result()[0] == 0
    assert len(placed) == 2


def test_a_loaded_result_that_has_changed_is_placed_again(any_client: Client, placed: List[int]) -> None:
    future = made(any_client, is_loaded=True)
    assert [any_client.submit(total, future).result() for _ in range(3)] == [0, 0, 0]
    future.result()[5] = 7
    assert [any_client.submit(total, future).result() for _ in range(3)] == [7, 7, 7]
    assert len(placed) == 1 + 1 + 1


def test_a_result_that_is_loaded_between_two_tasks_stays_right(any_client: Client) -> None:
    future = made(any_client, is_loaded=False)
    before = [any_client.submit(total, future) for _ in range(3)]
    future.result()[5] = 7
    assert any_client.submit(total, future).result() == 7
    assert [user.result() for user in before] == [0, 0, 0]


def test_results_stand_anywhere_beside_objects_and_large_arguments(any_client: Client, placed: List[int]) -> None:
    future, small = made(any_client, is_loaded=False), any_client.submit(make, 10)
    any_client.wait([small])
    reference = any_client.send_object(b"\x01" * LARGE_BYTES)
    other = b"\x02" * LARGE_BYTES
    del placed[:]

    def all_sums(first: Any, others: Dict[str, Any], *, last: Any) -> List[int]:
        return [sum(first), sum(others["reference"]), sum(others["other"]), len(others["small"]), sum(last[0])]

    others = {"reference": reference, "other": other, "small": small}
    for _ in range(3):
        user = any_client.submit(all_sums, future, others, last=[future])
        assert user.result() == [0, LARGE_BYTES, 2 * LARGE_BYTES, 10, 0]
    assert len(placed) == 1 + 3, "the result, and the arguments of each task, with it at first"


def test_a_task_that_also_waits_for_another_gets_both(any_client: Client, tmp_path: Any) -> None:
    future = made(any_client, is_loaded=False)
    assert any_client.submit(total, future).result() == 0
    reference = any_client.send_object(b"\x01" * 10)
    gate = tmp_path / "gate"

    def wait_for(path: str) -> bytes:
        from sdk_tasks import wait_for_file

        wait_for_file(path)
        return b"\x05"

    pending = any_client.submit(wait_for, str(gate))
    user = any_client.submit(total, reference, future, pending, reference)
    gate.touch()
    assert user.result() == 10 + 0 + 5 + 10


def test_a_result_with_a_reference_to_an_object_is_a_part_of_the_arguments(any_client: Client) -> None:
    future: Any = any_client.submit(dict, data=bytes(LARGE_BYTES))
    future.result()["reference"] = any_client.send_object(b"\x03")

    def sum_of_reference(result: Dict[str, Any]) -> int:
        return sum(result["reference"])

    assert [any_client.submit(sum_of_reference, future).result() for _ in range(2)] == [3, 3]


def test_a_result_with_a_future_inside_is_a_part_of_the_arguments(any_client: Client) -> None:
    future: Any = any_client.submit(dict, data=bytes(LARGE_BYTES))
    future.result()["future"] = any_client.submit(make, 3)
    assert [any_client.submit(lambda result: len(result["future"]), future).result() for _ in range(2)] == [3, 3]


def test_items_of_map_share_a_result(any_client: Client, placed: List[int]) -> None:
    future = made(any_client, is_loaded=False)
    for _ in range(3):
        assert any_client.starmap(total, [(future, bytes([number])) for number in range(5)]) == [0, 1, 2, 3, 4]
    assert len(placed) == 2


class Reversed(Serializer):
    @staticmethod
    def serialize(obj: Any) -> bytes:
        return pickle.dumps(obj)[::-1]

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        return pickle.loads(payload[::-1])


def test_a_users_serializer_reads_what_it_has_written(any_address: str, placed: List[int]) -> None:
    with Client(address=any_address, serializer=Reversed()) as client:
        future = made(client, is_loaded=False)
        assert [client.submit(total, future, b"\x01").result() for _ in range(3)] == [1, 1, 1]
        assert len(placed) == 3, "each with its task"
        assert future.result() == bytes(LARGE_BYTES)
        assert client.submit(total, future).result() == 0


def test_coroutines_share_results(any_address: str, placed: List[int]) -> None:
    async def main() -> None:
        async with AsyncClient(any_address) as client:
            future = client.submit(make, LARGE_BYTES)
            await asyncio.wait([future])
            users = [client.submit(total, future, bytes([number])) for number in range(5)]
            assert await asyncio.gather(*users) == [0, 1, 2, 3, 4]
            assert await client.submit(total, await future) == 0

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_SECONDS))
    assert len(placed) == 3, "the last one is a value of the program"


def test_an_actor_gets_results(any_client: Client, placed: List[int]) -> None:
    class Summing:
        def __init__(self, start: bytearray) -> None:
            self.sum = sum(start)

        def add(self, data: bytearray) -> int:
            self.sum += sum(data)
            return self.sum

    future = made(any_client, is_loaded=False)
    actor = any_client.actor(Summing, future)
    assert [actor.add(future).result() for _ in range(3)] == [0, 0, 0]
    assert len(placed) == 2


def test_many_threads_place_one_result_and_let_go_of_the_others(any_client: Client) -> None:
    future = made(any_client, is_loaded=False)
    assert any_client.submit(total, future).result() == 0
    barrier, sums = threading.Barrier(8), []

    def use() -> None:
        barrier.wait()
        sums.append(any_client.submit(total, future).result())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [0] * 8
    large = [kept for kept in objects_of(any_client) if kept.size >= LARGE_BYTES]
    assert len(large) == 1


def objects_of(client: Client) -> List[KeptObject]:
    """What the client keeps, when all that it has let go of is gone."""
    client._shell.placed_results.let_go_unused()
    client._shell.flush(None)
    return list(client._shell.core.objects.kept())


def test_an_object_goes_with_its_future_and_its_tasks(any_client: Client) -> None:
    future = made(any_client, is_loaded=False)
    assert [any_client.submit(total, future).result() for _ in range(2)] == [0, 0]
    assert any(kept.size >= LARGE_BYTES for kept in objects_of(any_client))
    del future
    gc.collect()
    assert not any(kept.size >= LARGE_BYTES for kept in objects_of(any_client))


def test_no_credit_is_lost(any_client: Client) -> None:
    """Objects that are let go count as arguments of the tasks that have them, until these have ended."""
    limit_bytes = any_client._shell.welcome.limits.bytes_in_flight
    assert limit_bytes
    for _ in range(3):
        futures = [any_client.submit(make, limit_bytes // 4) for _ in range(3)]
        users = [any_client.submit(total, future) for future in futures for _ in range(3)]
        assert [user.result() for user in users] == [0] * 9
        del futures
        gc.collect()
    any_client._shell.placed_results.let_go_unused()
    any_client._shell.await_room()


# The class by itself --------------------------------------------------------------------------------------------------


class Something:
    """In the place of a future."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.sent: List[int] = []
        self.gone: List[int] = []
        self.contents: Dict[int, Any] = {}
        self.results = PlacedResults(self._send, self._has_content, self.gone.extend, self.clock)

    def _send(self, parts: Any) -> int:
        self.sent.append(len(self.sent) + 1)
        self.contents[self.sent[-1]] = parts[0].content
        return self.sent[-1]

    def _has_content(self, object_id: int, parts: Any) -> bool:
        return bool(self.contents[object_id] == parts[0].content)

    def place(self, *results: LargeResult) -> List[int]:
        with self.results.in_use():
            return self.results.place(results)


def result(future: Any, size: int = 10, content: str = "") -> LargeResult:
    """As received, or loaded with this content."""
    return LargeResult(future, [_Part(size, content)], not content)  # type: ignore[list-item]  # what counts of it


class _Part:
    def __init__(self, size: int, content: str) -> None:
        self._size, self.content = size, content

    def __len__(self) -> int:
        return self._size


def test_what_is_used_again_in_time_is_placed_once() -> None:
    scene, future = Scene(), Something()
    for _ in range(5):
        assert scene.place(result(future)) == [1]
        scene.clock.now += HELD_SECONDS * 0.9
    scene.clock.now += HELD_SECONDS
    scene.results.let_go_unused()
    assert (scene.sent, scene.gone) == ([1], [1])
    assert scene.place(result(future)) == [2]


def test_another_content_of_a_future_takes_the_place_of_the_first() -> None:
    scene, future = Scene(), Something()
    assert scene.place(result(future, content="one")) == [1]
    assert scene.place(result(future, content="two")) == [2]
    assert scene.place(result(future, content="two")) == [2]
    assert scene.place(result(future)) == [3], "what came from the worker was not compared"
    assert scene.gone == [1, 2]


def test_a_future_that_is_gone_is_not_taken_for_one_at_its_place_in_memory() -> None:
    scene = Scene()
    placed = [scene.place(result(Something()))[0] for _ in range(3)]
    assert placed == [1, 2, 3]
    scene.results.let_go_unused()
    assert scene.gone == [1, 2, 3]


def test_the_latest_are_held_up_to_a_limit_and_one_in_any_case() -> None:
    scene, futures = Scene(), [Something() for _ in range(4)]
    third = MOST_HELD_BYTES // 3
    for future in futures[:3]:
        scene.place(result(future, third))
    scene.place(result(futures[0], third))
    scene.place(result(futures[3], third))
    assert scene.gone == [2], "which was used before all others"
    scene.place(result(futures[1], 2 * MOST_HELD_BYTES))
    assert sorted(scene.gone) == [1, 2, 3, 4]
    scene.results.let_go_unused()
    assert scene.place(result(futures[1], 2 * MOST_HELD_BYTES)) == [5]


def test_nothing_is_let_go_while_ids_are_in_use() -> None:
    scene, future = Scene(), Something()
    with scene.results.in_use():
        assert scene.results.place([result(future)]) == [1]
        scene.clock.now += 2 * HELD_SECONDS
        scene.results.let_go_unused()
        with scene.results.in_use():
            assert scene.results.place([result(future, content="another")]) == [2]
        assert not scene.gone
    assert scene.gone == [1]


def test_objects_are_let_go_when_the_blocks_that_may_have_them_have_ended() -> None:
    """Others, that have begun later, do not keep them."""
    scene, future = Scene(), Something()
    scene.place(result(future))
    first = scene.results.in_use()
    first.__enter__()
    assert scene.results.place([result(future, content="another")]) == [2]
    with scene.results.in_use():
        scene.results.let_go_unused()
        assert not scene.gone
        first.__exit__(None, None, None)
        scene.results.let_go_unused()
        assert scene.gone == [1]


# Until when it is held ------------------------------------------------------------------------------------------------


def wait_for_gate(data: bytearray, gate: str) -> int:
    wait_for_file(gate)
    return len(data)


def look_at_end(client: Any, monkeypatch: pytest.MonkeyPatch) -> List[bool]:
    """Whether a task counted as needing a large object, each time when the use of one ended."""
    found: List[bool] = []
    results, objects = client._shell.placed_results, client._shell.core.objects
    end = results.end

    def look_and_end(number: int) -> None:
        found.append(any(kept.references for kept in objects.kept() if kept.size >= LARGE_BYTES))
        end(number)

    monkeypatch.setattr(results, "end", look_and_end)
    return found


def test_an_object_is_in_use_until_the_task_is_accepted(
    any_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = made(any_client, is_loaded=False)
    assert any_client.submit(total, future).result() == 0
    found = look_at_end(any_client, monkeypatch)
    user = any_client.submit(wait_for_gate, future, str(tmp_path / "gate"))
    (tmp_path / "gate").touch()
    assert user.result() == LARGE_BYTES
    assert found == [True]


def test_an_object_is_in_use_until_the_task_of_a_loop_is_accepted(
    any_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with AsyncClient(any_address) as client:
            future = client.submit(make, LARGE_BYTES)
            await asyncio.wait([future])
            assert await client.submit(total, future) == 0
            found = look_at_end(client, monkeypatch)
            user = client.submit(wait_for_gate, future, str(tmp_path / "gate"))
            while not found:
                await asyncio.sleep(0)
            (tmp_path / "gate").touch()
            assert await user == LARGE_BYTES
            assert found == [True]

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_SECONDS))


def test_what_is_missing_is_placed_again(any_client: Client, placed: List[int]) -> None:
    future = made(any_client, is_loaded=False)
    assert [any_client.submit(total, future).result() for _ in range(3)] == [0, 0, 0]
    (large,) = [kept for kept in objects_of(any_client) if kept.size >= LARGE_BYTES]
    any_client._shell.delete_object(large.object_id)
    with pytest.raises(MissingObjects):
        any_client.submit(total, future).result()
    assert any_client.submit(total, future).result() == 0
    assert len(placed) == 3


def test_no_arguments_are_left_if_a_result_cannot_be_placed(
    any_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = made(any_client, is_loaded=True)
    assert any_client.submit(total, future).result() == 0
    before = objects_of(any_client)

    def fail(*results: Any) -> List[int]:
        raise ObjectStorageFullError("no room")

    monkeypatch.setattr(any_client._shell.placed_results, "place", fail)
    with pytest.raises(ObjectStorageFullError):
        any_client.submit(total, future, bytes(LARGE_BYTES))
    assert objects_of(any_client) == before


def test_a_small_result_is_not_looked_at_each_time(any_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    future: Any = any_client.submit(dict, a=[1])
    future.result()
    assert [any_client.submit(len, future).result() for _ in range(2)] == [1, 1]
    monkeypatch.setattr("scaler.client.future_arguments.dump_alone", None)
    assert any_client.submit(len, future).result() == 1
