"""The tests of clients in a cluster, on a synchronous client; and what it does differently on purpose.

Each test of MODULES runs here again with a synchronous client in the place of each client of a cluster, unless NOT_HERE
says why it does not apply. A test that is added there runs here, too.
"""

from __future__ import annotations

import asyncio
import bdb
import gc
import importlib
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from scaler import Client, NamedFunction
from scaler.exceptions import MissingObjects, SchedulerNotFoundError, SerializeObjectError
from scaler_protocol import messages as m

MODULES = [
    "test_client",
    "test_errors",
    "test_future_arguments",
    "test_graphs",
    "test_options",
    "test_profiling",
    "test_progress",
    "test_signatures",
    "test_streams",
]

_UNFINISHED = "it is about tasks that have not ended, and here each ends within `submit`"
_CLUSTER = "it is about the connection, the scheduler or the workers of a cluster"
_OWN_PROCESS = "its task ends the process that runs it, which is that of the tests"
_LIMITS = "a limit of a task's time or memory has no effect here: a breakpoint may take any time"
_MANY = "it is about the speed of very many tasks"
_NO_CLIENT = "it uses no client"

NOT_HERE: Dict[str, str] = {
    "test_an_endless_iterable_is_taken_as_far_as_the_buffer_reaches_in_the_consuming_thread": _UNFINISHED,
    "test_the_next_item_runs_while_a_result_is_looked_at": _UNFINISHED,
    "test_a_stream_that_ends_early_cancels_what_has_not_started": _UNFINISHED,
    "test_results_come_as_they_arrive": _UNFINISHED,
    "test_futures_come_as_they_are_done": _UNFINISHED,
    "test_the_time_is_limited_and_finished_futures_come_first": _UNFINISHED,
    "test_without_consumption_few_items_are_taken": _UNFINISHED,
    "test_a_time_limit_applies_to_each_call": _LIMITS,
    "test_a_hundred_thousand_small_tasks_all_come_back": _MANY,
    "test_ten_thousand_nodes": _MANY,
    "test_three_hundred_thousand_nodes": _MANY,
    "test_tqdm_itself_shows_futures_as_they_come": _MANY,
    "test_more_references_than_a_task_can_have_are_refused_and_harm_no_other_task": _MANY,
    "test_it_says_what_a_call_says": _NO_CLIENT,
    "test_wait_returns_at_the_first_exception": _UNFINISHED,
    "test_result_times_out_and_the_task_goes_on": _UNFINISHED,
    "test_disconnect_cancels_what_is_unfinished_and_is_idempotent": _UNFINISHED,
    "test_clear_cancels_tasks_and_leaves_the_client_usable": _UNFINISHED,
    "test_a_client_without_references_leaves_once_its_tasks_are_done": _UNFINISHED,
    "test_what_needs_a_cancelled_task_is_cancelled": _UNFINISHED,
    "test_a_task_that_waits_for_others_can_be_cancelled_alone": _UNFINISHED,
    "test_clear_ends_what_waits": _UNFINISHED,
    "test_disconnecting_ends_what_waits": _UNFINISHED,
    "test_explain_says_what_a_task_waits_for": _UNFINISHED,
    "test_a_task_and_the_result_that_it_needs_may_cross": _UNFINISHED,
    "test_a_task_and_the_failure_of_one_that_it_needs_may_cross": _UNFINISHED,
    "test_a_task_that_was_given_back_waits_for_its_other_predecessors_here": _UNFINISHED,
    "test_tasks_before_and_after_one_that_is_never_sent_keep_their_results": _UNFINISHED,
    "test_cancelling_a_node_cancels_what_only_it_needed": _UNFINISHED,
    "test_clear_stops_a_graph_with_what_runs_of_it": _UNFINISHED,
    "test_get_cancels_the_rest_when_one_fails": _UNFINISHED,
    "test_a_client_that_leaves_takes_its_graph_along": _UNFINISHED,
    "test_there_is_no_profile_before_the_outcome_or_without_an_end": _UNFINISHED,
    "test_wait_ends_when_it_should": _UNFINISHED,
    "test_wait_gives_up_in_time_and_leaves_nothing_behind": _UNFINISHED,
    "test_clients_that_tasks_forget_do_not_gather_in_the_processor": _CLUSTER,
    "test_a_protected_scheduler_refuses_to_shut_down": _CLUSTER,
    "test_nothing_listens_at_the_address": _CLUSTER,
    "test_the_host_name_is_not_known": _CLUSTER,
    "test_a_web_server_is_no_scheduler": _CLUSTER,
    "test_something_else_that_speaks_zeromq_is_no_scheduler": _CLUSTER,
    "test_a_session_that_no_scheduler_grants": _CLUSTER,
    "test_the_protocols_do_not_fit": _CLUSTER,
    "test_a_function_whose_module_is_missing_on_the_worker": _CLUSTER,
    "test_a_large_result_goes_to_its_dependants_without_its_client": _CLUSTER,
    "test_large_intermediate_results_never_come_to_the_client": _CLUSTER,
    "test_workers_on_another_host_send_large_results_through_the_scheduler": _CLUSTER,
    "test_capabilities_of_a_graphs_nodes_are_counted": _CLUSTER,
    "test_capabilities_are_counted": _CLUSTER,
    "test_a_name_alone_is_asked_for_in_either_generations_way": _CLUSTER,
    "test_a_capability_that_no_worker_offers_waits_without_blocking_others": _CLUSTER,
    "test_tasks_of_higher_priority_start_first": _CLUSTER,
    "test_tasks_of_equal_options_share_a_batch": _CLUSTER,
    "test_a_view_is_passed_to_a_task": _CLUSTER,
    "test_a_processor_that_dies_fails_its_task_only": _OWN_PROCESS,
    "test_a_node_that_kills_its_processor_is_named": _OWN_PROCESS,
    "test_a_view_runs_graphs_with_its_options": _OWN_PROCESS,
    "test_retries_run_a_task_again_whose_processor_died": _OWN_PROCESS,
    "test_without_retries_a_task_runs_once": _OWN_PROCESS,
    "test_a_task_at_most_once_ends_with_its_worker_and_others_run_again": _OWN_PROCESS,
    "test_no_finished_task_runs_again_because_a_neighbour_at_most_once_kills_its_processor": _OWN_PROCESS,
    "test_a_time_limit_stops_the_function_and_reports_its_stack": _LIMITS,
    "test_a_function_that_blocks_all_signals_is_stopped_without_a_stack": _LIMITS,
    "test_a_time_limit_is_that_of_each_task_and_of_each_item_of_a_map": _LIMITS,
    "test_time_spent_on_loading_the_function_does_not_count": _LIMITS,
    "test_a_memory_limit_stops_the_function_and_reports_its_stack": _LIMITS,
}


def _loaded(name: str) -> ModuleType:
    """A module of tests, imported by its name, so that tasks find its functions."""
    folder = str(Path(__file__).parent)
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def _tests() -> Iterator[Any]:
    for module in map(_loaded, MODULES):
        for name, value in vars(module).items():
            if name.startswith("test_") and getattr(value, "__module__", "") == module.__name__:
                yield name, value


_left_out: List[str] = []
for _name, _test in _tests():
    if _name in NOT_HERE:
        _left_out.append(_name)
    else:
        assert _name not in globals(), f"two tests are called {_name}"
        globals()[_name] = _test


def nothing_is_left(client: Any) -> bool:
    """Whether a client keeps no objects but its functions."""
    held = client._shell.io.held.values()
    return all(kept is not None and kept.kind == m.ObjectKind.FUNCTION for kept in held)


graphs: Any = _loaded("test_graphs")
graphs.nothing_is_left = nothing_is_left  # which looks into a scheduler's folder otherwise
replace_screen: Any = _loaded("test_progress").replace_screen


@pytest.fixture
def address() -> str:
    return "synchronous"


any_address = address


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """It is open: a task that waits for it would wait for ever."""
    path = tmp_path / "go"
    path.touch()
    return path


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as client:
        yield client


any_client = either = client


def test_what_is_left_out_exists_and_has_a_reason() -> None:
    assert sorted(_left_out) == sorted(NOT_HERE)


# What is different, on purpose ---------------------------------------------------------------------------------------


def test_a_task_runs_in_the_calling_thread_when_it_is_submitted(client: Client) -> None:
    future = client.submit(threading.get_ident)
    assert future.done() and not future.running() and not future.cancel()
    assert future.result() == threading.get_ident()


def test_arguments_and_results_are_copies(client: Client) -> None:
    values = [1]

    def change(given: List[Any]) -> List[Any]:
        given.append(2)
        return given

    future = client.submit(change, values)
    assert (values, future.result()) == ([1], [1, 2])
    with pytest.raises(SerializeObjectError):
        client.submit(change, [threading.Lock()])


def divide(dividend: int, divisor: int) -> float:
    return dividend / divisor


def test_the_frames_of_a_failed_task_are_there_for_a_debugger(client: Client) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        client.submit(divide, 1, 0).result()
    frames = [frame for frame, _ in traceback.walk_tb(raised.value.__traceback__)]
    assert frames[-1].f_code is divide.__code__ and frames[-1].f_locals == {"dividend": 1, "divisor": 0}


@pytest.mark.parametrize("error", [KeyboardInterrupt, bdb.BdbQuit])
def test_an_interrupt_and_the_end_of_debugging_reach_the_caller(client: Client, error: Any) -> None:
    def interrupted() -> None:
        raise error

    for submit in (client.submit, lambda function: client.map(function, [()])):
        with pytest.raises(error):
            submit(interrupted)
    assert client.submit(abs, -1).result() == 1, "the client lives on"


def nested(number: int) -> int:
    with Client() as client:
        return client.submit(abs, -number).result() + int("synchronous" in repr(client))


def test_a_client_made_in_a_task_is_synchronous_too(client: Client) -> None:
    assert client.submit(nested, 5).result() == 6
    with pytest.raises(SchedulerNotFoundError):
        Client()


def test_tasks_run_event_loops_within_a_coroutine(client: Client) -> None:
    async def later(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async def main() -> Tuple[int, Any]:
        task = asyncio.current_task()
        result = await client.submit(later, 3) + client.submit(later, 4).result()
        return result, asyncio.current_task() is task

    assert asyncio.run(main()) == (7, True)


def test_output_is_shown_at_once_with_the_number_of_its_task(capsys: pytest.CaptureFixture[str]) -> None:
    with Client.synchronous(stream_output=True) as client:
        client.submit(print, "before")
        assert capsys.readouterr().out == "[task 0] before\n"
        shown: List[Any] = []
        with Client.synchronous(stream_output=shown.append) as other:
            other.submit(print, "elsewhere")
        assert [(each.stream, each.text) for each in shown] == [("stdout", "elsewhere\n")]


def test_modules_are_imported_from_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text("def twice(number): return 2 * number")

    def call(number: int) -> Any:
        import only_here  # type: ignore[import-not-found]  # made by this test

        return only_here.twice(number)

    path = list(sys.path)
    with Client.synchronous(modules=[tmp_path / "only_here.py"]) as client:
        assert client.submit(call, 4).result() == 8
    assert sys.path == path


def test_functions_that_can_be_imported_are_called_by_name(client: Client) -> None:
    assert client.submit(NamedFunction("python:math:hypot"), 3, 4).result() == 5.0


def test_clients_share_objects_until_their_owner_leaves(client: Client) -> None:
    with Client.synchronous() as other:
        reference = other.send_object([1, 2])
        assert client.submit(sum, reference).result() == 3
        assert other.info().slots == 1
    assert isinstance(client.submit(sum, reference).exception(), MissingObjects)


def test_a_client_without_references_leaves_nothing() -> None:
    forgotten = Client.synchronous()
    io: Any = forgotten._shell.io
    held = io.held
    forgotten.submit(divide, 1, 1)
    assert held
    del forgotten, io
    gc.collect()
    assert not held


def test_the_environment_makes_clients_synchronous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALER_ADDRESS", "synchronous")
    with Client() as client:
        assert client.submit(os.getpid).result() == os.getpid()


def test_in_a_fork_the_client_is_closed(client: Client) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            client.submit(abs, -1)
        except ConnectionError:
            os.write(writer, b"closed")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"closed"
    os.close(reader)
    os.close(writer)


def test_a_breakpoint_in_a_task_works(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from scaler import Client\n"
        "def task(secret):\n"
        "    breakpoint()\n"
        "    return secret\n"
        "print('result', Client.synchronous().submit(task, 41 + 1).result())\n"
    )
    command = [sys.executable, str(program)]
    done = subprocess.run(
        command, input="p 'seen', secret\nc\n", capture_output=True, text=True, timeout=60, check=True
    )
    assert "('seen', 42)" in done.stdout and "result 42" in done.stdout
