"""A submitted function is the function as it is at that moment, whatever it captures and however that changed."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import types
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Tuple

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sdk_tasks import identity

from scaler import Client
from scaler.captures import LARGE_BUFFER_BYTES, Reference, Snapshot, take
from scaler.client.functions import FunctionRegistry
from scaler.payload import Parts, join, load_function

Change = Callable[[Dict[str, Any]], None]

# A world that functions capture parts of. Its functions and classes travel by value, as those of a notebook do.
WORLD = """
import collections, os.path
import numpy

number = 1
text = "a"
numbers = [1, 2]
table = {"a": 1, "nested": [1]}
pair = (1, [2])
seen = {1}
raw = bytearray(b"ab")
small_array = numpy.zeros(4)
ordered = collections.OrderedDict(a=1)

def helper(x):
    return x + number

class Settings:
    rate = 1
    options = [1]

    def scaled(self, x):
        return helper(x) * self.rate

    @staticmethod
    def fixed(x):
        return x

    @property
    def shown(self):
        return self.rate

class Base:
    factor = 2

class Derived(Base):
    pass

settings = Settings()

def makes_closure(cell):
    def closure():
        return cell
    def set_cell(value):
        nonlocal cell
        cell = value
    return closure, set_cell

closure, set_cell = makes_closure(1)
partial = __import__("functools").partial(lambda a, b=0: (a, b), [1], b={"x": 1})

def with_defaults(a=1, *, b=[2]):
    return a, b

def with_attribute():
    return with_attribute.memory
with_attribute.memory = 1

def recursive(n):
    return number if n == 0 else recursive(n - 1)

def deep():
    inner = lambda: [number for _ in range(2)]
    return inner()

class Adder:
    def __init__(self):
        self.amount = 1
        self.others = [1]
    def __call__(self):
        return self.amount, self.others
    def method(self):
        return self.amount, self.others

adder = Adder()
method = adder.method
"""


def make_world() -> Dict[str, Any]:
    world: Dict[str, Any] = {"__name__": "__main__"}
    exec(WORLD, world)
    return world


def submitted(source: str) -> Callable[[Dict[str, Any]], Callable[[], Any]]:
    """A function of a world, from an expression that it returns, or by the name of one that is there."""

    def make(world: Dict[str, Any]) -> Callable[[], Any]:
        if callable(world.get(source)):
            found: Callable[[], Any] = world[source]
            return found
        exec(f"def submitted(): return {source}", world)
        made: Callable[[], Any] = world["submitted"]
        return made

    return make


def run(source: str) -> Change:
    return lambda world: exec(source, world)


# What is submitted, and changes that it must see.
SEEN = [
    ("number", "number = 2"),
    ("number", "del number"),
    ("text", "text = 'b'"),
    ("numbers", "numbers.append(3)"),
    ("numbers", "numbers[0] = 1.0"),
    ("table", "table['a'] = 2"),
    ("table", "table['nested'].append(2)"),
    ("table", "table = {'a': 1}"),
    ("pair", "pair[1].append(3)"),
    ("seen", "seen.add(2)"),
    ("raw", "raw[0] = 0"),
    ("small_array", "small_array[0] = 1"),
    ("small_array", "small_array.shape = (2, 2)"),
    ("ordered", "ordered['b'] = 2"),
    ("helper(1)", "number = 2"),
    ("helper(1)", "helper = lambda x: 100"),
    ("helper(1)", "helper.__code__ = (lambda x: 100).__code__"),
    ("Settings.rate", "Settings.rate = 2"),
    ("Settings.options", "Settings.options.append(2)"),
    ("Settings.fixed(1)", "Settings.fixed = staticmethod(lambda x: 100)"),
    ("settings.shown", "Settings.shown = property(lambda self: 100)"),
    ("settings.scaled(1)", "Settings.scaled = lambda self, x: 100"),
    ("settings.scaled(1)", "helper = lambda x: 100"),
    ("settings.scaled(1)", "settings.rate = 2"),
    ("settings.scaled(1)", "del Settings.scaled"),
    ("hasattr(settings, 'other')", "settings.other = 1"),
    ("Derived.factor", "Base.factor = 3"),
    ("Derived.factor", "Derived.__bases__ = (type('Base', (), {'factor': 4}),)"),
    ("closure", "set_cell(2)"),
    ("closure", "set_cell([1])"),
    ("closure()", "set_cell(2)"),
    ("partial", "partial.args[0].append(2)"),
    ("partial", "partial.keywords['b']['x'] = 2"),
    ("partial", "partial.keywords['b'] = 2"),
    ("with_defaults", "with_defaults.__defaults__ = (2,)"),
    ("with_defaults", "with_defaults.__kwdefaults__['b'].append(3)"),
    ("with_defaults", "with_defaults.__kwdefaults__ = {'b': 1}"),
    ("with_attribute", "with_attribute.memory = 2"),
    ("recursive(3)", "number = 2"),
    ("deep", "number = 2"),
    ("len(numbers)", "len = lambda values: 100"),
    ("adder", "adder.amount = 2"),
    ("adder", "adder.others.append(2)"),
    ("adder", "type(adder).__call__ = lambda self: 100"),
    ("method", "adder.amount = 2"),
    ("method()", "adder.amount = 2"),
]


def outcome(function: Callable[[], Any]) -> Any:
    try:
        return repr(function())
    except Exception as error:
        return type(error)


class Sender:
    """A registry of functions without a cluster: what a worker would load, and how often something was sent."""

    def __init__(self) -> None:
        self.sent: List[bytes] = []
        self.registry = FunctionRegistry(None, self._send, lambda object_id: None)

    def _send(self, parts: Parts, name: str) -> int:
        self.sent.append(join(parts))
        return len(self.sent) - 1

    def run(self, function: Callable[[], Any]) -> Any:
        """What a task that is submitted now comes to."""
        record = self.registry.find(function) or self.registry.add(function)
        loaded, _ = load_function(self.sent[record.object_id])
        return outcome(loaded)


@pytest.mark.parametrize(("what", "change"), SEEN)
def test_a_change_is_seen_by_the_next_submission(what: str, change: str) -> None:
    world = make_world()
    function = submitted(what)(world)
    sender = Sender()
    before = sender.run(function)
    assert sender.run(function) == before and len(sender.sent) == 1, "what has not changed is sent once"

    run(change)(world)
    expected = outcome(function)

    assert expected != before
    assert sender.run(function) == expected
    assert sender.run(function) == expected and len(sender.sent) == 2


@pytest.mark.parametrize("what", sorted({what for what, _ in SEEN}))
def test_what_is_rebuilt_with_equal_content_is_not_sent_again(what: str) -> None:
    world = make_world()
    function = submitted(what)(world)
    sender = Sender()
    sender.run(function)

    run("numbers = list(numbers); table = dict(table); number = int('1'); small_array = small_array.copy()")(world)
    sender.run(function)

    assert len(sender.sent) == 1


STEPS = sorted({change for _, change in SEEN if not change.startswith("del ")})
FUNCTIONS = sorted({what for what, _ in SEEN})


@settings(max_examples=700, deadline=None)
@given(
    st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=3),
    st.lists(
        st.one_of(
            st.sampled_from(STEPS),
            st.integers(0, 3).map(lambda value: f"number = {value}"),
            st.integers(0, 3).map(lambda value: f"set_cell({value})"),
            st.integers(0, 3).map(lambda value: f"adder.amount = {value}"),
            st.lists(st.integers(0, 2), max_size=2).map(lambda value: f"numbers = {value}"),
            st.text("ab", max_size=2).map(lambda value: f"table[{value!r}] = [{value!r}]"),
        ),
        min_size=1,
        max_size=15,
    ),
)
def test_submitting_is_pickling_at_that_moment(whats: List[str], changes: List[str]) -> None:
    """Some fifteen submissions an example: more than 10 000 in all."""
    world = make_world()
    sender = Sender()
    functions = [submitted(what)(dict(world) if index else world) for index, what in enumerate(whats)]
    for change in changes:
        for function in functions:
            expected = outcome(cloudpickle.loads(cloudpickle.dumps(function)))
            assert sender.run(function) == expected
        try:
            run(change)(world)
        except Exception:
            pass  # what it changes was replaced by something else before


# What a snapshot holds on to -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", FUNCTIONS)
def test_a_function_that_was_submitted_can_die(what: str) -> None:
    world = make_world()
    function: Any = submitted(what)(world)
    owner = getattr(function, "__self__", function)
    reference = weakref.ref(owner)
    sender = Sender()
    sender.run(function)

    del function, owner
    world.clear()
    gc.collect()

    assert reference() is None


def test_an_array_is_not_kept_alive_by_the_snapshot_of_who_captured_it() -> None:
    world = make_world()
    world["large"] = np.zeros(LARGE_BUFFER_BYTES)
    function = submitted("large.size")(world)
    snapshot = take(function)
    reference = weakref.ref(world["large"])

    del world["large"]

    assert reference() is None and snapshot is not None and not snapshot.holds(function)


def test_a_new_object_at_the_address_of_a_dead_one_is_a_change() -> None:
    world = make_world()
    function = submitted("settings.rate")(world)
    for rate in range(50):
        world["settings"].rate = rate
        snapshot = take(function)
        world["settings"] = None
        world["settings"] = world["Settings"]()  # often at the same address
        assert snapshot is not None and not snapshot.holds(function)


def test_a_function_of_a_module_travels_by_reference_as_long_as_it_is_found_there() -> None:
    module = types.ModuleType("scaler_test_module")
    exec("def function(): return 1", module.__dict__)
    sys.modules[module.__name__] = module
    try:
        captures = take(module.function)
        assert isinstance(captures, Reference) and captures.holds(module.function)
        first = module.function
        exec("def function(): return 2", module.__dict__)  # as reloading it does
        assert not captures.holds(first)

        captures = take(module.function)
        assert captures is not None and captures.holds(module.function)
        cloudpickle.register_pickle_by_value(module)
        assert not captures.holds(module.function)
        assert isinstance(take(module.function), Snapshot)
        cloudpickle.unregister_pickle_by_value(module)
        assert captures.holds(module.function)
    finally:
        del sys.modules[module.__name__]


def test_what_cannot_be_followed_is_serialised_each_time() -> None:
    class Odd:
        def __init__(self) -> None:
            self.count = 0

        def __call__(self) -> int:
            return self.count

        def __reduce__(self) -> Tuple[Any, ...]:
            self.count += 1
            return (int, (self.count,))

    assert take(Odd()) is None


# Large captures ------------------------------------------------------------------------------------------------------


@pytest.fixture
def count_sent(any_client: Client, monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """The names of functions in the order in which they are sent."""
    sent: List[str] = []
    send = any_client._core.functions._send
    monkeypatch.setattr(
        any_client._core.functions, "_send", lambda parts, name: (sent.append(name), send(parts, name))[1]
    )
    return sent


def test_a_large_closure_is_serialised_and_sent_once(any_client: Client, count_sent: List[str]) -> None:
    array, blob, table = (
        np.ones(4_000_000),
        bytes(8_000_000),
        {"inside": np.ones((1000, 1000)).T, "bytes": bytes(3_000_000)},
    )

    def large(number: int) -> Tuple[int, float, int]:
        return number, float(array[0] + table["inside"][0, 0]), len(blob)

    futures = [any_client.submit(large, number) for number in range(1000)]

    assert [future.result() for future in futures] == [(number, 2.0, 8_000_000) for number in range(1000)]
    assert len(count_sent) == 1


def test_a_large_array_that_changed_in_place_is_sent_when_asked(any_client: Client) -> None:
    array = np.zeros(LARGE_BUFFER_BYTES)

    def first() -> float:
        return float(array[0])

    assert any_client.submit(first).result() == 0.0
    array[0] = 1.0
    assert any_client.submit_verbose(first, (), {}, reserialize=True).result() == 1.0
    array = np.full(LARGE_BUFFER_BYTES, 2.0)
    assert any_client.submit(first).result() == 2.0


def test_a_function_that_alternates_is_sent_once_for_each_state(any_client: Client, count_sent: List[str]) -> None:
    state = 0

    def alternating() -> int:
        return state

    for number in range(50):
        state = number % 2
        assert any_client.submit(alternating).result() == state
    assert len(count_sent) == 2


# In a cluster --------------------------------------------------------------------------------------------------------

Submit = Callable[..., Any]


def _submit(client: Client, function: Callable[[], Any]) -> Any:
    return client.submit(function).result()


def _verbose(client: Client, function: Callable[[], Any]) -> Any:
    return client.submit_verbose(function, (), {}).result()


def _large_argument(client: Client, function: Callable[..., Any]) -> Any:
    return client.submit(lambda result, _: result(), function, bytes(100_000)).result()


def _map(client: Client, function: Callable[[], Any]) -> Any:
    return client.starmap(function, [()])[0]


def _graph(client: Client, function: Callable[[], Any]) -> Any:
    return client.get({"a": (function,)}, ["a"])["a"]


def _view(client: Client, function: Callable[[], Any]) -> Any:
    return client.options(priority=1).submit(function).result()


def _nested(client: Client, function: Callable[[], Any]) -> Any:
    def parent(client: Client) -> List[Any]:
        counter = [0]

        def child() -> Any:
            return counter[0], function()

        first = client.submit(child).result()
        counter[0] = 1
        second = client.submit(child).result()
        assert (first[0], second[0]) == (0, 1)
        return second[1]

    return client.submit(parent, client).result()


@pytest.mark.parametrize("ask", [_submit, _verbose, _large_argument, _map, _graph, _view, _nested])
def test_every_way_of_submitting_sees_the_present_state(any_client: Client, ask: Submit) -> None:
    rate, table = 1, {"a": 1}

    class Settings:
        rate = 1

    def function() -> Tuple[int, int, int]:
        return rate, table["a"], Settings.rate

    for number in (1, 2, 1, 3):
        rate = table["a"] = Settings.rate = number
        assert ask(any_client, function) == (number, number, number)
        assert Settings.rate == number, "what comes back leaves the class here alone"


def test_classes_have_the_attributes_that_each_task_was_submitted_with(any_client: Client) -> None:
    @dataclass
    class Point:
        x: int
        scale = 1

        def scaled(self) -> int:
            return self.x * self.scale

    def captured() -> int:
        return Point.scale

    def argument(point: Any) -> Tuple[int, bool]:
        return point.scaled(), hasattr(type(point), "extra")

    futures = []
    for scale in (1, 2, 3, 2, 1):
        Point.scale = scale
        if scale == 2:
            Point.extra = True
        elif hasattr(Point, "extra"):
            del Point.extra
        futures.append((scale, any_client.submit(captured), any_client.submit(argument, Point(10))))
    for scale, first, second in futures:
        assert first.result() == scale
        assert second.result() == (10 * scale, scale == 2)
    returned = any_client.submit(identity, Point(5)).result()
    assert type(returned) is Point and returned == Point(5)


def test_threads_may_submit_a_function_whose_state_they_change(any_client: Client) -> None:
    states = list(range(10))
    local = threading.local()

    def stateful(expected: int) -> Tuple[int, int]:
        return expected, stateful.state  # type: ignore[attr-defined]

    lock = threading.Lock()
    futures: List[Any] = []

    def submit_all(first: int) -> None:
        local.first = first
        for number in range(100):
            with lock:
                stateful.state = states[(first + number) % 10]  # type: ignore[attr-defined]
                future = any_client.submit_verbose(stateful, (stateful.state,), {}, reserialize=number % 2 == 0)  # type: ignore[attr-defined]
            futures.append(future)

    threads = [threading.Thread(target=submit_all, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for future in futures:
        expected, found = future.result()
        assert expected == found


def test_two_threads_may_force_a_function_to_be_serialised_at_once(any_client: Client) -> None:
    array = np.zeros(1000)

    def total() -> float:
        return float(array.sum())

    failures: List[BaseException] = []

    def submit_all() -> None:
        try:
            for number in range(200):
                array[0] = number
                any_client.submit_verbose(total, (), {}, reserialize=True).result()
                any_client.submit(total).result()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=submit_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_methods_of_one_object_are_known_apart(any_client: Client) -> None:
    class Counter:
        def __init__(self) -> None:
            self.value = 1

        def get(self) -> int:
            return self.value

        def double(self) -> int:
            return 2 * self.value

    counter = Counter()
    for value in (1, 5):
        counter.value = value
        assert any_client.submit(counter.get).result() == value
        assert any_client.submit(counter.double).result() == 2 * value


@pytest.fixture
def odd_values() -> Iterator[List[Any]]:
    yield [OrderedDict(a=1), functools.partial(max, 1), range(3), frozenset({1}), (1, (2, (3,))), None, ..., 1j]


def test_values_of_many_types_are_captured(any_client: Client, odd_values: List[Any]) -> None:
    def captured() -> List[Any]:
        return odd_values

    for value in list(odd_values):
        odd_values[0] = value
        assert repr(any_client.submit(captured).result()) == repr(odd_values)
