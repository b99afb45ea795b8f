"""`scaler.aio.Client` in a real cluster: submitting, outcomes, cancelling, back-pressure, and no thread."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Awaitable, Callable, List

import pytest
from played_names import no_such_name, play_names
from sdk_tasks import identity, wait_for_file, wait_until

from scaler import Client, aio
from scaler.exceptions import (
    ClientFailedError,
    DependencyError,
    DisconnectedError,
    GraphKeyError,
    InvalidAddressError,
    MissingObjects,
    SchedulerUnreachableError,
    SerializeObjectError,
    UnfinishedTasksWarning,
    WrongEventLoopError,
)

TIMEOUT_SECONDS = 30.0

Scene = Callable[[aio.Client], Awaitable[Any]]


def fail(value: Any) -> Any:
    raise ValueError(value)


def sleep_and_return(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


def play(address: str, scene: Scene, **arguments: Any) -> Any:
    """Run a scene with a client that is connected, in a loop of its own."""

    async def main() -> Any:
        async with aio.Client(address, **arguments) as client:
            return await scene(client)

    return asyncio.run(asyncio.wait_for(main(), TIMEOUT_SECONDS))


def test_a_task_is_awaited(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        assert await client.submit(pow, 2, 10) == 1024
        assert await client.submit(double, 4) == 8
        assert await client.submit(identity, value=3) == 3
        assert await client.submit_verbose(identity, (), {"value": 4}) == 4
        future = client.submit(abs, -1)
        assert not future.done() and future.task_id == 4
        await asyncio.wait([future], return_when=asyncio.FIRST_COMPLETED)
        assert await future == 1 and await future == 1 and future.result() == 1 and future.exception() is None

    play(any_address, scene)


def test_what_asyncio_does_with_futures_works(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        assert await asyncio.gather(*[client.submit(abs, -each) for each in range(2000)]) == list(range(2000))
        futures = [client.submit(abs, -each) for each in range(10)]
        assert sorted([await each for each in asyncio.as_completed(futures)]) == list(range(10))
        done, rest = await asyncio.wait([client.submit(fail, 1)], return_when=asyncio.FIRST_EXCEPTION)
        assert len(done) == 1 and not rest
        called: List[Any] = []
        future = client.submit(identity, "seen")
        future.add_done_callback(lambda each: called.append((each, threading.current_thread())))
        assert await asyncio.shield(future) == "seen"
        assert called == [(future, threading.main_thread())]
        outcomes = await asyncio.gather(client.submit(fail, 1), client.submit(abs, -1), return_exceptions=True)
        assert isinstance(outcomes[0], ValueError) and outcomes[1] == 1

    play(any_address, scene)


def test_an_exception_is_the_tasks_own_each_time_it_is_asked_for(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        future = client.submit(fail, "broken")
        for _ in range(2):
            with pytest.raises(ValueError, match="broken") as caught:
                await future
            assert "in fail" in str(caught.value.__cause__)
        assert isinstance(future.exception(), ValueError)
        with pytest.raises(ValueError, match="broken"):
            future.result()
        stopped: aio.TaskFuture[Any] = client.submit(next, iter(()))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await stopped
        assert isinstance(stopped.exception(), StopIteration)

    play(any_address, scene)


def test_what_cannot_be_submitted_fails_at_the_call(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        with pytest.raises(SerializeObjectError):
            client.submit(identity, threading.Lock())
        with pytest.raises(TypeError):
            client.submit(identity)  # type: ignore[call-overload]  # the error
        with pytest.raises(asyncio.InvalidStateError):
            client.submit(abs, -1).result()
        assert await client.submit(abs, -1) == 1

    play(any_address, scene)


def test_arguments_may_be_objects_futures_and_large(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        data = bytes(3_000_000)
        reference = await client.send_object(data, "zeros")
        assert await client.submit(len, reference) == len(data) and await client.submit(len, data) == len(data)
        assert len(await client.submit(bytes, len(data))) == len(data)
        first = client.submit(sleep_and_return, 0.05)
        assert await client.submit(pow, first, 2) == 0.05**2 and await client.submit(identity, [first]) == [0.05]
        with pytest.raises(DependencyError):
            await client.submit(abs, client.submit(fail, 1))
        client.clear()
        with pytest.raises(MissingObjects):
            client.submit(len, reference)

    play(any_address, scene)


def test_what_the_system_does_not_take_at_once_is_sent_when_it_does(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        futures = [client.submit(len, bytes(20_000)) for _ in range(1000)]
        waited = False
        while not all(each.done() for each in futures):
            waited = waited or client._shell.io.transport._is_watched_for_writing
            await asyncio.sleep(0)
        assert [each.result() for each in futures] == [20_000] * 1000 and waited
        assert not client._shell.io.transport._is_watched_for_writing

    play(any_address, scene)


def test_graphs_maps_and_queries(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        graph = {"a": 2, "b": (pow, "a", 3), "c": (pow, "b", "b")}
        assert await client.get(graph, ["c", "a"]) == {"c": 8**8, "a": 2}
        assert await client.submit_graph(graph, ["b"])["b"] == 8
        with pytest.raises(ValueError, match="2") as caught:
            await client.get({"a": 2, "b": (fail, "a"), "c": (sleep_and_return, 0.01)}, ["c", "b"])
        assert "node 'b'" in str(getattr(caught.value, "__notes__", "node 'b'"))
        with pytest.raises(GraphKeyError):
            await client.get(graph, ["d"])
        assert await client.map(abs, range(-5, 0)) == [5, 4, 3, 2, 1] and await client.map(abs, []) == []
        assert await client.map(pow, [2, 3], [3, 2]) == [8, 9] and await client.starmap(pow, [(2, 3)]) == [8]
        assert await client.map(double, range(1000)) == list(range(0, 2000, 2))
        with pytest.raises(ValueError, match="7"):
            await client.map(fail, [7])
        info = await client.info()
        assert info.slots == 2 and info.clients >= 1
        future = client.submit(sleep_and_return, 0.2)
        assert "task" in await client.explain(future)
        await future
        assert await client.explain(future) == "the task has a result"
        measured = client.options(profiling=True, retries=1).submit(abs, -1)
        await measured
        assert measured.profiling_info().duration_s >= 0

    play(any_address, scene)


def test_cancelling_what_awaits_stops_the_task(any_address: str, done_files: List[Path]) -> None:
    running, go = done_files

    async def scene(client: aio.Client) -> None:
        awaiting = asyncio.ensure_future(_await(client.submit(wait_for_file, str(go), str(running))))
        await asyncio.to_thread(wait_until, running) if hasattr(asyncio, "to_thread") else None
        awaiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await awaiting
        assert await asyncio.gather(*[client.submit(abs, -1) for _ in range(10)]) == [1] * 10, "its slot is free"
        while client._shell.core.futures:
            await asyncio.sleep(0.001)
        assert not go.exists()

    play(any_address, scene)


async def _await(future: Awaitable[Any]) -> Any:
    return await future


def test_a_timeout_cancels_the_task_and_nothing_else(any_address: str, done_files: List[Path]) -> None:
    _, go = done_files

    async def scene(client: aio.Client) -> None:
        other = client.submit(sleep_and_return, 0.3)
        hanging = client.submit(wait_for_file, str(go))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(hanging, 0.1)
        assert hanging.cancelled() and not hanging.cancel() and await other == 0.3
        with pytest.raises(asyncio.CancelledError):
            hanging.result()
        kept = client.submit(wait_for_file, str(go))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(kept), 0.01)
        go.touch()
        assert await kept == str(go)

    play(any_address, scene)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout is new in Python 3.11")
def test_leaving_asyncio_timeout_stops_the_task(any_address: str, done_files: List[Path]) -> None:
    running, go = done_files

    async def scene(client: aio.Client) -> None:
        time_limit: Any = getattr(asyncio, "timeout")(None)  # noqa: B009  # mypy checks for Python 3.9
        future = client.submit(wait_for_file, str(go), str(running))
        await asyncio.to_thread(wait_until, running)
        with pytest.raises(asyncio.TimeoutError):
            async with time_limit:
                time_limit.reschedule(asyncio.get_running_loop().time())
                await future
        assert future.cancelled()
        assert await asyncio.gather(*[client.submit(abs, -1) for _ in range(10)]) == [1] * 10, "its slot is free"
        while client._shell.core.futures:
            await asyncio.sleep(0.001)

    play(any_address, scene)


def test_unfinished_tasks_are_cancelled_at_the_end_with_a_warning(any_address: str, done_files: List[Path]) -> None:
    _, go = done_files

    async def main() -> Any:
        async with aio.Client(any_address) as client:
            future = client.submit(wait_for_file, str(go))
        assert future.cancelled()
        with pytest.raises(DisconnectedError):
            client.submit(abs, -1)
        await client.disconnect()
        with pytest.raises(DisconnectedError):
            await client.connect()
        return client

    with pytest.warns(UnfinishedTasksWarning, match="1 unfinished task was cancelled"):
        client = asyncio.run(main())
    assert "disconnected" in repr(client)


def test_an_exception_in_the_block_comes_out_of_it(any_address: str, done_files: List[Path]) -> None:
    async def main() -> None:
        async with aio.Client(any_address) as client:
            client.submit(wait_for_file, str(done_files[1]))
            raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        asyncio.run(main())


def test_a_client_that_is_not_connected_says_so(any_address: str) -> None:
    client = aio.Client(any_address)
    with pytest.raises(DisconnectedError, match="async with"):
        client.submit(abs, -1)
    assert "not connected" in repr(client)
    with pytest.raises(InvalidAddressError):
        aio.Client("nowhere")


def test_connecting_fails_with_the_reason_and_does_not_hold_up_the_loop(
    unused_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_names(monkeypatch)["no.such.host.invalid"] = no_such_name

    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        client = aio.Client(unused_address, connect_timeout_seconds=2.0)
        with pytest.raises(SchedulerUnreachableError, match="nothing listens"):
            await client.connect()
        with pytest.raises(SchedulerUnreachableError, match="unknown host"):
            await aio.Client("tcp://no.such.host.invalid:1", connect_timeout_seconds=2.0).connect()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(aio.Client(unused_address).connect(), 0.1)
        assert ticks > 10
        ticking.cancel()

    asyncio.run(main())


@pytest.fixture
def unused_address() -> str:
    from quiet_addresses import quiet_address

    return quiet_address()


def test_many_clients_of_one_loop_make_no_thread(any_address: str) -> None:
    count = 100

    async def main() -> None:
        before = set(threading.enumerate())
        clients = [aio.Client(any_address, connect_timeout_seconds=TIMEOUT_SECONDS) for _ in range(count)]
        await asyncio.gather(*[client.connect() for client in clients])
        futures = [client.submit(pow, number, 2) for number, client in enumerate(clients)]
        assert await asyncio.gather(*futures) == [number**2 for number in range(count)]
        assert set(threading.enumerate()) <= before
        await asyncio.gather(*[client.disconnect() for client in clients])

    asyncio.run(main())


def test_a_client_belongs_to_its_loop(any_address: str) -> None:
    async def connect() -> aio.Client:
        client = await aio.Client(any_address).connect()
        with pytest.raises(WrongEventLoopError):
            await asyncio.get_running_loop().run_in_executor(None, client.submit, abs, -1)
        assert await client.submit(abs, -1) == 1
        return client

    async def use(client: aio.Client) -> None:
        with pytest.raises(WrongEventLoopError):
            await client.submit(abs, -1)
        with pytest.raises(WrongEventLoopError):
            await client.connect()

    client = asyncio.run(connect())
    with pytest.raises(WrongEventLoopError, match="outside of any"):
        client.submit(abs, -1)
    asyncio.run(use(client))
    client._shell.close_now()
    assert client._shell.closed_because is not None


def test_two_loops_in_two_threads_have_a_client_each(any_address: str) -> None:
    results: List[Any] = []

    async def scene(client: aio.Client) -> None:
        results.append(await asyncio.gather(*[client.submit(abs, -each) for each in range(500)]))

    threads = [threading.Thread(target=play, args=(any_address, scene)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    assert results == [list(range(500))] * 2


def test_a_client_that_is_forgotten_leaves(any_address: str) -> None:
    async def main() -> None:
        client = await aio.Client(any_address, heartbeat_interval_seconds=0.05).connect()
        assert await client.submit(abs, -1) == 1
        io = client._shell.io
        del client
        gc.collect()
        await asyncio.wait_for(asyncio.shield(io.ended), TIMEOUT_SECONDS)

    asyncio.run(main())


def test_a_fork_leaves_the_client_to_its_parent(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        future = client.submit(sleep_and_return, 0.3)
        await asyncio.sleep(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
            child = os.fork()
        if child == 0:
            is_ended = isinstance(future.exception(), DisconnectedError)
            with contextlib.suppress(DisconnectedError, WrongEventLoopError):
                client.submit(abs, -1)
                os._exit(2)
            os._exit(0 if is_ended else 1)
        _, status = os.waitpid(child, 0)
        assert os.WEXITSTATUS(status) == 0
        assert await future == 0.3 and await client.submit(abs, -1) == 1

    play(any_address, scene)


def test_output_of_tasks_is_shown_in_the_loop(any_address: str) -> None:
    texts: List[Any] = []

    async def scene(client: aio.Client) -> None:
        await client.submit(print, "hello")
        while not texts:
            await asyncio.sleep(0.001)
        assert texts == [("hello\n", threading.main_thread())]

    play(any_address, scene, stream_output=lambda output: texts.append((output.text, threading.current_thread())))


async def nested(client: aio.Client, depth: int) -> int:
    if depth == 0:
        return 1
    async with client:
        return sum(await asyncio.gather(*[client.submit(nested, client, depth - 1) for _ in range(2)]))


def test_a_task_that_awaits_tasks_frees_its_slot(any_address: str) -> None:
    """Four levels on two slots end only if those that wait have none."""

    async def scene(client: aio.Client) -> None:
        assert await client.submit(nested, client, 3) == 8

    play(any_address, scene)
    assert "not connected" in repr(pickle.loads(pickle.dumps(aio.Client(any_address))))


def test_sync_and_async_clients_live_side_by_side(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        with Client(any_address) as other:
            assert list(await asyncio.gather(client.submit(abs, -1), _await(other.submit(abs, -2)))) == [1, 2]

    play(any_address, scene)


def test_a_bug_ends_the_client_and_every_future(any_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with aio.Client(any_address) as client:
            assert await client.submit(abs, -1) == 1
            futures = [client.submit(abs, -each) for each in range(10)]

            def fail_at_results(*arguments: Any) -> None:
                raise AssertionError("a planted fault")

            monkeypatch.setattr(client._shell.io.settling, "results", fail_at_results)
            for future in futures:
                with pytest.raises(ClientFailedError, match="a bug in the client"):
                    await future
            with pytest.raises(ClientFailedError):
                client.submit(abs, -1)

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_SECONDS))


def test_an_interrupt_within_a_turn_comes_out_and_ends_the_client(
    any_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does before Python 3.11, which cannot be taken back."""
    clients: List[aio.Client] = []
    futures: List[aio.TaskFuture[int]] = []

    async def main() -> None:
        clients.append(await aio.Client(any_address).connect())

        def interrupt(*arguments: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(clients[0]._shell.io.settling, "results", interrupt)
        futures.append(clients[0].submit(abs, -1))
        await futures[0]

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert futures[0].done() and isinstance(clients[0]._shell.closed_because, ClientFailedError)
    assert "KeyboardInterrupt" in str(clients[0]._shell.closed_because)


def test_a_client_without_a_thread_starts_none_when_a_host_is_a_number(any_address: str) -> None:
    """Whatever it does: connecting, tasks, maps, graphs, output, objects."""

    async def main() -> None:
        before = set(threading.enumerate())
        async with aio.Client(any_address, stream_output=lambda output: None) as client:
            await client.submit(print, "hello")
            await client.map(abs, range(1000))
            await client.get({"a": (abs, -1)}, ["a"])
            await client.submit(len, await client.send_object(bytes(1_000_000)))
            assert [each async for each in client.map_stream(abs, range(10))] == list(range(10))
            assert set(threading.enumerate()) <= before

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_SECONDS))
