"""Whatever is killed, stopped or cut: each future has exactly one outcome, and the right one."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
from quiet_addresses import quiet_address
from sdk_tasks import identity, wait_for, wait_for_file
from tcp_proxy import Proxy

from scaler import Client, Cluster, Scheduler, SchedulerClusterCombo
from scaler.client.future import ScalerFuture
from scaler.cluster.appliance import PROGRAM_VARIABLE
from scaler.exceptions import DisconnectedError, MissingObjects, WorkerDiedError
from scaler_protocol.host.segments import SPILL_NAME, TOKEN_NAME

TIMEOUT_SECONDS = 60.0
LARGE_BYTES = 200_000

StartCluster = Callable[..., Cluster]


class Restarted:
    """A scheduler that is killed, and started again at the same address."""

    def __init__(self, **options: Any) -> None:
        self.address = quiet_address()
        self._options = {"logging_level": "ERROR", **options}
        self.start()

    def signal(self, number: int) -> None:
        assert self._scheduler.pid is not None
        os.kill(self._scheduler.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._scheduler.join(TIMEOUT_SECONDS)

    def start(self) -> None:
        self._scheduler = Scheduler(address=self.address, **self._options)
        self._scheduler.start()

    def restart(self) -> None:
        self.kill()
        self.start()

    def close(self) -> None:
        if self._scheduler.is_alive():
            self.signal(signal.SIGCONT)
        self._scheduler.shutdown()


@pytest.fixture
def scheduler() -> Iterator[Restarted]:
    scheduler = Restarted()
    yield scheduler
    scheduler.close()


@pytest.fixture
def start_cluster() -> Iterator[StartCluster]:
    """Starts workers; at the end they are stopped."""
    with contextlib.ExitStack() as stack:

        def start(address: str, n_workers: int = 2, **options: Any) -> Cluster:
            cluster = Cluster(address, n_workers, logging_level="CRITICAL", **options)
            stack.callback(cluster.shutdown)
            cluster.start()
            return cluster

        yield start


class Outcomes:
    """Counts how often each future is done."""

    def __init__(self) -> None:
        self._counts: List[int] = []
        self._lock = threading.Lock()

    def watch(self, future: ScalerFuture) -> ScalerFuture:
        position = len(self._counts)
        self._counts.append(0)
        future.add_done_callback(lambda _: self._count(position))
        return future

    def _count(self, position: int) -> None:
        with self._lock:
            self._counts[position] += 1

    def check_one_each(self) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not all(self._counts) and time.monotonic() < deadline:
            time.sleep(0.01)  # callbacks follow the results
        assert set(self._counts) == {1}


def add(number: int, data: bytes, more: int = 0) -> int:
    return number + len(data) + more


def nap(number: int) -> int:
    time.sleep(0.005)
    return number


# The scheduler is killed ----------------------------------------------------------------------------------------------


def test_a_scheduler_killed_under_load_again_and_again_costs_no_outcome(
    scheduler: Restarted, start_cluster: StartCluster
) -> None:
    start_cluster(scheduler.address)
    outcomes = Outcomes()
    with Client(scheduler.address) as client:
        futures: List[ScalerFuture] = []
        for life in range(4):
            new = [client.submit(nap, number) for number in range(200)]
            new += [client.submit(identity, number) for number in range(200, 2000)]
            futures += map(outcomes.watch, new)
            if life < 3:
                new[10].result(TIMEOUT_SECONDS)  # work is under way
                scheduler.restart()
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(2000)) * 4
        outcomes.check_one_each()


@pytest.mark.parametrize("sees_the_same_memory", [True, False], ids=["same host", "other host"])
def test_functions_arguments_and_objects_are_there_again(
    scheduler: Restarted,
    start_cluster: StartCluster,
    monkeypatch: pytest.MonkeyPatch,
    sees_the_same_memory: bool,
) -> None:
    """No worker runs before the second scheduler does, so that everything has to be sent again."""
    if not sees_the_same_memory:
        monkeypatch.setattr("scaler.client.shell.client_object_files.shares_directory", lambda path, token: False)
    with Client(scheduler.address) as client:
        large, small = client.send_object(bytes(LARGE_BYTES)), client.send_object(b"small")
        closed_over = os.urandom(LARGE_BYTES)
        futures = [client.submit(add, number, large) for number in range(5)]
        futures += [client.submit(add, number, small) for number in range(5)]
        futures += [client.submit(add, number, bytes(LARGE_BYTES + number)) for number in range(5)]
        futures += [client.submit(lambda number: add(number, closed_over), number) for number in range(5)]
        futures += [client.submit(identity, number) for number in range(5)]
        scheduler.restart()
        futures += [client.submit(add, number, large, more=1) for number in range(5)]
        start_cluster(scheduler.address)
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == [
            *range(LARGE_BYTES, LARGE_BYTES + 5),
            *range(5, 10),
            *range(LARGE_BYTES, LARGE_BYTES + 10, 2),
            *range(LARGE_BYTES, LARGE_BYTES + 5),
            *range(5),
            *range(LARGE_BYTES + 1, LARGE_BYTES + 6),
        ]
        assert client.submit(add, 1, small).result(TIMEOUT_SECONDS) == 6
        client.clear()
        with pytest.raises(MissingObjects):
            client.submit(add, 1, small)
        assert client.submit(identity, 3).result(TIMEOUT_SECONDS) == 3


def test_what_a_client_keeps_goes_with_the_outcomes(scheduler: Restarted, start_cluster: StartCluster) -> None:
    start_cluster(scheduler.address)
    with Client(scheduler.address) as client:
        futures = [client.submit(add, number, bytes(LARGE_BYTES)) for number in range(5)]
        reference = client.send_object(bytes(LARGE_BYTES))
        futures += [client.submit(add, number, reference) for number in range(5)]
        for future in futures:
            future.result(TIMEOUT_SECONDS)
        client.clear()
        shell = client._shell
        assert not shell.core.pending.needs and shell.io.files.own is not None
        directory = shell.io.files.own.path
        wait_for(lambda: sorted(os.listdir(directory)) == [SPILL_NAME, TOKEN_NAME], "the files to be removed")
        assert all(future._source is None for future in futures)
    assert not os.path.exists(directory)


def test_large_results_that_were_not_fetched_are_made_again(scheduler: Restarted, start_cluster: StartCluster) -> None:
    with Client(scheduler.address) as client:
        futures = [client.submit(bytes, LARGE_BYTES + number) for number in range(20)]
        start_cluster(scheduler.address)
        futures[0].result(TIMEOUT_SECONDS)
        scheduler.restart()
        assert [len(future.result(TIMEOUT_SECONDS)) for future in futures] == list(range(LARGE_BYTES, LARGE_BYTES + 20))


def test_a_map_outlives_its_scheduler(scheduler: Restarted, start_cluster: StartCluster) -> None:
    start_cluster(scheduler.address)
    with Client(scheduler.address) as client:
        client.submit(identity, 1).result(TIMEOUT_SECONDS)
        killer = threading.Timer(0.2, scheduler.restart)
        killer.start()
        assert client.map(nap, range(300)) == list(range(300))
        killer.join()


def test_a_graph_outlives_its_scheduler(scheduler: Restarted, start_cluster: StartCluster) -> None:
    """All that it needs is sent again, and what its other targets need is run again, but not told twice."""
    outcomes = Outcomes()
    with Client(scheduler.address) as client:
        closed_over = os.urandom(LARGE_BYTES)
        reference = client.send_object(bytes(LARGE_BYTES))
        graph: Dict[Any, Any] = {f"nap {number}": (nap, -number) for number in range(200)}
        graph["data"] = os.urandom(LARGE_BYTES)
        graph["first"] = (lambda number, data: number + len(closed_over) + len(data), "nap 1", "data")
        graph["all"] = (add, "first", reference)
        graph["sum"] = (sum, [f"nap {number}" for number in range(200)] + ["all"])
        futures = client.get(graph, ["first", "sum"], block=False)
        for future in futures.values():
            outcomes.watch(future)
        start_cluster(scheduler.address)
        assert futures["first"].result(TIMEOUT_SECONDS) == 2 * LARGE_BYTES - 1
        scheduler.restart()
        assert futures["sum"].result(TIMEOUT_SECONDS) == 3 * LARGE_BYTES - 1 - sum(range(200))
        outcomes.check_one_each()
        assert not client._shell.core.pending.needs and all(future._source is None for future in futures.values())


def test_meanwhile_nothing_hangs(scheduler: Restarted, start_cluster: StartCluster, done_files: List[Path]) -> None:
    with Client(scheduler.address) as client:
        before = [client.submit(identity, number) for number in range(10)]
        unwanted = client.submit(wait_for_file, "never made", str(done_files[0]))
        scheduler.kill()
        meanwhile = [client.submit(identity, number) for number in range(10)]
        with pytest.raises(FutureTimeoutError):
            before[0].result(0.01)
        assert unwanted.cancel() and meanwhile[9].cancel(), "no worker can run them"
        assert unwanted.cancelled() and unwanted.cancel()
        scheduler.start()
        start_cluster(scheduler.address)
        results = [future.result(TIMEOUT_SECONDS) for future in before + meanwhile[:9]]
        assert results == [*range(10), *range(9)]
        assert client.submit(identity, 5).result(TIMEOUT_SECONDS) == 5
        assert not done_files[0].exists(), "a cancelled task has run"
        scheduler.kill()
        last = client.submit(identity, 1)
    assert last.cancelled(), "the client was disconnected"


def test_a_cancel_that_the_scheduler_did_not_answer_is_one(scheduler: Restarted) -> None:
    with Client(scheduler.address) as client:
        future = client.submit(identity, 1)
        scheduler.signal(signal.SIGSTOP)
        assert not future.cancel(0.01, force=False)
        scheduler.restart()
        assert future.cancel() and future.cancelled()


def test_no_scheduler_comes_back(scheduler: Restarted) -> None:
    with Client(scheduler.address, timeout_seconds=1.0) as client:
        futures = [client.submit(identity, number) for number in range(100)]
        scheduler.kill()
        for future in futures:
            with pytest.raises(DisconnectedError, match=r"no scheduler took this client back within 1 s.* Start one"):
                future.result(TIMEOUT_SECONDS)
        with pytest.raises(DisconnectedError):
            client.submit(identity, 1)
        assert not futures[0].cancel()


CLIENT_TO_INTERRUPT = """
import sys
from scaler import Client
with Client(sys.argv[1]) as client:
    future = client.submit(abs, -1)
    try:
        print("waiting", flush=True)
        future.result()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(future.cancelled())
"""


def test_ctrl_c_ends_the_wait_for_a_scheduler(scheduler: Restarted) -> None:
    command = [sys.executable, "-c", CLIENT_TO_INTERRUPT, scheduler.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stderr is not None
        assert program.stdout.readline() == "waiting\n"
        scheduler.kill()
        assert "trying to connect again" in program.stderr.readline()
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=TIMEOUT_SECONDS)
        assert output == "interrupted\nTrue\n" and program.returncode == 0


def test_a_scheduler_that_drops_a_client_each_time_does_not_keep_it_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAM_VARIABLE, f"{sys.executable} -m scaler_appliance --maximum-message-bytes 40000")
    with Scheduler(logging_level="CRITICAL") as scheduler:
        assert isinstance(scheduler, Scheduler)
        with Client(scheduler.get_address(), timeout_seconds=3.0) as client:
            futures = [client.submit(identity, bytes(50_000)) for _ in range(10)]
            for future in futures:
                with pytest.raises(DisconnectedError, match="no scheduler took this client back"):
                    future.result(TIMEOUT_SECONDS)


CLIENT_TO_KILL = """
import sys, time
from scaler import Client
client = Client(sys.argv[1])
client.send_object(bytes(200_000))
print(client._shell.io.files.own.path, flush=True)
time.sleep(60)
"""


def test_what_a_killed_client_kept_is_removed(scheduler: Restarted) -> None:
    command = [sys.executable, "-c", CLIENT_TO_KILL, scheduler.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        directory = program.stdout.readline().strip()
        assert os.path.isdir(directory)
        program.kill()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while os.path.exists(directory):
        assert time.monotonic() < deadline, "it was not removed"
        time.sleep(0.01)


# The network is cut ---------------------------------------------------------------------------------------------------


def test_a_client_is_cut_off_and_comes_back(scheduler: Restarted, start_cluster: StartCluster) -> None:
    start_cluster(scheduler.address)
    outcomes = Outcomes()
    with Proxy(scheduler.address) as proxy, Client(proxy.address) as client:
        reference = client.send_object(bytes(LARGE_BYTES))
        futures: List[ScalerFuture] = []
        for _ in range(3):
            new = [client.submit(nap, number) for number in range(100)]
            new += [client.submit(add, -LARGE_BYTES, reference, number) for number in range(100, 200)]
            futures += map(outcomes.watch, new)
            new[10].result(TIMEOUT_SECONDS)
            proxy.cut()
            proxy.heal()
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(200)) * 3
        outcomes.check_one_each()


def test_workers_are_cut_off_and_come_back(scheduler: Restarted, start_cluster: StartCluster) -> None:
    outcomes = Outcomes()
    with Proxy(scheduler.address) as proxy, Client(scheduler.address) as client:
        start_cluster(proxy.address)
        futures = [outcomes.watch(client.submit(nap, number)) for number in range(300)]
        futures[10].result(TIMEOUT_SECONDS)
        proxy.cut()
        proxy.heal()
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(300))
        outcomes.check_one_each()


# A process hangs ------------------------------------------------------------------------------------------------


def run_where(folder: str, gate: str) -> int:
    """The first run waits for the gate, the second does not."""
    is_first = not os.listdir(folder)
    Path(folder, str(os.getpid())).touch()
    if is_first:
        wait_for_file(gate)
    return os.getpid()


def test_late_results_of_a_worker_that_stood_still_do_not_count(
    start_cluster: StartCluster, tmp_path: Path, done_files: List[Path]
) -> None:
    scheduler = Restarted(worker_timeout_seconds=1.0, heartbeat_interval_seconds=0.1)
    folder = tmp_path / "runs"
    folder.mkdir()
    outcomes = Outcomes()
    with contextlib.closing(scheduler), Client(scheduler.address) as client:
        paused = start_cluster(scheduler.address, 1)
        future = outcomes.watch(client.submit(run_where, str(folder), str(done_files[1])))
        while not (first := os.listdir(folder)):
            time.sleep(0.01)
        assert paused.pid is not None
        os.kill(paused.pid, signal.SIGSTOP)
        try:
            start_cluster(scheduler.address, 1)
            second = future.result(TIMEOUT_SECONDS)
            done_files[1].touch()  # now the first run ends as well
        finally:
            os.kill(paused.pid, signal.SIGCONT)
        assert str(second) not in first and len(os.listdir(folder)) == 2
        gates = [tmp_path / "one", tmp_path / "other"]
        both = [
            client.submit(wait_for_file, str(gates[1 - index]), str(gates[index])) for index in (0, 1)
        ]  # each ends when the other runs: two workers are there
        assert [len(each.result(TIMEOUT_SECONDS)) > 0 for each in both] == [True, True]
        assert future.result() == second
        outcomes.check_one_each()


def test_a_scheduler_that_stood_still_goes_on(start_cluster: StartCluster) -> None:
    """It reads what was sent in the meantime. Peers have looked for it, since they take its silence for the end as soon
    as it would take theirs; each outcome comes once all the same."""
    scheduler = Restarted(
        worker_timeout_seconds=2.5, client_timeout_seconds=2.5, heartbeat_interval_seconds=0.1, logging_level="WARNING"
    )
    with contextlib.closing(scheduler), Client(scheduler.address, heartbeat_interval_seconds=0.1) as client:
        start_cluster(scheduler.address)
        futures = [client.submit(nap, number) for number in range(200)]
        futures[10].result(TIMEOUT_SECONDS)
        scheduler.signal(signal.SIGSTOP)
        time.sleep(3.5)  # longer than its time-outs: there is no event to wait for, that is the point
        scheduler.signal(signal.SIGCONT)
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(200))


def test_a_scheduler_that_stands_still_for_too_long_is_given_up(scheduler: Restarted) -> None:
    with Client(scheduler.address, timeout_seconds=1.0, heartbeat_interval_seconds=0.1) as client:
        future = client.submit(identity, 1)
        scheduler.signal(signal.SIGSTOP)
        with pytest.raises(DisconnectedError, match="no heartbeat from the scheduler"):
            future.result(TIMEOUT_SECONDS)


CLIENT_TO_STOP = """
import sys
from scaler import Client
with Client(sys.argv[1], heartbeat_interval_seconds=0.1, timeout_seconds=2.0) as client:  # stopped for longer
    session = client._shell.welcome.session
    futures = [client.submit(pow, number, 2) for number in range(100)]
    print("submitted", flush=True)
    print(sum(future.result(60) for future in futures), client._shell.welcome.session != session)
"""


def test_a_client_that_stood_still_for_too_long_comes_back(start_cluster: StartCluster) -> None:
    scheduler = Restarted(client_timeout_seconds=0.5, heartbeat_interval_seconds=0.1)
    with contextlib.closing(scheduler), Client(scheduler.address) as client:
        command = [sys.executable, "-c", CLIENT_TO_STOP, scheduler.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
            assert program.stdout is not None and program.stdout.readline() == "submitted\n"
            program.send_signal(signal.SIGSTOP)
            try:
                time.sleep(2.5)  # longer than its time-out: there is no event to wait for, that is the point
                wait_for(lambda: client.info().clients == 1, "the scheduler to give it up")
            finally:
                program.send_signal(signal.SIGCONT)
            start_cluster(scheduler.address)
            output, _ = program.communicate(timeout=TIMEOUT_SECONDS)
        assert output == f"{sum(number**2 for number in range(100))} True\n"
        assert client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1


CLIENT_TO_STOP_BRIEFLY = """
import sys
from scaler import Client
with Client(sys.argv[1], heartbeat_interval_seconds=0.1, timeout_seconds=3.0) as client:  # stopped for longer
    client.submit(pow, 2, 2).result()
    session = client._shell.welcome.session
    print("connected", flush=True)
    sys.stdin.readline()
    print(client.submit(pow, 3, 2).result(60), client._shell.welcome.session == session)
"""


def test_a_client_that_stood_still_keeps_its_session(start_cluster: StartCluster) -> None:
    scheduler = Restarted(heartbeat_interval_seconds=0.1)
    with contextlib.closing(scheduler):
        start_cluster(scheduler.address)
        command = [sys.executable, "-c", CLIENT_TO_STOP_BRIEFLY, scheduler.address]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as program:
            assert program.stdout and program.stdout.readline() == "connected\n"
            program.send_signal(signal.SIGSTOP)
            try:
                time.sleep(4.0)  # longer than its time-out: there is no event to wait for, that is the point
            finally:
                program.send_signal(signal.SIGCONT)
            assert program.communicate("go on\n", timeout=TIMEOUT_SECONDS)[0] == "9 True\n"


# Workers die ----------------------------------------------------------------------------------------------------------


def agent_of_this_task() -> int:
    """Agent, fork server, processor: each is the parent of the next."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


def kill_agent(_: int = 0) -> None:
    os.kill(agent_of_this_task(), signal.SIGKILL)
    time.sleep(60)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
@pytest.mark.parametrize("victim", ["agent", "fork server"])
def test_a_killed_agent_is_replaced_and_its_tasks_run_again(victim: str) -> None:
    with SchedulerClusterCombo(n_workers=2, logging_level="CRITICAL") as combo:
        with Client(combo.get_address()) as client:
            first = combo.cluster.pid
            assert client.submit(agent_of_this_task).result(TIMEOUT_SECONDS) == first
            fork_server = client.submit(os.getppid).result(TIMEOUT_SECONDS)
            futures = [client.submit(nap, number) for number in range(300)]
            futures[10].result(TIMEOUT_SECONDS)
            assert first is not None
            os.kill(first if victim == "agent" else fork_server, signal.SIGKILL)
            assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(300))
            second = client.submit(agent_of_this_task).result(TIMEOUT_SECONDS)
            assert second != first and second == combo.cluster.pid and combo.cluster.is_alive()
    assert not combo.cluster.is_alive()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_a_task_that_kills_worker_after_worker_is_stopped_with_its_history() -> None:
    with SchedulerClusterCombo(n_workers=1, logging_level="CRITICAL") as combo:
        with Client(combo.get_address()) as client:
            poison = client.submit(kill_agent)
            with pytest.raises(WorkerDiedError, match="lost with its worker 4 times") as raised:
                poison.result(TIMEOUT_SECONDS)
            assert str(raised.value).count("its connection was lost") == 4
            assert len(set(re.findall(r"process (\d+)", str(raised.value)))) == 4, "each attempt has a worker's name"
            assert client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1


def test_tasks_that_wait_for_others_outlive_their_scheduler(
    scheduler: Restarted, start_cluster: StartCluster, tmp_path: Path
) -> None:
    """What they need of tasks that are done is kept by the client, which sends it along."""
    go = tmp_path / "go"
    with Client(address=scheduler.address) as client:
        start_cluster(scheduler.address)
        small, large = client.submit(identity, 1), client.submit(bytes, LARGE_BYTES)
        slow = client.submit(wait_for_file, str(go))
        both = client.submit(lambda *args: args, small, large, slow)
        indirect = client.submit(len, both)
        assert small.result() == 1 and len(large.result()) == LARGE_BYTES
        scheduler.restart()
        after = client.submit(identity, [small, slow])
        go.touch()
        assert indirect.result() == 3
        assert both.result() == (1, bytes(LARGE_BYTES), str(go))
        assert after.result() == [1, str(go)]
