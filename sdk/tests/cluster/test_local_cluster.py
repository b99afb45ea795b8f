"""Schedulers and workers on this machine leave nothing behind, however the program that started them ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Set

import pytest
from sdk_tasks import identity, wait_for_file, wait_until

from scaler import Client, Cluster, Scheduler, SchedulerClusterCombo
from scaler.exceptions import ScalerError

TIMEOUT_SECONDS = 30.0

PROGRAM = """
import sys, time
from scaler import Client, SchedulerClusterCombo

if __name__ == "__main__":
    combo = SchedulerClusterCombo(n_workers=2, logging_level="ERROR")
    client = Client(address=combo.get_address())
    client.map(abs, range(100))
    futures = [client.submit(time.sleep, 60) for _ in range(10)]
    print(combo.get_monitor_address(), client._shell.welcome.object_directory, flush=True)
    {end}
"""


def descendants(pid: int) -> Set[int]:
    """All processes that a process has started, and those that they have."""
    found: Set[int] = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found |= {int(entry)} | descendants(int(entry))
    return found


def wait_for_ends(pids: Set[int]) -> None:
    """Wait until processes, which need not be children of this one, have ended."""
    poll = select.poll()
    for pid in pids:
        try:
            poll.register(os.pidfd_open(pid), select.POLLIN)
        except ProcessLookupError:
            continue
        assert poll.poll(TIMEOUT_SECONDS * 1000), f"process {pid} still runs"
        poll = select.poll()


def listen_to_ctrl_c() -> None:
    """A shell that runs the tests in the background makes them, and so their children, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for the end of processes that are no children")
@pytest.mark.parametrize(
    ("end", "signal_number"),
    [
        ("combo.shutdown()", None),
        ("pass", None),
        ("sys.exit(3)", None),
        ("raise RuntimeError('the program fails')", None),
        ("time.sleep(60)", signal.SIGINT),
        ("time.sleep(60)", signal.SIGTERM),
        ("time.sleep(60)", signal.SIGKILL),
    ],
    ids=["shutdown", "just ends", "exits", "fails", "Ctrl-C", "SIGTERM", "SIGKILL"],
)
def test_nothing_is_left(end: str, signal_number: int | None, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(end=end))
    program = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=listen_to_ctrl_c,
    )
    assert program.stdout is not None
    monitor_address, object_directory = program.stdout.readline().split()
    started = descendants(program.pid)
    if signal_number is not None:
        assert len(started) >= 5, "scheduler, agent, fork server and two processors"
        program.send_signal(signal_number)
    began = time.monotonic()
    program.wait(TIMEOUT_SECONDS)
    wait_for_ends(started)
    assert time.monotonic() - began < TIMEOUT_SECONDS
    assert not os.path.exists(object_directory)
    assert not os.path.exists(monitor_address[len("ipc://") :])


CLOSED_STREAMS = """
import sys
from pathlib import Path
from scaler import Client, SchedulerClusterCombo

if __name__ == "__main__":
    with SchedulerClusterCombo(n_workers=1) as combo, Client(address=combo.get_address()) as client:
        client.submit(print, "a task's output").result(30)
        Path(sys.argv[1]).write_text(str(client.submit(abs, -1).result(30)))
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_program_without_standard_streams_has_a_cluster(closed: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CLOSED_STREAMS)
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "program.py", "result"]
    finished = subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS)
    assert ((tmp_path / "result").read_text(), finished.returncode, finished.stderr) == ("1", 0, "")


def test_address_and_options_reach_the_programs() -> None:
    scheduler = Scheduler(logging_level="ERROR", protected=False)
    scheduler.start()
    cluster = Cluster(scheduler.get_address(), worker_names=["one", "two"], logging_level="ERROR")
    cluster.start()
    assert scheduler.is_alive() and cluster.is_alive() and cluster.pid
    client = Client(address=scheduler.get_address())
    assert client.map(identity, range(10)) == list(range(10))
    client.shutdown()
    assert scheduler.join(TIMEOUT_SECONDS) == 0 and cluster.join(TIMEOUT_SECONDS) == 0
    with pytest.raises(ConnectionError):
        client.submit(identity, 1)


def test_unfinished_tasks_learn_of_the_shutdown(done_files: List[Path]) -> None:
    with SchedulerClusterCombo(n_workers=1, logging_level="ERROR", protected=False) as combo:
        waiting, asking = Client(combo.get_address()), Client(combo.get_address())
        future = waiting.submit(wait_for_file, str(done_files[1]), str(done_files[0]))
        wait_until(done_files[0])
        asking.shutdown()
        with pytest.raises(ScalerError, match="was shut down"):
            future.result(TIMEOUT_SECONDS)
        waiting.disconnect()


def test_a_scheduler_that_does_not_start_says_so() -> None:
    with Scheduler(logging_level="ERROR") as first:
        assert isinstance(first, Scheduler)
        with pytest.raises(ScalerError, match="did not start"):
            Scheduler(address=first.get_address(), logging_level="CRITICAL").start()


@pytest.mark.parametrize("event_loop", ["builtin", "uvloop"])
def test_both_event_loops_work(event_loop: str) -> None:
    if event_loop == "uvloop":
        pytest.importorskip("uvloop")
    with SchedulerClusterCombo(n_workers=2, event_loop=event_loop, logging_level="ERROR") as combo:
        with Client(combo.get_address()) as client:
            assert client.map(identity, range(1000)) == list(range(1000))


KILLED_CLIENT = """
import sys, time
from scaler import Client
client = Client(sys.argv[1])
futures = [client.submit(time.sleep, 30) for _ in range(100)]
print("submitted", flush=True)
time.sleep(60)
"""


def test_a_killed_client_does_not_affect_others(tmp_path: Path) -> None:
    with SchedulerClusterCombo(n_workers=2, logging_level="ERROR") as combo, Client(combo.get_address()) as client:
        other = subprocess.Popen(
            [sys.executable, "-c", KILLED_CLIENT, combo.get_address()], stdout=subprocess.PIPE, text=True
        )
        assert other.stdout is not None and other.stdout.readline() == "submitted\n"
        mine = [client.submit(identity, number) for number in range(100)]
        other.kill()
        other.wait(TIMEOUT_SECONDS)
        # The other client's tasks sleep for 30 s and fill both workers: only their end lets mine run so soon.
        assert [future.result(25) for future in mine] == list(range(100))
        assert combo.scheduler.is_alive() and combo.cluster.is_alive()
