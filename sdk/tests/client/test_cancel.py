"""Cancelling a task, wherever it is: it stops, other tasks do not, and no caller waits for a peer that is gone."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
from sdk_tasks import identity, wait_for, wait_for_file, wait_until

from scaler import Client, SchedulerClusterCombo
from scaler.client.core.commands import SubmitGraph
from scaler.client.future import CANCEL_TIMEOUT_SECONDS
from scaler.exceptions import RemoteTraceback
from scaler.worker.fork_server.stacks import GRACE_SECONDS

TIMEOUT_SECONDS = 30.0


def hang(running: str) -> None:
    """Runs until it is stopped."""
    Path(running).write_text(str(os.getpid()))
    time.sleep(300)


def hang_beside_threads(running: str) -> None:
    """Runs until it is stopped, in a process that has threads besides."""
    for _ in range(30):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    hang(running)


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def combo() -> Iterator[SchedulerClusterCombo]:
    """A cluster of one worker."""
    with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as combo:
        yield combo


def test_queued_tasks_are_cancelled_and_their_neighbours_run(address: str, done_files: List[Path]) -> None:
    running, go = done_files
    with Client(address=address) as client:
        first = client.submit(wait_for_file, str(go), str(running))
        wait_until(running)
        others = [client.submit(wait_for_file, str(go)) for _ in range(50)]
        last = others[-1]
        assert last.cancel() and last.cancelled() and last.done()
        assert last.cancel(), "a second cancel changes nothing"
        go.touch()
        assert first.result(TIMEOUT_SECONDS) == str(go)
        assert not first.cancel() and not first.cancelled(), "it has a result"
        with pytest.raises(concurrent.futures.CancelledError):
            last.result(TIMEOUT_SECONDS)
        assert all(future.result(TIMEOUT_SECONDS) for future in others[:-1])


def test_a_running_task_is_stopped_and_says_where_it_was(client: Client, done_files: List[Path]) -> None:
    running, go = done_files
    neighbours = [client.submit(identity, number) for number in range(100)]
    future = client.submit(hang, str(running))
    waiting = client.submit(wait_for_file, str(go))
    wait_until(running)
    while not running.read_text():
        time.sleep(0.001)

    assert future.cancel(TIMEOUT_SECONDS) and future.cancelled()
    assert not is_alive(int(running.read_text()))
    with pytest.raises(concurrent.futures.CancelledError) as raised:
        future.result(TIMEOUT_SECONDS)
    assert isinstance(raised.value.__cause__, RemoteTraceback)
    assert ", in hang" in raised.value.__cause__.text
    go.touch()
    assert waiting.result(TIMEOUT_SECONDS) == str(go)
    assert [neighbour.result(TIMEOUT_SECONDS) for neighbour in neighbours] == list(range(100))


def test_a_task_whose_process_gets_no_processor_time_says_where_it_was_all_the_same(
    any_client: Client, done_files: List[Path]
) -> None:
    running = done_files[0]
    future = any_client.submit(hang_beside_threads, str(running))
    wait_for(lambda: running.exists() and running.read_text(), "the task to run")
    process_id = int(running.read_text())
    os.kill(process_id, signal.SIGSTOP)
    goes_on = threading.Timer(2 * GRACE_SECONDS, os.kill, (process_id, signal.SIGCONT))
    goes_on.start()
    assert future.cancel(TIMEOUT_SECONDS) and future.cancelled()
    goes_on.cancel()
    with pytest.raises(concurrent.futures.CancelledError) as raised:
        future.result(TIMEOUT_SECONDS)
    assert ", in hang" in str(raised.value.__cause__)


def test_a_running_task_is_left_alone_without_force(any_client: Client, done_files: List[Path]) -> None:
    running, go = done_files
    future = any_client.submit(wait_for_file, str(go), str(running))
    wait_until(running)
    assert not future.cancel(force=False)
    assert not future.cancelled() and not future.done()
    go.touch()
    assert future.result(TIMEOUT_SECONDS) == str(go)


def test_the_answer_to_a_cancel_may_be_waited_for_without_end(any_client: Client, done_files: List[Path]) -> None:
    running, go = done_files
    future = any_client.submit(wait_for_file, str(go), str(running))
    wait_until(running)
    assert future.cancel(float("inf"))


def test_the_subprocesses_of_a_cancelled_task_end_too(any_client: Client, done_files: List[Path]) -> None:
    running = done_files[0]

    def call(path: str) -> None:
        import subprocess

        child = subprocess.Popen(["sleep", "300"])
        Path(path + ".new").write_text(str(child.pid))
        os.rename(path + ".new", path)
        child.wait()

    future = any_client.submit(call, str(running))
    wait_until(running)
    assert future.cancel(TIMEOUT_SECONDS)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while is_alive(int(running.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_cancels_that_cross_results_leave_one_outcome_each(client: Client) -> None:
    for _ in range(20):
        futures = [client.submit(identity, number) for number in range(200)]
        answers = [future.cancel() for future in futures[::7]]
        for future, was_cancelled in zip(futures[::7], answers):
            assert future.cancelled() is was_cancelled
        for number, future in enumerate(futures):
            if not future.cancelled():
                assert future.result(TIMEOUT_SECONDS) == number


def test_many_running_and_queued_tasks_are_cancelled_one_after_the_other(client: Client, tmp_path: Path) -> None:
    futures = [client.submit(hang, str(tmp_path / str(number))) for number in range(20)]
    wait_until(tmp_path / "0")
    assert all(future.cancel(TIMEOUT_SECONDS) for future in futures)
    assert client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1


def test_cancelling_waits_neither_for_a_stopped_worker_nor_for_a_stopped_scheduler(
    combo: SchedulerClusterCombo, done_files: List[Path]
) -> None:
    running = done_files[0]
    with Client(address=combo.get_address()) as client:
        future = client.submit(hang, str(running))
        wait_until(running)
        agent, scheduler = combo.cluster.pid, combo.scheduler.pid
        assert agent is not None and scheduler is not None
        os.kill(agent, signal.SIGSTOP)
        try:
            assert not future.cancel(0.05, force=False), "no answer says that it does not run"
            assert future.cancel(0.05) and future.cancelled()
        finally:
            os.kill(agent, signal.SIGCONT)
        assert client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1, "the worker did stop the task"
        os.kill(scheduler, signal.SIGSTOP)
        try:
            lost = client.submit(identity, 2)
            assert lost.cancel(0.05) and lost.cancelled()
        finally:
            os.kill(scheduler, signal.SIGCONT)
        assert client.submit(identity, 3).result(TIMEOUT_SECONDS) == 3


def test_an_awaited_task_is_cancelled_with_its_awaiter(any_client: Client, done_files: List[Path]) -> None:
    running = done_files[0]

    async def main() -> None:
        future = any_client.submit(hang, str(running))

        async def wait() -> None:
            await future

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)  # it has begun to wait: who is cancelled before never asks for the future
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not running.exists():
            assert time.monotonic() < deadline, any_client.explain(future)
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not future.done():
            await asyncio.sleep(0.005)
        assert future.cancelled()

    asyncio.run(main())
    assert any_client.map(identity, range(100)) == list(range(100))


def test_a_cancel_waits_for_the_answer_unless_its_thread_runs_an_event_loop(
    any_client: Client, done_files: List[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: List[float] = []

    def cancel(future: object, timeout_seconds: float, force: bool) -> bool:
        waits.append(timeout_seconds)
        return False

    future = any_client.submit(wait_for_file, str(done_files[1]))
    monkeypatch.setattr(any_client._shell, "cancel", cancel)

    async def main() -> None:
        future.cancel()

    future.cancel()
    asyncio.run(main())
    assert waits == [CANCEL_TIMEOUT_SECONDS, 0.0]
    done_files[1].touch()


def test_a_client_that_leaves_takes_its_running_tasks_along(any_address: str, done_files: List[Path]) -> None:
    running = done_files[0]
    with Client(address=any_address) as client:
        future = client.submit(hang, str(running))
        wait_until(running)
        while not running.read_text():
            time.sleep(0.001)
    assert future.cancelled()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while is_alive(int(running.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_map_that_fails_leaves_what_runs_to_its_end(any_client: Client, tmp_path: Path) -> None:
    def step(number: int, go: str) -> int:
        if number == 0:
            wait_for_file(go + ".running")
            raise LookupError("this one")
        wait_for_file(go, go + ".running")
        Path(go + ".ended").touch()
        return number

    go = tmp_path / "go"
    while any_client._shell.slots < 2:
        time.sleep(0.005)
    with pytest.raises(LookupError):
        any_client.map(step, [0, 1], [str(go)] * 2)
    go.touch()
    wait_until(tmp_path / "go.ended")


def _innermost(thread: int) -> str:
    """The function that a thread is in."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else frame.f_code.co_name


@pytest.mark.parametrize(
    "wait",
    [
        lambda client, running: client.map(hang, [running]),
        lambda client, running: list(client.map(hang, [running], buffersize=1)),
        lambda client, running: list(client.imap_unordered(hang, [running])),
        lambda client, running: client.get({"hangs": (hang, running)}, ["hangs"]),
    ],
    ids=["map", "map with a buffer", "imap_unordered", "get"],
)
def test_ctrl_c_stops_tasks_whose_results_can_no_longer_be_asked_for(
    any_client: Client, done_files: List[Path], wait: Callable[[Client, str], object]
) -> None:
    running = done_files[0]
    waiting_thread = threading.get_ident()

    def interrupt() -> None:
        wait_for(lambda: running.exists() and running.read_text(), "the task to run")
        wait_for(lambda: _innermost(waiting_thread) == "wait", "the results to be waited for")
        signal.pthread_kill(waiting_thread, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            wait(any_client, str(running))
        thread.join(TIMEOUT_SECONDS)
    finally:
        signal.signal(signal.SIGINT, before)
    process_id = int(running.read_text())
    wait_for(lambda: not is_alive(process_id), "the end of the task's process")
    assert any_client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1


@pytest.mark.parametrize("kind", ["map", "unordered", "executor"])
def test_ctrl_c_while_a_stream_takes_items_stops_what_runs_of_it(
    any_client: Client, done_files: List[Path], kind: str
) -> None:
    """Its results cannot be asked for any more, wherever the interrupt comes."""
    running = done_files[0]

    def paths() -> Iterator[str]:
        yield str(running)
        wait_for(lambda: running.exists() and running.read_text(), "the task to run")
        raise KeyboardInterrupt

    with any_client.executor() as executor:
        with pytest.raises(KeyboardInterrupt):
            if kind == "map":
                list(any_client.map(hang, paths(), buffersize=2))
            elif kind == "unordered":
                list(any_client.imap_unordered(hang, paths(), buffersize=2))
            else:
                list(executor.map(hang, paths(), chunksize=1, buffersize=2))
    process_id = int(running.read_text())
    wait_for(lambda: not is_alive(process_id), "the end of the task's process")


@pytest.mark.parametrize("kind", ["map", "map with a buffer", "unordered", "get"])
def test_ctrl_c_right_after_a_task_was_posted_stops_it(
    any_client: Client, done_files: List[Path], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    running = done_files[0]
    shell = any_client._shell

    def interrupted(post: Callable[..., object]) -> Callable[..., None]:
        def post_and_interrupt(*arguments: Any) -> None:
            post(*arguments)
            wait_for(lambda: running.exists() and running.read_text(), "the task to run")
            raise KeyboardInterrupt

        return post_and_interrupt

    ways: Dict[str, Callable[[], object]] = {
        "map": lambda: any_client.map(hang, [str(running)]),
        "map with a buffer": lambda: list(any_client.map(hang, [str(running)], buffersize=1)),
        "unordered": lambda: list(any_client.imap_unordered(hang, [str(running)])),
        "get": lambda: any_client.get({"hangs": (hang, str(running))}, ["hangs"]),
    }
    with monkeypatch.context() as patch:
        if kind == "get":
            original = shell.post
            patch.setattr(
                shell,
                "post",
                lambda command: (interrupted(original) if type(command) is SubmitGraph else original)(command),
            )
        else:
            patch.setattr(shell, "submit_plain", interrupted(shell.submit_plain))
        with pytest.raises(KeyboardInterrupt):
            ways[kind]()
    process_id = int(running.read_text())
    wait_for(lambda: not is_alive(process_id), "the end of the task's process")
