"""The end of a `with` block: it cancels what is unfinished, and says so where the user can see it."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, List

import pytest
from sdk_tasks import identity, wait_for_file, wait_until

from scaler import Client, ScalerFuture
from scaler.client import client as client_module
from scaler.client.shell.client_shell import ClientShell
from scaler.exceptions import ScalerError, UnfinishedTasksWarning

TIMEOUT_SECONDS = 30.0


def fail_first(number: int) -> None:
    if number == 0:
        raise ZeroDivisionError(number)
    time.sleep(300)


def leave_tasks_to_a_client(address: str) -> None:
    with Client(address) as client:
        client.submit(time.sleep, 300)


def test_one_warning_at_the_with_statement_counts_the_tasks_that_were_cancelled(any_address: str) -> None:
    with pytest.warns(UnfinishedTasksWarning) as caught:
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]  # CPython has frames
        with Client(any_address) as client:
            done = client.submit(identity, 5)
            assert done.result(TIMEOUT_SECONDS) == 5
            futures = [client.submit(time.sleep, 300) for _ in range(4)]
    assert len(caught) == 1
    assert "4 unfinished tasks were cancelled" in str(caught[0].message) and "wait for the futures" in str(
        caught[0].message
    )
    assert caught[0].filename == __file__
    assert caught[0].lineno == (line if sys.version_info >= (3, 10) else line + 3)  # before, that of the block's end
    assert all(future.cancelled() for future in futures) and done.result() == 5
    assert issubclass(UnfinishedTasksWarning, (ScalerError, RuntimeWarning))


def test_an_exit_stack_is_not_blamed(any_address: str) -> None:
    with pytest.warns(UnfinishedTasksWarning) as caught:
        with contextlib.ExitStack() as stack:
            stack.enter_context(Client(any_address)).submit(time.sleep, 300)
    assert [each.filename for each in caught] == [__file__]


def test_each_run_of_one_line_warns_again_by_default(any_address: str, tmp_path: Path) -> None:
    """As a cell of a notebook is run again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import time, sys\n"
        "from scaler import Client\n"
        "for _ in range(2):\n"
        "    with Client(sys.argv[1]) as client:\n"
        "        client.submit(time.sleep, 300)\n"
    )
    arguments = [sys.executable, str(script), any_address]
    said = subprocess.run(arguments, stderr=subprocess.PIPE, text=True, timeout=60, check=True).stderr
    line = 4 if sys.version_info >= (3, 10) else 5
    assert said.count(f"{script}:{line}: UnfinishedTasksWarning: 1 unfinished task was cancelled") == 2
    arguments[1:1] = ["-W", "ignore"]
    assert not subprocess.run(arguments, stderr=subprocess.PIPE, text=True, timeout=60, check=True).stderr


def output_of(script: Path, text: str, address: str) -> subprocess.CompletedProcess[str]:
    script.write_text(f"import sys, time\nfrom scaler import Client\nclient = Client(sys.argv[1])\n{text}\n")
    command = [sys.executable, str(script), address]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)


def test_the_end_of_a_program_says_what_it_has_cancelled(any_address: str, tmp_path: Path) -> None:
    """`ProcessPoolExecutor` would wait for them, and a user of it expects that they run."""
    script = "client.submit(len, 'abc').result()\nfor _ in range(3):\n    client.submit(time.sleep, 300)"

    ended = output_of(tmp_path / "script.py", script, any_address)

    assert ended.returncode == 0
    assert ended.stderr.startswith(
        "sys:1: UnfinishedTasksWarning: 3 unfinished tasks were cancelled because the program ended: wait for"
    )
    assert ended.stderr.count("\n") == 1


def test_all_clients_of_a_program_leave_together(any_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that hangs makes each of them wait: not one after the other."""
    clients = [Client(any_address) for _ in range(3)]
    shells = [client._shell for client in clients]
    monkeypatch.setattr(client_module, "_open_shells", shells)
    left: List[List[bool]] = []
    close = ClientShell.close

    def watched_close(shell: ClientShell) -> None:
        left.append([each.closed_because is not None for each in shells])
        close(shell)

    monkeypatch.setattr(ClientShell, "close", watched_close)
    client_module._close_all()

    assert left == [[True] * 3] * 3


@pytest.mark.parametrize(
    "script",
    [
        "client.submit(len, 'abc').result()",
        "client.submit(time.sleep, 300)\nclient.disconnect()",
        "client.submit(time.sleep, 300).cancel()",
        "client.submit(time.sleep, 300)\nraise ValueError",
    ],
    ids=["done", "disconnected", "cancelled", "an error ends it"],
)
def test_the_end_of_a_program_says_nothing_else(script: str, any_address: str, tmp_path: Path) -> None:
    assert "Unfinished" not in output_of(tmp_path / "script.py", script, any_address).stderr


def test_the_warning_as_an_error_leaves_the_client_disconnected(any_address: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UnfinishedTasksWarning):
            with Client(any_address) as client:
                client.submit(time.sleep, 300)
    assert "disconnected" in repr(client)


def cancelled_by_the_user(client: Client, running: Path) -> None:
    waiting = [client.submit(time.sleep, 300) for _ in range(10)]
    for future in waiting:
        assert future.cancel()
    client.submit(time.sleep, 300).cancel(0.0)
    task: ScalerFuture[Any] = client.submit(wait_for_file, "/never", str(running))
    wait_until(running)
    assert not task.cancel(force=False)


def left_over_by_map(client: Client, running: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        client.map(fail_first, range(100))


def left_over_by_get(client: Client, running: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        client.get({"a": (fail_first, 1), "b": (fail_first, 0)}, ["a", "b"])


def cleared(client: Client, running: Path) -> None:
    client.submit(time.sleep, 300)
    client.clear()


def disconnected(client: Client, running: Path) -> None:
    client.submit(time.sleep, 300)
    client.disconnect()


def an_exception_leaves(client: Client, running: Path) -> None:
    client.submit(time.sleep, 300)
    raise InterruptedError


def a_result_that_is_not_looked_at(client: Client, running: Path) -> None:
    futures: List[Any] = [client.submit(identity, number) for number in range(1000)]
    client.wait(futures, TIMEOUT_SECONDS)


@pytest.mark.parametrize(
    "block",
    [
        cancelled_by_the_user,
        left_over_by_map,
        left_over_by_get,
        cleared,
        disconnected,
        an_exception_leaves,
        a_result_that_is_not_looked_at,
    ],
    ids=lambda block: block.__name__,
)
def test_no_false_alarm(any_address: str, tmp_path: Path, block: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with contextlib.suppress(InterruptedError), Client(any_address) as client:
            block(client, tmp_path / "running")


def test_a_client_inside_a_task_warns_of_its_own_tasks_alone(any_address: str) -> None:
    output: List[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Client(any_address, stream_output=output.append) as client:
            client.submit(leave_tasks_to_a_client, any_address).result(TIMEOUT_SECONDS)
    assert "1 unfinished task was cancelled" in "".join(each.text for each in output)
