"""Functions that are decorated as tasks: where they run, with which client, and how they travel."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Iterator, List

import cloudpickle
import pytest
from sdk_tasks import notes_of

import scaler
from scaler import Client, Serializer
from scaler.exceptions import InvalidArgumentError, SchedulerNotFoundError
from scaler.task_functions import TaskFunction

TIMEOUT_SECONDS = 60


@pytest.fixture(params=["a cluster", "synchronous"])
def either(request: pytest.FixtureRequest) -> Iterator[Client]:
    address = "synchronous" if request.param == "synchronous" else request.getfixturevalue("any_address")
    with Client(address) as client:
        yield client


@scaler.task
def area(width: int, height: int = 1) -> int:
    """Of a rectangle."""
    return width * height


@scaler.task(retries=2)
def factorial(number: int) -> int:
    return number * factorial.submit(number - 1).result() if number > 1 else 1


@scaler.task
async def later(value: int) -> int:
    await asyncio.sleep(0)
    return value


@scaler.task
def fail() -> None:
    raise ValueError("on purpose")


class Room:
    def __init__(self, width: int) -> None:
        self.width = width

    @scaler.task
    def area(self, length: int) -> int:
        return self.width * length

    @staticmethod
    @scaler.task
    def volume(width: int, length: int, height: int) -> int:
        return width * length * height


def test_a_call_runs_here_and_submit_and_map_in_the_cluster(either: Client) -> None:
    assert area(3, 4) == 12 and area.__name__ == "area" and area.__doc__ == "Of a rectangle."
    assert area.submit(3, height=4).result(TIMEOUT_SECONDS) == 12
    assert area.submit(area.submit(1, 2), 3).result(TIMEOUT_SECONDS) == 6
    assert area.map([1, 2], [3, 4]) == [3, 8] and area.starmap([(5, 6)]) == [30]
    with pytest.raises(TypeError, match="cannot be called with these arguments"):
        untyped: Any = area
        untyped.submit(1, 2, 3)


def test_other_ways_to_submit_accept_it(either: Client) -> None:
    assert either.submit(area, 3, 4).result(TIMEOUT_SECONDS) == 12
    assert either.map(area, [1, 2]) == [1, 2]
    assert either.get({"a": 2, "b": (area, "a", "a")}, ["b"]) == {"b": 4}
    assert either.submit(later, 5).result(TIMEOUT_SECONDS) == 5


def test_tasks_submit_it_with_the_client_of_their_task(either: Client) -> None:
    assert factorial.submit(5).result(TIMEOUT_SECONDS) == 120


def test_a_function_of_a_function_travels_by_value(either: Client) -> None:
    offset = 10

    @scaler.task(priority=1)
    def shifted(value: int) -> int:
        return value + offset if value > 5 else shifted(value + 5)

    assert shifted.submit(1).result(TIMEOUT_SECONDS) == 16
    offset = 20
    assert shifted.submit(1).result(TIMEOUT_SECONDS) == 26
    assert either.submit(shifted, 7).result(TIMEOUT_SECONDS) == 27


def test_coroutines_methods_and_static_methods(either: Client) -> None:
    assert later.submit(3).result(TIMEOUT_SECONDS) == 3 == asyncio.run(later(3))
    room = Room(4)
    assert room.area(2) == room.area.submit(2).result(TIMEOUT_SECONDS) == 8
    assert Room.area(room, 2) == 8
    assert Room.volume.submit(1, 2, 3).result(TIMEOUT_SECONDS) == 6


def test_an_error_shows_the_functions_own_frames(either: Client) -> None:
    with pytest.raises(ValueError, match="on purpose") as raised:
        fail.submit().result(TIMEOUT_SECONDS)
    assert "in fail" in str(raised.value.__cause__) and "task_functions.py" not in str(raised.value.__cause__).replace(
        Path(__file__).name, ""
    )
    with pytest.raises(ValueError) as raised:
        fail.map([()])
    assert "item 0" in "".join(notes_of(raised.value))


def test_options_are_added_and_checked_where_they_are_written(either: Client) -> None:
    refined = factorial.options(priority=3)
    assert refined._options == {"retries": 2, "priority": 3} and factorial._options == {"retries": 2}
    assert refined.submit(3).result(TIMEOUT_SECONDS) == 6
    for wrong in (lambda: scaler.task(retries=-1), lambda: area.options(retries=-1)):
        with pytest.raises(InvalidArgumentError, match="retries"):
            wrong()
    with pytest.raises(TypeError, match=r"only a function can be a task"):
        scaler.task(5)  # type: ignore[call-overload]  # wrong on purpose
    profiled = area.options(profiling=True).submit(1)
    profiled.result(TIMEOUT_SECONDS)
    assert profiled.profiling_info().duration_us > 0


def test_a_client_decorates_for_itself(any_address: str) -> None:
    client = Client(any_address)
    other = Client.synchronous()
    try:

        @client.options(retries=1).task(priority=2)
        def double(value: int) -> int:
            return 2 * value

        assert double.submit(4).result(TIMEOUT_SECONDS) == 8
        assert double._options == {"retries": 1, "priority": 2}
        assert other.task(double).submit(4).done(), "it is the other client's now"
        assert pickle.loads(cloudpickle.dumps(double))._client is None
    finally:
        client.disconnect()
        other.disconnect()


def test_the_innermost_block_of_the_thread_counts_and_then_that_of_the_process() -> None:
    first, second = Client.synchronous(), Client.synchronous()
    used: List[Any] = []

    def use() -> None:
        used.append(area.submit(1)._client)

    with first:
        with second:
            use()
        use()
        thread = threading.Thread(target=use)
        thread.start()
        thread.join(TIMEOUT_SECONDS)
    assert used == [second, first, first]
    with pytest.raises(SchedulerNotFoundError):
        use()


def client_used() -> Any:
    """The client that a task function uses now."""
    return area.submit(1)._client


def test_without_a_block_one_client_is_found_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALER_ADDRESS", "synchronous")
    found = client_used()
    assert client_used() is found
    found.disconnect()
    assert client_used() is not found
    client_used().disconnect()


def test_blocks_keep_no_client_alive_and_may_end_elsewhere() -> None:
    async def block() -> Any:
        client = Client.synchronous()
        client.__enter__()
        return client

    client = asyncio.run(block())
    assert client_used() is client
    client.__exit__(None, None, None)
    with pytest.raises(SchedulerNotFoundError):
        area.submit(1)


def test_it_pickles_as_the_function_would() -> None:
    for pickler in (pickle, cloudpickle):
        assert pickle.loads(pickler.dumps(area)) is area is copy.deepcopy(area)

    @scaler.task(retries=3)
    def local(value: int) -> int:
        return value + 1

    copied = pickle.loads(cloudpickle.dumps(local))
    assert isinstance(copied, TaskFunction) and copied(1) == 2 and copied._options == {"retries": 3}
    with pytest.raises(Exception, match="local"):
        pickle.dumps(local)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        assert pickle.loads(cloudpickle.dumps(area)) is not area
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Plain(Serializer):
    @staticmethod
    def serialize(obj: Any) -> bytes:
        return bytes(cloudpickle.dumps(obj))

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        return pickle.loads(payload)


def test_a_users_serializer_carries_it(any_address: str) -> None:
    with Client(any_address, serializer=Plain()):
        assert area.submit(2, 3).result(TIMEOUT_SECONDS) == 6


def test_a_program_sends_its_own_functions_by_value(any_address: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import scaler\n"
        "rate = 2\n"
        "@scaler.task(retries=1)\n"
        "def scale(number): return number * rate if number < 100 else scale(number // 100)\n"
        f"with scaler.Client({any_address!r}) as client:\n"
        "    print(scale.submit(300).result(), client.map(scale, [1, 2]))\n"
        "    rate = 3\n"
        "    print(scale.submit(300).result(), client.map(scale, [1, 2]))\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["6 [2, 4]", "9 [3, 6]"], done.stderr


def test_a_module_with_task_functions_imports_no_client() -> None:
    code = "import sys, scaler; scaler.task(abs); sys.exit('scaler.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
