"""Real processes are killed and paused at random, under load: nothing is lost, done twice or wrong; nothing is left.

SCALER_CHAOS_SECONDS=3600 in the environment makes it last an hour; SCALER_CHAOS_SEED repeats the choices of a run (not
their effects: the system's timing is its own).
"""

from __future__ import annotations

import heapq
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

import pytest
from quiet_addresses import quiet_address

from scaler.cluster.appliance import scheduler_command

SECONDS = float(os.environ.get("SCALER_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("SCALER_CHAOS_SEED", time.time_ns() % 10**6))
HOSTS = 3
PROCESSORS = 2
CLIENTS = 2
WORKER_TIMEOUT_SECONDS = 3
CLIENT_END_SECONDS = 120.0
END_SECONDS = 30.0
LEAST_INTERVAL_SECONDS, MOST_INTERVAL_SECONDS = 0.1, 0.6
PAUSES_SECONDS = (0.02, 0.3, 1.0, 2.0 * WORKER_TIMEOUT_SECONDS)  # the last makes a worker host lost, and come back

LOAD = Path(__file__).with_name("chaos_load.py")


class Fault(NamedTuple):
    kind: str
    is_kill: bool
    weight: float


FAULTS = (
    Fault("processor", True, 10),
    Fault("processor", False, 5),
    Fault("agent", True, 1),
    Fault("agent", False, 2),
    Fault("fork server", True, 1),
    Fault("fork server", False, 1),
    Fault("scheduler", False, 0.5),
    Fault("scheduler", True, 0.5),
)


class Process(NamedTuple):
    """A process, which no other with the same id can be taken for."""

    pid: int
    started: str  # as the system counts it

    @staticmethod
    def find(pid: int) -> Optional[Process]:
        stat = _stat(pid)
        return Process(pid, stat[19]) if stat and stat[0] != "Z" else None

    def is_alive(self) -> bool:
        return Process.find(self.pid) == self

    def signal(self, number: int) -> None:
        if self.is_alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass


def _stat(pid: int) -> List[str]:
    """State, parent and so on of a process; nothing when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def children_by_parent() -> Dict[int, List[int]]:
    children: Dict[int, List[int]] = {}
    for entry in os.listdir("/proc"):
        stat = _stat(int(entry)) if entry.isdigit() else []
        if stat and stat[0] != "Z":
            children.setdefault(int(stat[1]), []).append(int(entry))
    return children


class Cluster:
    """A scheduler and some worker hosts, each replaced when it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # where programs run, and should leave nothing
        self.address = quiet_address()
        self.seen: Set[Process] = set()
        self.replaced = 0
        self.scheduler = self._start_scheduler()
        self.hosts = [self._start_host() for _ in range(HOSTS)]

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        """A program that ends with us, however we end."""
        options = ["--exit-when-stdin-closes", "-ll", "CRITICAL"]
        process = subprocess.Popen([*command, *options], stdin=subprocess.PIPE, cwd=self.folder)
        started = Process.find(process.pid)
        assert started is not None
        self.seen.add(started)
        return process

    def _start_scheduler(self) -> subprocess.Popen[bytes]:
        options = {"worker-timeout-seconds": WORKER_TIMEOUT_SECONDS, "maximum-attempts": 200, "heartbeat-interval": 0.5}
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        return self._start(*scheduler_command(), self.address, *arguments)

    def _start_host(self) -> subprocess.Popen[bytes]:
        return self._start(sys.executable, "-m", "scaler.worker", self.address, "-n", str(PROCESSORS))

    def replace_dead(self) -> None:
        for place, host in enumerate(self.hosts):
            if host.poll() is not None:
                self.hosts[place] = self._start_host()
                self.replaced += 1
        if self.scheduler.poll() is not None:
            self.scheduler = self._start_scheduler()

    def processes(self) -> Dict[str, List[Process]]:
        """All by kind. A host's program is its agent; its child is the fork server, the processors' parent."""
        children = children_by_parent()
        fork_servers = [pid for host in self.hosts for pid in children.get(host.pid, [])]
        processors = [pid for fork_server in fork_servers for pid in children.get(fork_server, [])]
        found = {
            "scheduler": _existing([self.scheduler.pid]),
            "agent": _existing([host.pid for host in self.hosts]),
            "fork server": _existing(fork_servers),
            "processor": _existing(processors),
        }
        self.seen.update(process for processes in found.values() for process in processes)
        return found

    def stop(self) -> None:
        self.processes()
        programs = [*self.hosts, self.scheduler]
        for program in programs:
            assert program.stdin is not None
            program.stdin.close()
        for program in programs:
            program.wait(END_SECONDS)

    def kill(self) -> None:
        """Whatever is left of it, when the test has failed."""
        for process in self.seen:
            process.signal(signal.SIGKILL)
        for program in [*self.hosts, self.scheduler]:
            program.wait(END_SECONDS)


def _existing(pids: List[int]) -> List[Process]:
    return [process for process in map(Process.find, pids) if process is not None]


class Monkey:
    """Kills and pauses processes of a cluster."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.paused: List[Tuple[float, Process]] = []  # a heap, by when they go on
        self.done: Dict[str, int] = {}

    def run(self, seconds: float, is_well: Callable[[], bool]) -> None:
        now = time.monotonic()
        end, next_fault = now + seconds, now
        while now < end and is_well():
            self.resume(until=now)
            self.cluster.replace_dead()
            if now >= next_fault:
                self.strike(now)
                next_fault = now + self.random.uniform(LEAST_INTERVAL_SECONDS, MOST_INTERVAL_SECONDS)
            time.sleep(0.02)
            now = time.monotonic()
        self.resume(until=float("inf"))

    def resume(self, until: float) -> None:
        while self.paused and self.paused[0][0] <= until:
            heapq.heappop(self.paused)[1].signal(signal.SIGCONT)

    def strike(self, now: float) -> None:
        fault = self.random.choices(FAULTS, [fault.weight for fault in FAULTS])[0]
        processes = self.cluster.processes()[fault.kind]
        if not processes:
            return
        victim = self.random.choice(processes)
        if fault.is_kill:
            victim.signal(signal.SIGKILL)
        else:
            victim.signal(signal.SIGSTOP)
            pause_seconds = self.random.choice(PAUSES_SECONDS[: 3 if fault.kind == "scheduler" else None])
            heapq.heappush(self.paused, (now + pause_seconds, victim))
        name = f"{'kill' if fault.is_kill else 'pause'} {fault.kind}"
        self.done[name] = self.done.get(name, 0) + 1


def wait_until_gone(processes: Set[Process]) -> List[Process]:
    """Wait until all have ended; returns those that have not."""
    deadline = time.monotonic() + END_SECONDS
    left = [process for process in processes if process.is_alive()]
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [process for process in left if process.is_alive()]
    return left


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes by /proc")
@pytest.mark.timeout(SECONDS + CLIENT_END_SECONDS + 3 * END_SECONDS)
def test_nothing_is_lost_while_processes_are_killed_and_paused(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    clients: List[subprocess.Popen[str]] = []
    try:
        for number in range(CLIENTS):
            command = [sys.executable, str(LOAD), cluster.address, str(SEED + number)]
            clients.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        monkey = Monkey(cluster, SEED)
        monkey.run(SECONDS, is_well=lambda: all(client.poll() is None for client in clients))
        cluster.replace_dead()
        summaries = [json.loads(client.communicate(timeout=CLIENT_END_SECONDS)[0]) for client in clients]
        print(f"seed {SEED}: {monkey.done}, {cluster.replaced} hosts replaced, {summaries}")
        cluster.stop()
        left = wait_until_gone(cluster.seen)
    finally:
        for client in clients:
            client.kill()
            client.wait()
        cluster.kill()
    for summary in summaries:
        assert summary["submitted"] > 100, "a cluster that does little proves little"
        assert not summary["wrong"], (SEED, summary)
        assert not summary["counts"]["lost"] and not summary["never done"], (SEED, summary)
        assert not summary["done more than once"], (SEED, summary)
    assert not left, f"these still run: {left}"
    assert not list(tmp_path.iterdir()), "files are left where the programs were started"
