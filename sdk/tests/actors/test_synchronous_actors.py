"""Actors without a cluster: what a handle does, and that state is copied as in a cluster."""

from __future__ import annotations

import gc
import threading
from typing import Any, Iterator, List

import pytest
from sdk_tasks import Broken, Counter

from scaler import Client
from scaler.exceptions import (
    ActorCreationError,
    ActorLostError,
    ArgumentTypeError,
    InvalidArgumentError,
    SerializeObjectError,
)
from scaler.synchronous import synchronous_io


@pytest.fixture
def client() -> Iterator[Client]:
    with Client.synchronous() as client:
        yield client


def test_an_instance_stays_and_its_methods_change_it(client: Client) -> None:
    counter = client.actor(Counter, 10)
    assert [counter.add(5).result(), counter.add(amount=2).result(), counter.add_later(3).result()] == [15, 17, 20]
    assert counter.created.result() is None


def test_each_actor_has_an_instance_of_its_own(client: Client) -> None:
    first, second = client.actor(Counter), client.actor(Counter)
    first.add(1).result()
    assert second.add(5).result() == 5


def test_arguments_and_results_are_copied(client: Client) -> None:
    counter, items = client.actor(Counter), [1, 2]
    counter.keep(items).result()
    items.append(3)
    read: List[int] = counter.read("items").result()
    read.append(4)
    assert counter.read("items").result() == [1, 2]


def test_a_method_that_raises_leaves_the_actor_alive(client: Client) -> None:
    counter = client.actor(Counter)
    with pytest.raises(ValueError, match="bad"):
        counter.fail("bad").result()
    assert counter.add(1).result() == 1


def test_an_actor_that_cannot_be_made_fails_each_call_with_the_cause(client: Client) -> None:
    actor = client.actor(Broken)
    for future in (actor.created, actor.predict(), actor.predict()):
        with pytest.raises(ActorCreationError, match=r"Broken.*LookupError: no such model") as caught:
            future.result()
        assert isinstance(caught.value.__cause__, LookupError)


def test_handles_have_the_methods_of_the_class_and_say_what_else_there_is(client: Client) -> None:
    counter = client.actor(Counter)
    with pytest.raises(AttributeError, match=r"no method 'value'; actor.read\('value'\)"):
        counter.value
    with pytest.raises(AttributeError, match="no method 'shared'"):
        counter.shared()
    with pytest.raises(AttributeError, match="_private"):
        counter._private()
    with pytest.raises(AttributeError):
        counter.call("nothing").result()
    assert counter.read("shared").result() == "of the class"
    assert counter.call("close").result() == "its own"


@pytest.mark.parametrize("use", [lambda each: each.call(""), lambda each: each.call(".x"), lambda each: each.read(3)])
def test_names_must_be_names(client: Client, use: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="must be the name of"):
        use(client.actor(Counter))


def test_a_closed_actor_takes_no_calls(client: Client) -> None:
    with client.actor(Counter) as counter:
        counter.add(1).result()
    counter.close()
    with pytest.raises(ActorLostError, match="closed"):
        counter.add(1)


def test_the_instance_is_freed_with_the_handle(client: Client) -> None:
    before = len(synchronous_io._OBJECTS._functions)
    counter = client.actor(Counter)
    counter.add(1).result()
    counter.close()
    another = client.actor(Counter)
    another.add(1).result()
    del another
    gc.collect()
    client.submit(abs, -1).result()
    assert len(synchronous_io._OBJECTS._functions) <= before + 1, "only abs is new"


def test_threads_call_an_actor_one_at_a_time(client: Client) -> None:
    counter = client.actor(Counter)
    threads = [threading.Thread(target=lambda: [counter.add() for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.add(0).result() == 200


def use(counter: Any, times: int) -> int:
    totals: List[int] = [counter.add(1).result() for _ in range(times)]
    return totals[-1]


def test_a_handle_can_be_passed_to_tasks_and_actors(client: Client) -> None:
    counter = client.actor(Counter)
    assert client.submit(use, counter, 3).result() == 3
    holder = client.actor(Counter)
    holder.keep([counter]).result()
    assert counter.add(1).result() == 4


def test_references_and_done_futures_are_arguments_as_of_any_task(client: Client) -> None:
    reference = client.send_object(7)
    counter = client.actor(Counter, reference)
    assert counter.add(client.submit(abs, -3)).result() == 10


def test_invalid_calls_fail_where_they_are_made(client: Client) -> None:
    with pytest.raises(TypeError, match="a class"):
        client.actor(3)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(TypeError, match="cannot be called with these arguments"):
        client.actor(Counter, 1, 2)
    with pytest.raises(InvalidArgumentError, match="retries"):
        client.options(retries=1).actor(Counter)
    with pytest.raises(SerializeObjectError, match=r"Counter\.keep"):
        client.actor(Counter).keep([threading.Lock()])
