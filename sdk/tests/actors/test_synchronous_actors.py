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


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


def test_the_name_of_an_actor_is_its_label_unless_its_class_takes_it(client: Client) -> None:
    assert repr(client.actor(Counter, name="it's")) == '<actor Counter "it\'s">'
    assert repr(client.actor(Counter, name=None)) == "<actor Counter>"
    own = client.actor(Named, name="its own")
    assert repr(own) == "<actor Named>" and own.read("name").result() == "its own"
    letters = client.actor(dict, name="a value")
    assert letters.get("name").result() == "a value"


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "\x1b[2J"])
def test_names_that_cannot_be_shown_are_refused(client: Client, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="1 to 100 printable characters"):
        client.actor(Counter, name=name)
    with pytest.raises(ArgumentTypeError, match="name of an actor must be a str, got int"):
        client.actor(Counter, name=7)


def test_a_handle_in_a_notebook_says_what_it_knows(client: Client) -> None:
    counter = client.actor(Counter, name="<b>")
    html = counter._repr_html_()
    assert "&lt;b&gt;" in html and "<b>" not in html and "made" in html and "add" in html
    broken = client.actor(Broken)
    assert "could not be made" in broken._repr_html_()
    counter.close()
    assert "closed" in counter._repr_html_()


def test_actors_are_in_the_information_about_the_cluster(client: Client) -> None:
    counter = client.actor(Counter, name="visits")
    counter.add(1).result()
    info = client.info()
    (actor,) = info.actors
    assert (info.actor_count, actor.name, actor.state, actor.worker) == (1, "Counter 'visits'", "alive", "this process")
    counter.close()
    assert client.info().actor_count == 0


def test_attributes_of_the_instance_cannot_be_set_through_the_handle(client: Client) -> None:
    counter = client.actor(Counter, 10)
    with pytest.raises(AttributeError, match=r"Counter.value cannot be set here: an actor changes in its methods"):
        counter.value = 5
    with pytest.raises(AttributeError, match=r"no method 'value'; actor\.read"):
        print(counter.value)
    assert counter.read("value").result() == 10


def test_methods_are_completed(client: Client) -> None:
    names = dir(client.actor(Counter))
    assert {"add", "fail", "call", "read", "close", "created"} <= set(names) and "value" not in names


def test_a_method_is_called_and_not_submitted(client: Client) -> None:
    counter: Any = client.actor(Counter)
    with client.executor() as executor:
        for submit in (
            lambda: client.submit(counter.add, 1),
            lambda: client.map(counter.add, [1, 2]),
            lambda: client.imap_unordered(counter.add, [1, 2]),
            lambda: executor.submit(counter.add, 1),
            lambda: list(executor.map(counter.add, [1, 2])),
        ):
            with pytest.raises(ArgumentTypeError, match=r"<method add of <actor Counter>> cannot be submitted"):
                submit()
    assert counter.read("value").result() == 0


def call_back(callback: Any) -> int:
    result: int = callback(5).result()
    return result


def test_a_method_may_be_an_argument_of_a_task(client: Client) -> None:
    counter = client.actor(Counter)
    assert client.submit(call_back, counter.add).result() == 5
