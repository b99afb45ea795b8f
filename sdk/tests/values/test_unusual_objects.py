"""Exceptions, arguments, results, callbacks and keys that are not what code expects: users have them all."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import functools
import os
import sys
import threading
import tokenize
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NoReturn

import pytest
from evil_objects import crash, run_and_count
from sdk_tasks import identity, notes_of, wait_for_file, wait_until

from scaler import Client, ScalerFuture
from scaler.exceptions import (
    DeserializeObjectError,
    GraphKeyError,
    ProcessorDiedError,
    RemoteTraceback,
    ResultNotSerializableError,
    SerializeObjectError,
    TaskExceptionNotSerializableError,
)
from scaler.values.payload import INLINE_BYTES

TIMEOUT_SECONDS = 30.0


@pytest.fixture(autouse=True)
def the_client_stays_usable(any_client: Client) -> Iterator[None]:
    yield
    futures = [any_client.submit(identity, number) for number in range(10)]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(10))


def throw(kind: Any, *arguments: Any) -> NoReturn:
    raise kind(*arguments)


# Exceptions -----------------------------------------------------------------------------------------------------------


class OwnBaseError(BaseException):
    pass


BASE_EXCEPTIONS = [
    KeyboardInterrupt,
    GeneratorExit,
    SystemExit,
    asyncio.CancelledError,
    concurrent.futures.CancelledError,
    StopIteration,
    StopAsyncIteration,
    OwnBaseError,
]


@pytest.mark.parametrize("kind", BASE_EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_whatever_a_task_raises_is_its_outcome(any_client: Client, kind: Any) -> None:
    future = any_client.submit(throw, kind)
    with pytest.raises(kind) as raised:
        future.result(TIMEOUT_SECONDS)
    assert type(raised.value.__cause__) is RemoteTraceback and not future.cancelled()
    with pytest.raises(kind):
        any_client.submit_verbose(throw, (kind,), {}).result(TIMEOUT_SECONDS)
    with pytest.raises(kind):
        any_client.map(throw, [kind])
    dependant, other = any_client.submit_graph({"a": (throw, kind), "b": (str, "a"), "c": (len, "text")}, ["b", "c"])
    assert other.result(TIMEOUT_SECONDS) == 4
    assert type(dependant.exception(TIMEOUT_SECONDS)) is kind


@pytest.mark.parametrize("kind", BASE_EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_whatever_a_task_raises_reaches_who_awaits_it(any_client: Client, kind: Any) -> None:
    seen: List[BaseException] = []

    async def main() -> None:
        try:
            await any_client.submit(throw, kind)
        except BaseException as error:  # an event loop itself ends on some of them
            seen.append(error)

    asyncio.run(main())
    expected = RuntimeError if kind is StopIteration else kind  # Python's own rule: a coroutine raises no StopIteration
    assert type(seen[0]) is expected


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class SetsNoAttributesError(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"{name} cannot be set")


class HasNoTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no text")

    __repr__ = __str__


class ReducesToNonsenseError(Exception):
    def __reduce__(self) -> Any:
        return (5,)


class LoadsAsNumberError(Exception):
    def __reduce__(self) -> Any:
        return (int, ())


class HoldsLockError(Exception):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class NeedsArgumentsError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def class_with_a_lock() -> Any:
    return type("HasLockInItsClassError", (Exception,), {"lock": threading.Lock(), "__module__": "__main__"})


class HasLockInItsClassError:
    """Raises an exception of a class that cannot be pickled."""

    def __new__(cls) -> Any:
        return class_with_a_lock()()


class NotesNothingError(Exception):
    def add_note(self, note: str) -> None:
        raise RuntimeError("no notes")


def as_itself(client: Client, *arguments: Any) -> BaseException:
    error = client.submit(throw, *arguments).exception(TIMEOUT_SECONDS)
    assert error is not None
    return error


def in_a_map(client: Client, *arguments: Any) -> BaseException:
    with pytest.raises(Exception) as raised:
        client.starmap(throw, [arguments])
    return raised.value


def in_a_graph(client: Client, *arguments: Any) -> BaseException:
    error = client.submit_graph({"evil": (throw, *arguments), "b": (str, "evil")}, ["b"])[0].exception(TIMEOUT_SECONDS)
    assert error is not None
    return error


@pytest.mark.parametrize("way", [as_itself, in_a_map, in_a_graph])
@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ((FrozenError, 1), [FrozenError]),
        ((SetsNoAttributesError,), [SetsNoAttributesError]),
        ((HasNoTextError,), [HasNoTextError]),
        ((ReducesToNonsenseError,), [ReducesToNonsenseError]),
        ((LoadsAsNumberError,), [LoadsAsNumberError]),
        ((HoldsLockError,), [HoldsLockError]),
        ((NeedsArgumentsError, 1, 2), [NeedsArgumentsError]),
        ((NotesNothingError,), [NotesNothingError]),
        ((OSError, "\udc80"), [OSError]),
        ((ValueError, "x" * INLINE_BYTES), [ValueError]),
        ((HasLockInItsClassError,), [TaskExceptionNotSerializableError]),
        ((5,), [TypeError]),
    ],
    ids=lambda value: getattr(value[0], "__name__", value[0]) if type(value) is tuple else "",
)
def test_exceptions_that_forbid_what_is_done_with_exceptions(
    any_client: Client, arguments: Any, kinds: Any, way: Any
) -> None:
    error = way(any_client, *arguments)
    assert type(error) in kinds
    assert "in throw" in str(error.__cause__)
    if type(error) is TaskExceptionNotSerializableError:
        assert arguments[0].__name__ in str(error)


def even(number: int) -> bool:
    return odd(number + 1)


def odd(number: int) -> bool:
    return even(number + 1)


def test_recursion_without_end_is_told_as_such_however_long_its_traceback_is(any_client: Client) -> None:
    with pytest.raises(RecursionError) as raised:
        any_client.submit(even, 0).result(TIMEOUT_SECONDS)
    assert "in even" in str(raised.value.__cause__) and "in odd" in str(raised.value.__cause__)


# Arguments and results ------------------------------------------------------------------------------------------------


def nested(depth: int) -> List[Any]:
    value: List[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class ReducesToNonsense:
    def __reduce__(self) -> Any:
        return 5


class SaysNothing(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


class FailsWithoutText:
    def __reduce__(self) -> Any:
        raise SaysNothing


class LoadsWithoutText:
    def __reduce__(self) -> Any:
        return (throw, (SaysNothing,))


UNPICKLABLE = [threading.Lock, lambda: (number for number in range(3)), ReducesToNonsense, FailsWithoutText]


@pytest.mark.parametrize("make", UNPICKLABLE, ids=["lock", "generator", "nonsense", "fails without text"])
def test_what_does_not_pickle_is_named(any_client: Client, make: Callable[[], Any]) -> None:
    with pytest.raises(SerializeObjectError, match="an argument of identity cannot be serialised"):
        any_client.submit(identity, make())
    with pytest.raises(SerializeObjectError, match="an object of type"):
        any_client.send_object(make())
    with pytest.raises(ResultNotSerializableError, match="the result cannot be serialised"):
        any_client.submit(make).result(TIMEOUT_SECONDS)
    value = make()
    with pytest.raises(SerializeObjectError, match="cannot be serialised"):
        any_client.submit(lambda: value)


def test_nesting_too_deep_for_pickle_is_named(any_client: Client) -> None:
    with pytest.raises(SerializeObjectError, match="recursion"):
        any_client.submit(identity, nested(100_000))
    with pytest.raises(ResultNotSerializableError, match="recursion"):
        any_client.submit(nested, 100_000).result(TIMEOUT_SECONDS)
    assert any_client.submit(nested, 100).result(TIMEOUT_SECONDS) == nested(100)


@pytest.mark.parametrize("value", [None, b"", "", (), [], {}, 0, False, frozenset()], ids=repr)
def test_nothing_is_a_result_as_any_other(any_client: Client, value: Any) -> None:
    def give() -> Any:
        return value

    assert any_client.submit(give).result(TIMEOUT_SECONDS) == value
    assert any_client.submit(identity, value).result(TIMEOUT_SECONDS) == value
    assert any_client.get({"a": (give,), "b": (identity, "a")}, ["a", "b"]) == {"a": value, "b": value}


def test_functions_and_classes_travel_both_ways(any_client: Client) -> None:
    assert any_client.submit(lambda: lambda number: number + 1).result(TIMEOUT_SECONDS)(1) == 2
    assert any_client.submit(identity, lambda: 3).result(TIMEOUT_SECONDS)() == 3


def test_an_error_without_text_is_told_by_its_name(any_client: Client) -> None:
    with pytest.raises(DeserializeObjectError, match="the worker cannot load an argument: SaysNothing"):
        any_client.submit(identity, LoadsWithoutText()).result(TIMEOUT_SECONDS)
    with pytest.raises(DeserializeObjectError, match="cannot be loaded by this client: SaysNothing"):
        any_client.submit(LoadsWithoutText).result(TIMEOUT_SECONDS)


class RaisesWhenDeleted:
    def __del__(self) -> None:
        raise RuntimeError("in a destructor")


class CrashesWhenDeleted:
    def __del__(self) -> None:
        crash()


class LoadsAsCrash:
    """Loads as an object that crashes its process when it is deleted."""

    def __reduce__(self) -> Any:
        return (CrashesWhenDeleted, ())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_destructors_that_raise_are_ignored(any_client: Client) -> None:
    assert type(any_client.submit(identity, RaisesWhenDeleted()).result(TIMEOUT_SECONDS)) is RaisesWhenDeleted
    assert any_client.map(str, [RaisesWhenDeleted() for _ in range(10)])


def fail(value: Any) -> NoReturn:
    raise ValueError("it fails")


def test_a_destructor_that_crashes_is_the_fault_of_the_task_it_came_with(any_client: Client) -> None:
    with pytest.raises(ValueError, match="it fails"):
        any_client.map(fail, range(10))
    futures: List[ScalerFuture[Any]] = [
        any_client.submit(fail, LoadsAsCrash() if number % 10 == 5 else number) for number in range(100)
    ]
    for number, future in enumerate(futures):
        assert type(future.exception(TIMEOUT_SECONDS)) is (ProcessorDiedError if number % 10 == 5 else ValueError)


def close_all_descriptors() -> None:
    os.closerange(3, 4096)


def test_a_task_that_closes_files_of_others_ends_without_affecting_other_tasks(
    any_client: Client, tmp_path: Path
) -> None:
    marks = [tmp_path / str(number) for number in range(20)]
    futures = [any_client.submit(run_and_count, str(path)) for path in marks]
    future = any_client.submit(close_all_descriptors)
    futures += [any_client.submit(run_and_count, str(path)) for path in marks]
    with pytest.raises(ProcessorDiedError, match="before it could send the outcome, in each of 4 attempts"):
        future.result(TIMEOUT_SECONDS)
    assert [each.result(TIMEOUT_SECONDS) for each in futures] == [None] * 40


def write_a_number(path: str) -> str:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.write(5)  # type: ignore[arg-type]  # wrong on purpose
        except TypeError:
            pass
    print("\udc80", end="")
    Path(path).touch()
    return "done"


def test_output_that_is_no_text_is_the_tasks_own_problem(any_client: Client, tmp_path: Path) -> None:
    future = any_client.options(stream_output=True).submit(write_a_number, str(tmp_path / "done"))
    assert future.result(TIMEOUT_SECONDS) == "done"


class RaisesOnAttributes:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"there is no {name}")

    def __reduce__(self) -> Any:
        return (RaisesOnAttributes, ())

    def __call__(self) -> int:
        return 4


class HasAnEvilSignature:
    @property
    def __signature__(self) -> Any:
        raise RuntimeError("no signature")

    def __call__(self) -> int:
        return 4


@pytest.mark.parametrize("kind", [RaisesOnAttributes, HasAnEvilSignature])
def test_callables_that_cannot_be_inspected_can_be_called(any_client: Client, kind: Any) -> None:
    assert any_client.submit(kind()).result(TIMEOUT_SECONDS) == 4
    assert any_client.get({"a": (kind(),)}, ["a"]) == {"a": 4}


def test_the_name_of_an_object_is_text(any_client: Client) -> None:
    with pytest.raises(TypeError, match="the name of an object must be a str, not int"):
        any_client.send_object(1, name=5)  # type: ignore[arg-type]  # wrong on purpose
    assert any_client.submit(identity, any_client.send_object(1, name="\udc80")).result(TIMEOUT_SECONDS) == 1


# Callbacks and waiting ------------------------------------------------------------------------------------------------


def leave_when(path: str) -> NoReturn:
    wait_for_file(path)
    sys.exit()


def test_callbacks_that_leave_keep_no_others_from_running(any_client: Client, done_files: List[Path]) -> None:
    called = threading.Semaphore(0)
    futures: List[ScalerFuture[Any]] = [any_client.submit(leave_when, str(done_files[1])) for _ in range(4)]
    for future in futures:
        future.add_done_callback(lambda future: sys.exit())
        future.add_done_callback(lambda future: future.result(0))  # raises SystemExit
        future.add_done_callback(lambda future: called.release())
    done_files[1].touch()
    assert all(called.acquire(timeout=TIMEOUT_SECONDS) for _ in futures)


def test_an_output_callback_that_leaves_goes_on(any_address: str) -> None:
    seen = threading.Event()

    def show(output: Any) -> None:
        if output.text == "second\n":
            seen.set()
        sys.exit()

    with Client(address=any_address, stream_output=show) as client:
        client.submit(print, "first").result(TIMEOUT_SECONDS)
        client.submit(print, "second").result(TIMEOUT_SECONDS)
        assert seen.wait(TIMEOUT_SECONDS)


_loading: List[Client] = []


def _ask_for_another() -> Any:
    return _loading[0].submit(identity, 5).result(TIMEOUT_SECONDS) if _loading else None


class LoadsByWaiting:
    """Waits for another task of the same client while it is loaded there."""

    def __reduce__(self) -> Any:
        return (_ask_for_another, ())


def test_waiting_for_the_first_exception_loads_no_result(any_client: Client) -> None:
    """Loading is user code: it may take long or wait, and `wait` holds what the client's I/O thread needs."""
    future: ScalerFuture[Any] = any_client.submit(LoadsByWaiting)
    failed: ScalerFuture[Any] = any_client.submit(fail, 1)
    concurrent.futures.wait([future, failed], TIMEOUT_SECONDS)
    _loading.append(any_client)
    try:
        done, _ = concurrent.futures.wait([future], TIMEOUT_SECONDS, concurrent.futures.FIRST_EXCEPTION)
        assert done == {future} and future.result(TIMEOUT_SECONDS) == 5
        never: ScalerFuture[Any] = any_client.submit(wait_until, Path("never"), 600.0)
        done, _ = concurrent.futures.wait([failed, never], TIMEOUT_SECONDS, concurrent.futures.FIRST_EXCEPTION)
        assert done == {failed} and never.cancel()
    finally:
        _loading.clear()


def test_an_interrupt_while_a_result_is_loaded_is_the_users(any_client: Client, monkeypatch: Any) -> None:
    import scaler.client.future as module

    future = any_client.submit(identity, [1])
    concurrent.futures.wait([future], TIMEOUT_SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(module, "load_value", lambda payload, serializer: throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            future.result()
    assert future.result() == [1]


# Keys of graphs -------------------------------------------------------------------------------------------------------


class RaisesWhenHashed:
    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class RaisesWhenCompared:
    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparing")


class RaisesWhenShown:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def kind_of(value: Any) -> str:
    return type(value).__name__


def test_graphs_with_values_that_cannot_be_hashed_or_compared(any_client: Client) -> None:
    assert any_client.get({"a": (kind_of, RaisesWhenHashed())}, ["a"]) == {"a": "RaisesWhenHashed"}
    with pytest.raises(GraphKeyError, match="RaisesWhenCompared cannot be compared with the graph's keys"):
        any_client.get({"a": (kind_of, RaisesWhenCompared())}, ["a"])
    for key in (RaisesWhenHashed(), RaisesWhenCompared()):
        with pytest.raises(GraphKeyError, match="cannot be a key: RuntimeError"):
            any_client.get({"a": 1}, [key])


def test_graphs_with_keys_that_cannot_be_shown(any_client: Client) -> None:
    key = RaisesWhenShown()
    with pytest.raises(ValueError, match="it fails") as raised:
        any_client.get({key: (fail, 1)}, [key])
    assert notes_of(raised.value) == ["(raised by node <RaisesWhenShown whose repr fails> of the graph)"]
    with pytest.raises(GraphKeyError, match="<RaisesWhenShown whose repr fails> is not in the graph"):
        any_client.get({"a": 1}, [key])
    assert any_client.get({key: [bytes(2 * INLINE_BYTES)], "b": (len, key)}, ["b"]) == {"b": 1}


# Functions with a cache -----------------------------------------------------------------------------------------------


def test_a_cached_function_that_workers_cannot_import_is_sent_with_its_parameters_and_without_its_cache(
    any_client: Client,
) -> None:
    namespace: Dict[str, Any] = {"__name__": "__main__", "lru_cache": functools.lru_cache}
    exec(
        "@lru_cache(maxsize=50, typed=True)\ndef fibonacci(n):\n"
        "    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)",
        namespace,
    )
    fibonacci = namespace["fibonacci"]
    assert any_client.submit(fibonacci, 60).result(TIMEOUT_SECONDS) == fibonacci(60)
    assert any_client.map(fibonacci, [10, 20]) == [55, 6765]
    parameters = any_client.submit(lambda: (fibonacci.cache_parameters(), fibonacci.cache_info().currsize))
    assert parameters.result(TIMEOUT_SECONDS) == ({"maxsize": 50, "typed": True}, 0)


def test_a_cached_function_of_an_installed_module_stays_that_function(any_client: Client) -> None:
    module: Any = tokenize
    assert any_client.submit(lambda: module._compile).result(TIMEOUT_SECONDS) is module._compile
