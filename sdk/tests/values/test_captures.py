"""Snapshots of what functions capture: they hold exactly as long as pickling would give the same."""

from __future__ import annotations

import functools
import gc
import json
import sys
import types
import weakref
from typing import Any, Callable, Dict, List, Tuple

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.client.functions import FunctionRegistry
from scaler.values.captures import LARGE_BUFFER_BYTES, Reference, Snapshot
from scaler.values.payload import Parts, join, load_function
from scaler.values.pickling import captures_of

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
    snapshot = captures_of(function)
    reference = weakref.ref(world["large"])

    del world["large"]

    assert reference() is None and snapshot is not None and not snapshot.holds(function)


def test_a_new_object_at_the_address_of_a_dead_one_is_a_change() -> None:
    world = make_world()
    function = submitted("settings.rate")(world)
    for rate in range(50):
        world["settings"].rate = rate
        snapshot = captures_of(function)
        world["settings"] = None
        world["settings"] = world["Settings"]()  # often at the same address
        assert snapshot is not None and not snapshot.holds(function)


def test_a_function_of_a_module_travels_by_reference_as_long_as_it_is_found_there() -> None:
    module = types.ModuleType("scaler_test_module")
    exec("def function(): return 1", module.__dict__)
    sys.modules[module.__name__] = module
    try:
        captures = captures_of(module.function)
        assert isinstance(captures, Reference) and captures.holds(module.function)
        first = module.function
        exec("def function(): return 2", module.__dict__)  # as reloading it does
        assert not captures.holds(first)

        captures = captures_of(module.function)
        assert captures is not None and captures.holds(module.function)
        cloudpickle.register_pickle_by_value(module)
        assert not captures.holds(module.function)
        assert isinstance(captures_of(module.function), Snapshot)
        cloudpickle.unregister_pickle_by_value(module)
        assert captures.holds(module.function)
    finally:
        del sys.modules[module.__name__]


NAMED_UFUNC: Any = np.add if hasattr(np.add, "__qualname__") else np.sum
"""Before NumPy 2.2 universal functions do not say where they are found, and are serialised each time."""


@pytest.mark.parametrize("function", [NAMED_UFUNC, np.sum, len, functools.reduce, json.dumps, int, np.ndarray])
def test_callables_of_modules_are_known(function: Callable[..., Any]) -> None:
    captures = captures_of(function)
    assert isinstance(captures, Reference) and captures.holds(function)


def test_what_cannot_be_followed_is_serialised_each_time() -> None:
    class Odd:
        def __init__(self) -> None:
            self.count = 0

        def __call__(self) -> int:
            return self.count

        def __reduce__(self) -> Tuple[Any, ...]:
            self.count += 1
            return (int, (self.count,))

    assert captures_of(Odd()) is None


def test_a_function_whose_captures_are_slow_to_compare_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = make_world()
    world["numbers"] = list(range(2_000_000))
    function = submitted("len(numbers)")(world)
    sender = Sender()

    for _ in range(12):
        sender.run(function)

    (record,) = caplog.records
    assert "each submission of submitted spends" in record.message and len(sender.sent) == 1
