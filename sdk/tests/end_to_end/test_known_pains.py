"""What users of clusters of this kind suffered from, and no other test is named after: with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError, wait
from pathlib import Path
from typing import Any, List

import pytest
from sdk_tasks import identity, logged, wait_for_file, wait_until

from scaler import Client, Cluster, Scheduler, SchedulerClusterCombo
from scaler.exceptions import ProcessorDiedError

TIMEOUT_SECONDS = 60.0
TESTS = Path(__file__).resolve().parents[1]


def test_a_cancel_right_after_submit_with_no_worker_at_all() -> None:
    with Scheduler(logging_level="ERROR") as scheduler, Client(scheduler.get_address()) as client:
        futures = [client.submit(identity, number) for number in range(100)]
        graph = client.submit_graph({"a": (identity, 1), "b": (identity, "a")}, ["a", "b"])
        for future in [*futures, *graph]:
            assert future.cancel() and future.cancel() and future.cancelled()
            with pytest.raises(CancelledError):
                future.result(TIMEOUT_SECONDS)


def test_ordinary_cancels_leave_no_complaint_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with SchedulerClusterCombo(n_workers=2, logging_paths=(str(log),), logging_level="INFO") as combo:
        with Client(combo.get_address()) as client:
            done = client.submit(identity, 1)
            done.result(TIMEOUT_SECONDS)
            running = [
                client.submit(wait_for_file, str(tmp_path / "never"), str(tmp_path / f"running{n}"), 600.0)
                for n in range(2)
            ]
            for number in range(2):
                wait_until(tmp_path / f"running{number}")
            queued = [client.submit(identity, number) for number in range(100)]
            assert not any(future.cancel(force=False) for future in running)
            assert all(future.cancel() for future in queued) and all(future.cancel() for future in running)
            assert not done.cancel()
            assert client.map(identity, range(10)) == list(range(10))
    text = logged(log)
    assert "INFO" in text
    assert [line for line in text.splitlines() if "WARN" in line or "ERROR" in line or "Traceback" in line] == []


def count_run(folder: str, name: str) -> None:
    with open(Path(folder) / name, "a") as file:
        file.write("x")


def raise_children(client: Client, folder: str, number: int) -> int:
    count_run(folder, f"parent{number}")
    children = [client.submit(count_run, folder, f"child{number}-{index}") for index in range(3)]
    wait(children)
    return number


def test_parents_and_children_run_once_each_while_workers_join(tmp_path: Path) -> None:
    """Balancing moves what has not started, and never stops a parent, whose children would be made again."""
    with SchedulerClusterCombo(n_workers=1, logging_level="ERROR") as combo, Client(combo.get_address()) as client:
        futures = [client.submit(raise_children, client, str(tmp_path), number) for number in range(60)]
        futures[0].result(TIMEOUT_SECONDS)
        with Cluster(combo.get_address(), n_workers=3, logging_level="ERROR"):
            assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(60))
    runs = Counter(path.read_text() for path in tmp_path.iterdir())
    assert runs == {"x": 60 + 180}


CLIENT_WITH_A_GRAPH = """
import sys
from sdk_tasks import identity, wait_for_file
from scaler import Client

if __name__ == "__main__":
    address, path = sys.argv[1:]
    client = Client(address)
    graph = {number: (identity, number - 1) for number in range(1, 500)}
    graph[0] = (wait_for_file, path, path + ".running", 600.0)
    futures = client.submit_graph(graph, list(graph))
    wait_for_file(path + ".running")
    print("runs", flush=True)
    futures[-1].result()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "SIGKILL"])
def test_a_client_that_is_ended_in_the_middle_of_a_graph_ends_no_other(
    any_client: Client, any_address: str, number: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CLIENT_WITH_A_GRAPH, any_address, str(tmp_path / "never")]
    listen = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    other = subprocess.Popen(
        command, cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=listen
    )
    assert other.stdout is not None and other.stdout.readline() == "runs\n"
    other.send_signal(number)
    assert other.wait(TIMEOUT_SECONDS) != 0
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    meeting = [any_client.submit(wait_for_file, first, second), any_client.submit(wait_for_file, second, first)]
    wait(meeting, TIMEOUT_SECONDS)
    assert [future.exception(0) for future in meeting] == [None, None], "both workers are free"


@pytest.mark.slow
def test_a_shutdown_does_not_wait_for_a_worker_that_stands_still() -> None:
    combo = SchedulerClusterCombo(n_workers=1, logging_level="CRITICAL")
    with Client(combo.get_address()) as client:
        assert client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1
    assert combo.cluster.pid is not None
    os.kill(combo.cluster.pid, signal.SIGSTOP)
    ended = threading.Event()

    def shut_down() -> None:
        combo.shutdown()
        ended.set()

    threading.Thread(target=shut_down, daemon=True).start()
    assert ended.wait(TIMEOUT_SECONDS)
    assert not combo.cluster.is_alive() and not combo.scheduler.is_alive()


def wait_for_child(client: Client, mine: str, childs: str, never: str) -> str:
    Path(mine).with_suffix(".new").write_text(str(os.getpid()))
    os.rename(Path(mine).with_suffix(".new"), mine)
    return str(client.submit(wait_for_file, never, childs, 600.0).result())


def test_a_parent_that_is_killed_while_it_waits_leaves_a_worker_that_works(any_client: Client, tmp_path: Path) -> None:
    for _ in range(3):
        paths = [tmp_path / name for name in ("parent", "child", "never")]
        future = any_client.submit(wait_for_child, any_client, *map(str, paths))
        wait_until(paths[0])
        wait_until(paths[1])
        os.kill(int(paths[0].read_text()), signal.SIGKILL)
        with pytest.raises(ProcessorDiedError, match="SIGKILL"):
            future.result(TIMEOUT_SECONDS)
        for path in paths[:2]:
            path.unlink()
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    meeting = [any_client.submit(wait_for_file, first, second), any_client.submit(wait_for_file, second, first)]
    wait(meeting, TIMEOUT_SECONDS)
    assert [future.exception(0) for future in meeting] == [None, None], "the children were stopped"


_gate = threading.Event()


def _load_slowly(client: int) -> str:
    if os.getpid() == client:
        _gate.wait(TIMEOUT_SECONDS)
    return "loaded"


class LoadsSlowly:
    def __init__(self, client: int) -> None:
        self.client = client

    def __reduce__(self) -> Any:
        return (_load_slowly, (self.client,))


def test_a_result_that_takes_long_to_load_holds_up_only_who_asked_for_it(any_address: str) -> None:
    """It is loaded in the thread that asks, never where heartbeats and results are handled."""
    results: List[str] = []
    with Client(any_address, heartbeat_interval_seconds=0.05) as client:
        future = client.submit(LoadsSlowly, os.getpid())
        asking = threading.Thread(target=lambda: results.append(str(future.result(TIMEOUT_SECONDS))))
        wait([future], TIMEOUT_SECONDS)
        asking.start()
        sequence = client._shell.io._session._sequence
        for _ in range(20):
            assert client.map(identity, range(20)) == list(range(20))
        while client._shell.io._session._sequence < sequence + 3:  # heartbeats
            time.sleep(0.01)
        assert results == []
        _gate.set()
        asking.join(TIMEOUT_SECONDS)
    assert results == ["loaded"]


def test_results_of_a_graph_that_are_there_at_once_are_not_lost(any_client: Client) -> None:
    for number in range(300):
        futures = any_client.submit_graph({"a": (identity, number), "b": (identity, "a")}, ["a", "b"])
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == [number, number]
