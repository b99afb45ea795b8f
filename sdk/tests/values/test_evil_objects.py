"""Functions, arguments, results and exceptions that do harm when they are pickled or loaded: each ends in one clear
outcome, at the client that submitted them, without affecting others.

    client: pickles function, argument ──▶ worker: loads them, calls, pickles result or exception ──▶ client: loads it
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
from evil_objects import CLIENT, Evil, EvilError, give, run_and_count, throw
from sdk_tasks import identity, wait_for_file

from scaler import Client
from scaler.exceptions import (
    DeserializeObjectError,
    ProcessorDiedError,
    ResultNotSerializableError,
    SerializeObjectError,
    TaskExceptionNotSerializableError,
)
from scaler.values.payload import INLINE_BYTES

TIMEOUT_SECONDS = 30.0
TESTS = Path(__file__).resolve().parents[1]

SIZES = {"small": 0, "large": 2 * INLINE_BYTES}


@pytest.fixture(autouse=True)
def others_are_not_touched(any_client: Client, tmp_path: Path) -> Iterator[None]:
    """Around every test: tasks that were submitted before and after have their results, and both workers work."""
    before = [any_client.submit(identity, number) for number in range(10)]
    yield
    after = [any_client.submit(identity, number) for number in range(10)]
    for futures in (before, after):
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(10))
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    meeting = [any_client.submit(wait_for_file, first, second), any_client.submit(wait_for_file, second, first)]
    wait(meeting, TIMEOUT_SECONDS)
    assert [future.exception(0) for future in meeting] == [None, None]


# How tasks are submitted: each way returns the future that the harm is expected of, and checks the others -------------


def by_submit(client: Client, function: Callable[..., Any], argument: Any) -> Future[Any]:
    return client.submit(function, argument)


def by_submit_verbose(client: Client, function: Callable[..., Any], argument: Any) -> Future[Any]:
    return client.submit_verbose(function, (), {"value": argument} if function is give else {"error": argument})


def by_map(client: Client, function: Callable[..., Any], argument: Any) -> Future[Any]:
    """One item of many: the map fails with it."""
    future: Future[Any] = Future()
    try:
        if function is throw:
            client.map(function, [argument])
        else:
            client.map(function, [1, 2, argument, 4])
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(None)
    return future


def by_graph(client: Client, function: Callable[..., Any], argument: Any) -> Future[Any]:
    """One node of many: what depends on it fails with it, and nothing else."""
    graph = {"evil": (function, argument), "dependant": (str, "evil"), "other": (str, 5), "last": (len, "other")}
    dependant, last = client.submit_graph(graph, ["dependant", "last"])
    assert last.result(TIMEOUT_SECONDS) == 1
    return dependant


def by_argument_object(client: Client, function: Callable[..., Any], argument: Any) -> Future[Any]:
    return client.submit(function, client.send_object(argument))


WAYS = [by_submit, by_submit_verbose, by_map, by_graph, by_argument_object]


# In a worker ----------------------------------------------------------------------------------------------------------

IN_WORKER = {  # moment and role, to what a worker says of what it survives
    ("unpickled", "function"): (DeserializeObjectError, "the worker cannot load the function"),
    ("unpickled", "argument"): (DeserializeObjectError, "the worker cannot load an argument"),
    ("pickled", "result"): (ResultNotSerializableError, "the result cannot be serialised"),
    ("pickled", "exception"): (EvilError, "evil_objects.EvilError"),
    ("unpickled", "exception"): (EvilError, "evil_objects.EvilError"),
}
CAUSES = {
    "crash": "was ended by signal 11 (SIGSEGV)",
    "exit hard": "exited with code 3",
    "exit softly": "SystemExit: it leaves",
    "error": "RuntimeError: it fails",
}


def task_of(role: str, evil: Dict[str, Any]) -> Tuple[Any, Any]:
    """Function and argument of a task in which an evil object has that role."""
    if role == "function":
        return Evil(**evil), 1
    if role == "exception":
        return throw, {**evil, "client": CLIENT}
    return give, Evil(**evil)


def ways_for(role: str) -> List[Any]:
    if role == "function":
        return [by_submit, by_map, by_graph]
    return WAYS if role == "argument" else WAYS[:-1]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("harm", CAUSES)
@pytest.mark.parametrize(
    ("moment", "role", "way"),
    [(moment, role, way) for moment, role in IN_WORKER for way in ways_for(role)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_harm_in_a_worker_fails_its_task_only(
    any_client: Client, moment: str, role: str, harm: str, size: str, way: Any
) -> None:
    evil = {"harm": harm, "moment": moment, "in_client": False, "padding_bytes": SIZES[size]}
    function, argument = task_of(role, evil)
    error: BaseException = way(any_client, function, argument).exception(TIMEOUT_SECONDS)

    kind, text = IN_WORKER[moment, role]
    survives = harm in ("exit softly", "error")
    assert type(error) is (kind if survives else ProcessorDiedError)
    if kind is EvilError and survives:  # without the reduction that does harm
        said = str(error.__cause__)
    else:
        said = str(error)
        assert CAUSES[harm] in said
    assert text in said or not survives
    name = getattr(function, "__qualname__", "Evil")
    assert f"task {name}, on " in said and "attempt 1" in said


def test_harm_is_retried_where_that_was_asked_for(any_client: Client) -> None:
    for moment, role in (("unpickled", "function"), ("unpickled", "argument"), ("pickled", "result")):
        function, argument = task_of(role, {"harm": "crash", "moment": moment, "in_client": False})
        future = any_client.options(retries=2).submit(function, argument)
        with pytest.raises(ProcessorDiedError, match="attempt 3"):
            future.result(TIMEOUT_SECONDS)


@pytest.mark.parametrize("harm", CAUSES)
@pytest.mark.parametrize("moment", ["unpickled", "pickled"])
def test_the_neighbours_of_an_evil_task_all_have_their_results(any_client: Client, harm: str, moment: str) -> None:
    any_client.map(identity, range(100))  # so that tasks travel in chunks
    evil = Evil(harm, moment, in_client=False)
    futures = [any_client.submit(identity, evil if number % 50 == 25 else number) for number in range(300)]
    for number, future in enumerate(futures):
        if number % 50 == 25:
            assert CAUSES[harm] in str(future.exception(TIMEOUT_SECONDS))
        else:
            assert future.result(TIMEOUT_SECONDS) == number


def test_tasks_at_most_once_beside_a_crash_run_once(any_client: Client, tmp_path: Path) -> None:
    once = any_client.options(at_most_once=True)
    paths = [str(tmp_path / str(number)) for number in range(60)]
    evil = Evil("crash", "unpickled", in_client=False)
    futures = [
        once.submit(run_and_count, path, evil if number % 20 == 10 else None) for number, path in enumerate(paths)
    ]
    for number, (path, future) in enumerate(zip(paths, futures)):
        if number % 20 == 10:
            assert type(future.exception(TIMEOUT_SECONDS)) is ProcessorDiedError
            assert not Path(path).exists()
        else:
            assert future.result(TIMEOUT_SECONDS) is None and Path(path).read_text() == "x"


def test_items_at_most_once_beside_an_evil_one_run_no_more_than_once(any_client: Client, tmp_path: Path) -> None:
    paths = [str(tmp_path / str(number)) for number in range(40)]
    evils = [Evil("crash", "unpickled", in_client=False) if number == 25 else None for number in range(40)]
    with pytest.raises(ProcessorDiedError) as raised:
        any_client.options(at_most_once=True).map(run_and_count, paths, evils)
    assert notes(raised.value) == ["(item 25 of map)", f"see {raised.value.page}"]
    assert {path.read_text() for path in tmp_path.iterdir()} <= {
        "x",
        "",
    }  # a map that fails does not wait for other items
    assert not Path(paths[25]).exists()


def test_an_error_of_a_chunk_of_map_says_which_items_it_may_be_about(any_client: Client) -> None:
    any_client.map(identity, range(1000))
    for moment, in_client, kind in (
        ("pickled", True, SerializeObjectError),
        ("unpickled", False, DeserializeObjectError),
        ("pickled", False, ResultNotSerializableError),
        ("unpickled", True, DeserializeObjectError),
    ):
        items: List[Any] = [*range(1000), Evil("error", moment, in_client)]
        with pytest.raises(kind) as raised:
            any_client.map(identity, items)
        assert "1000 of map)" in notes(raised.value)[0]


def notes(error: BaseException) -> List[str]:
    return list(getattr(error, "__notes__", []))


# In the client --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [by_submit, by_map, by_graph], ids=lambda way: way.__name__)
@pytest.mark.parametrize("role", ["function", "argument"])
@pytest.mark.parametrize("size", SIZES)
def test_what_does_not_pickle_is_raised_where_it_is_submitted(
    any_client: Client, role: str, size: str, way: Any
) -> None:
    evil = {"harm": "error", "moment": "pickled", "in_client": True, "padding_bytes": SIZES[size]}
    with pytest.raises(SerializeObjectError, match="cannot be serialised: RuntimeError: it fails"):
        way(any_client, *task_of(role, evil)).result(TIMEOUT_SECONDS)
    with pytest.raises(SystemExit, match="it leaves"):  # the user's program asked to end
        way(any_client, *task_of(role, {**evil, "harm": "exit softly"}))


@pytest.mark.parametrize("way", [by_submit, by_submit_verbose, by_map], ids=lambda way: way.__name__)
@pytest.mark.parametrize("harm", ["error", "exit softly"])
@pytest.mark.parametrize("size", SIZES)
def test_what_does_not_load_here_fails_its_future_only(any_client: Client, size: str, harm: str, way: Any) -> None:
    evil = {"harm": harm, "moment": "unpickled", "in_client": True, "padding_bytes": SIZES[size]}
    error = way(any_client, *task_of("result", evil)).exception(TIMEOUT_SECONDS)
    assert type(error) is DeserializeObjectError
    assert f"the result cannot be loaded by this client: {CAUSES[harm]}" in str(error)

    error = way(any_client, *task_of("exception", {**evil, "padding_bytes": 0})).exception(TIMEOUT_SECONDS)
    assert type(error) is TaskExceptionNotSerializableError
    assert f"cannot be loaded here ({CAUSES[harm]})" in str(error) and "in throw" in str(error.__cause__)


EVIL_CLIENT = """
import sys
from evil_objects import CLIENT, Evil, give, throw
from sdk_tasks import wait_for_file
from scaler import Client

if __name__ == "__main__":
    address, harm, moment, role, path = sys.argv[1:]
    client = Client(address)
    client.submit(wait_for_file, path, path + ".running", 600.0)
    wait_for_file(path + ".running")
    print("runs", flush=True)
    evil = dict(harm=harm, moment=moment, in_client=True)
    if role == "function":
        future = client.submit(Evil(**evil), 1)
    elif role == "exception":
        future = client.submit(throw, {**evil, "client": CLIENT})
    else:
        future = client.submit(give, Evil(**evil))
    future.result(30)
"""


@pytest.mark.parametrize(("harm", "code"), [("crash", -11), ("exit hard", 3)])
@pytest.mark.parametrize(
    ("moment", "role"),
    [("pickled", "function"), ("pickled", "argument"), ("unpickled", "result"), ("unpickled", "exception")],
)
def test_harm_to_a_client_does_not_affect_others(
    any_client: Client, any_address: str, moment: str, role: str, harm: str, code: int, tmp_path: Path
) -> None:
    """The fixture shows that other clients' tasks go on, and that the dead client's running task was stopped: both
    workers are free again."""
    others = [any_client.submit(identity, number) for number in range(100)]
    path = str(tmp_path / "never")
    command = [sys.executable, "-c", EVIL_CLIENT, any_address, harm, moment, role, path]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (code, "runs\n"), done.stderr
    assert [future.result(TIMEOUT_SECONDS) for future in others] == list(range(100))
