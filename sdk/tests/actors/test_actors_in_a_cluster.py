"""Actors in real clusters: order, handles in tasks, and every way in which an actor ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
from sdk_tasks import Broken, Counter, wait_for, wait_for_file, wait_until

from scaler import Client, Cluster, Scheduler, SchedulerClusterCombo, aio
from scaler.exceptions import (
    ActorCreationError,
    ActorLostError,
    ActorsNotSupportedError,
    InvalidArgumentError,
    TaskMemoryLimitError,
    TaskTimeoutError,
)

TIMEOUT_SECONDS = 60.0


def alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_thousands_of_calls_run_in_order(client: Client) -> None:
    counter = client.actor(Counter)
    for number in range(3000):
        counter.note(number)
    assert counter.read("order").result(TIMEOUT_SECONDS) == list(range(3000))


def test_large_arguments_keep_their_place_and_large_results_arrive(client: Client) -> None:
    counter = client.actor(Counter)
    futures: List[Any] = []
    for number in range(6):
        counter.note(2 * number)
        futures.append(counter.size_of(b"x" * 200_000))
        counter.note(2 * number + 1)
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [200_000] * 6
    assert counter.read("order").result(TIMEOUT_SECONDS) == list(range(12))
    assert len(counter.large(300_000).result(TIMEOUT_SECONDS)) == 300_000


def test_tasks_run_beside_an_actor_and_never_in_its_process(client: Client) -> None:
    counter = client.actor(Counter)
    home = counter.process_id().result(TIMEOUT_SECONDS)
    others = {future.result(TIMEOUT_SECONDS) for future in [client.submit(os.getpid) for _ in range(40)]}
    assert home not in others
    assert {future.result(TIMEOUT_SECONDS) for future in [counter.process_id() for _ in range(40)]} == {home}


def call_often(counter: Any, base: int, count: int) -> None:
    for number in range(count):
        future = counter.note(base + number)
    future.result()


def test_tasks_call_an_actor_each_in_its_own_order(client: Client) -> None:
    counter = client.actor(Counter)
    callers = [client.submit(call_often, counter, 1000 * number, 100) for number in range(1, 4)]
    for caller in callers:
        caller.result(TIMEOUT_SECONDS)
    order = counter.read("order").result(TIMEOUT_SECONDS)
    assert len(order) == 300
    for number in range(1, 4):
        assert [each for each in order if each // 1000 == number] == list(range(1000 * number, 1000 * number + 100))


class Relay:
    """An actor that calls another one."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def add(self, amount: int) -> int:
        result: int = self.target.add(amount).result()
        return result


def test_an_actor_calls_another_one(client: Client) -> None:
    counter = client.actor(Counter)
    relay = client.actor(Relay, counter)
    assert [relay.add(2).result(TIMEOUT_SECONDS) for _ in range(3)] == [2, 4, 6]


def test_a_method_that_raises_leaves_the_actor_alive(any_client: Client) -> None:
    counter = any_client.actor(Counter)
    with pytest.raises(ValueError, match="bad"):
        counter.fail("bad").result(TIMEOUT_SECONDS)
    assert counter.add(1).result(TIMEOUT_SECONDS) == 1


def test_an_actor_that_cannot_be_made_fails_each_call_with_the_cause(any_client: Client) -> None:
    actor = any_client.actor(Broken)
    for future in (actor.created, actor.predict()):
        with pytest.raises(ActorCreationError, match="no such model") as caught:
            future.result(TIMEOUT_SECONDS)
        assert isinstance(caught.value.__cause__, LookupError)


def test_a_future_that_is_not_done_is_refused_as_an_argument(any_client: Client, done_files: List[Path]) -> None:
    _, go = done_files
    counter = any_client.actor(Counter)
    waiting = any_client.submit(wait_for_file, str(go))
    with pytest.raises(InvalidArgumentError, match=r"Counter.add.*not done.*result\(\)"):
        counter.add(waiting)
    go.touch()
    waiting.result(TIMEOUT_SECONDS)
    assert counter.add(any_client.submit(abs, -2).result(TIMEOUT_SECONDS)).result(TIMEOUT_SECONDS) == 2


def test_all_calls_are_lost_with_the_process_and_say_so(any_client: Client) -> None:
    counter = any_client.actor(Counter)
    counter.add(1).result(TIMEOUT_SECONDS)
    futures = [counter.exit(), *(counter.add(1) for _ in range(20))]
    for future in futures:
        with pytest.raises(ActorLostError, match=r"Counter, on .*SIGKILL.*make a new one"):
            future.result(TIMEOUT_SECONDS)
    with pytest.raises(ActorLostError, match="SIGKILL"):
        counter.add(1).result(TIMEOUT_SECONDS)
    assert any_client.actor(Counter).add(1).result(TIMEOUT_SECONDS) == 1, "a new one begins"


def test_a_running_call_that_is_cancelled_by_force_ends_the_actor(any_client: Client, tmp_path: Path) -> None:
    counter = any_client.actor(Counter)
    future = counter.wait_for(tmp_path / "never")
    wait_until(tmp_path / "running")
    assert future.cancel(force=True)
    with pytest.raises(ActorLostError, match="cancelled by force"):
        counter.add(1).result(TIMEOUT_SECONDS)


def test_a_cancelled_call_that_waits_is_left_out(any_client: Client, tmp_path: Path) -> None:
    counter = any_client.actor(Counter)
    counter.wait_for(tmp_path / "go")
    wait_until(tmp_path / "running")
    first, second = counter.add(1), counter.add(10)
    assert first.cancel()
    (tmp_path / "go").touch()
    assert second.result(TIMEOUT_SECONDS) == 10


def test_a_call_beyond_its_time_limit_ends_the_actor(any_client: Client, tmp_path: Path) -> None:
    counter = any_client.options(timeout=0.5).actor(Counter)
    future, behind = counter.wait_for(tmp_path / "never"), counter.add(1)
    with pytest.raises(TaskTimeoutError):
        future.result(TIMEOUT_SECONDS)
    with pytest.raises(ActorLostError, match="longer than its limit"):
        behind.result(TIMEOUT_SECONDS)


class Hoarder:
    def __init__(self) -> None:
        self.kept = b""

    def take(self, size: int) -> None:
        self.kept = os.urandom(size)
        while True:
            pass


def test_a_call_beyond_the_memory_limit_ends_the_actor(any_client: Client) -> None:
    hoarder = any_client.options(memory_limit="150MB").actor(Hoarder)
    future, behind = hoarder.take(300_000_000), hoarder.take(1)
    with pytest.raises(TaskMemoryLimitError):
        future.result(TIMEOUT_SECONDS)
    with pytest.raises(ActorLostError, match="above the limit"):
        behind.result(TIMEOUT_SECONDS)


def end_by_close(actor: Any) -> Any:
    actor.close()
    return actor


def end_by_collection(actor: Any) -> None:
    del actor
    gc.collect()


@pytest.mark.parametrize("end", [end_by_close, end_by_collection])
def test_an_actor_ends_with_its_handle(any_client: Client, end: Callable[[Any], Any]) -> None:
    actor = any_client.actor(Counter)
    process_id = actor.process_id().result(TIMEOUT_SECONDS)
    last = actor.add(1)
    handles = [actor]
    del actor
    kept = end(handles.pop())
    assert last.result(TIMEOUT_SECONDS) == 1, "calls from before still run"
    wait_for(lambda: not alive(process_id), "it ends")
    del kept


def test_an_actor_ends_with_its_client_and_copies_of_its_handle_say_so(any_address: str) -> None:
    with Client(any_address) as other:
        with Client(any_address) as client:
            counter = client.actor(Counter)
            process_id = counter.process_id().result(TIMEOUT_SECONDS)
            assert other.submit(use, counter).result(TIMEOUT_SECONDS) == 1
            user = other.actor(Relay, counter)
            assert user.add(1).result(TIMEOUT_SECONDS) == 2
        wait_for(lambda: not alive(process_id), "it ends")
        with pytest.raises(ActorLostError, match="closed or its client is gone"):
            user.add(1).result(TIMEOUT_SECONDS)


def use(counter: Any) -> int:
    result: int = counter.add(1).result()
    return result


@pytest.fixture
def own_cluster() -> Iterator[SchedulerClusterCombo]:
    with SchedulerClusterCombo(n_workers=1, logging_level="ERROR") as combo:
        yield combo


def test_an_actor_is_lost_with_its_worker(own_cluster: SchedulerClusterCombo) -> None:
    with Client(own_cluster.get_address()) as client:
        counter = client.actor(Counter)
        counter.add(1).result(TIMEOUT_SECONDS)
        (worker,) = client.info().workers
        os.kill(worker.process_id, signal.SIGKILL)
        with pytest.raises(ActorLostError, match=r"lost with its worker.*connection was lost"):
            counter.add(1).result(TIMEOUT_SECONDS)
        with pytest.raises(ActorLostError, match="lost with its worker"):
            counter.add(1).result(TIMEOUT_SECONDS)


def test_an_actor_is_lost_with_its_scheduler(tmp_path: Path) -> None:
    from quiet_addresses import quiet_address

    address = quiet_address()
    scheduler = Scheduler(address=address, logging_level="ERROR")
    scheduler.start()
    with Cluster(address=address, n_workers=1, logging_level="ERROR"), Client(address) as client:
        counter = client.actor(Counter)
        unfinished = counter.wait_for(tmp_path / "never")
        wait_until(tmp_path / "running")
        assert scheduler.pid is not None
        os.kill(scheduler.pid, signal.SIGKILL)
        scheduler.join(TIMEOUT_SECONDS)
        successor = Scheduler(address=address, logging_level="ERROR")
        successor.start()
        try:
            with pytest.raises(ActorLostError, match="connection to the scheduler"):
                unfinished.result(TIMEOUT_SECONDS)
            with pytest.raises(ActorLostError, match="lost the connection"):
                counter.add(1)
            assert client.actor(Counter).add(1).result(TIMEOUT_SECONDS) == 1
        finally:
            client.disconnect()
            os.kill(successor.pid or 0, signal.SIGTERM)
            successor.join(TIMEOUT_SECONDS)


def test_a_worker_that_drains_waits_for_its_actors() -> None:
    with SchedulerClusterCombo(n_workers=1, logging_level="ERROR", protected=False) as combo:
        with Client(combo.get_address()) as client:
            counter = client.actor(Counter)
            counter.add(1).result(TIMEOUT_SECONDS)
            (worker,) = client.info().workers
            client.shutdown_worker(worker.session)
            assert [counter.add(1).result(TIMEOUT_SECONDS) for _ in range(5)] == [2, 3, 4, 5, 6]
            counter.close()
            wait_for(lambda: not client.info().workers, "it ends")


def test_a_scheduler_that_knows_no_actors_is_named(any_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_client._shell.core, "features", ["predecessors"])
    with pytest.raises(ActorsNotSupportedError, match=r"scheduler at .*scaler-appliance.* knows no actors"):
        any_client.actor(Counter)


def test_waiting_calls_are_explained(any_client: Client, tmp_path: Path) -> None:
    nowhere = any_client.options(capabilities={"unicorn": 1}).actor(Counter)
    assert "unicorn" in any_client.explain(nowhere.add(1))
    counter = any_client.actor(Counter)
    counter.wait_for(tmp_path / "go")
    wait_until(tmp_path / "running")
    assert "its actor, at worker" in any_client.explain(counter.add(1))
    (tmp_path / "go").touch()


def test_coroutines_await_the_calls_of_an_actor(any_address: str) -> None:
    async def scene() -> None:
        async with aio.Client(any_address) as client:
            with client.options(priority=1).actor(Counter, 5) as counter:
                assert await counter.add(1) == 6
                futures = [counter.note(number) for number in range(500)]
                futures.insert(3, counter.size_of(b"x" * 200_000))
                counter.note(500)
                await asyncio.gather(*futures)
                assert await counter.read("order") == list(range(501))
                with pytest.raises(ValueError, match="bad"):
                    await counter.fail("bad")
                assert await client.submit(use, counter) == 7

    asyncio.run(scene())


def test_the_end_of_an_async_with_block_ends_the_actor(any_address: str) -> None:
    async def scene() -> None:
        async with aio.Client(any_address) as client:
            async with client.actor(Counter, 5, name="visits") as counter:
                assert await counter.add(1) == 6
            with pytest.raises(ActorLostError, match="Counter 'visits' is closed"):
                counter.add(1)

    asyncio.run(scene())


def test_large_arguments_of_coroutines_keep_their_place(any_address: str) -> None:
    async def scene() -> None:
        async with aio.Client(any_address) as client:
            counter = client.actor(Counter)
            for number in range(20):
                counter.note(2 * number)
                counter.note_large(b"x" * 100_000)
                counter.note(2 * number + 1)
            assert await counter.read("order") == [each for n in range(20) for each in (2 * n, -1, 2 * n + 1)]

    asyncio.run(scene())


def test_an_actor_is_seen_by_its_class_and_name(any_client: Client) -> None:
    counter = any_client.actor(Counter, 10, name="visits")
    assert counter.add(1).result(TIMEOUT_SECONDS) == 11
    assert repr(counter) == "<actor Counter 'visits'>"
    (actor,) = [each for each in any_client.info().actors if each.name == "Counter 'visits'"]
    assert (actor.state, actor.calls_finished, actor.calls_failed, actor.why_lost) == ("alive", 2, 0, "")
    assert actor.worker and actor.worker_session and any_client.info(maximum_actors=0).actors == ()
    counter.close()
    assert "Counter 'visits'" not in str(any_client.info())


def test_a_lost_actor_is_named_in_its_error_and_says_why_in_info(client: Client) -> None:
    counter = client.actor(Counter, name="visits")
    os.kill(counter.process_id().result(TIMEOUT_SECONDS), signal.SIGKILL)
    with pytest.raises(ActorLostError, match="Counter 'visits'"):
        while True:
            counter.add(1).result(TIMEOUT_SECONDS)
    (actor,) = [each for each in client.info().actors if each.name == "Counter 'visits'"]
    assert actor.state == "lost" and "lost with its processor" in actor.why_lost
    assert f"lost on {actor.worker}" in str(client.info())


def test_an_actor_that_could_not_be_made_is_lost_in_info(client: Client) -> None:
    broken = client.actor(Broken, name="model")
    with pytest.raises(ActorCreationError, match="Broken 'model' could not be created"):
        broken.created.result(TIMEOUT_SECONDS)
    (actor,) = [each for each in client.info().actors if each.name == "Broken 'model'"]
    assert actor.state == "lost" and "LookupError: no such model" in actor.why_lost
