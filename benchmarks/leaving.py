"""Workers that get SIGTERM while they are busy: `python benchmarks/leaving.py --signals 100`.

    scheduler ◀── a client that submits all the time
        ▲ ▲ ▲
        workers: one joins, then another one is told to end, again and again

Every second worker is signalled as Slurm does it: all of its processes at once; the others as Kubernetes does it: the
first process only. Tasks are shorter than the time to drain. Some return large results that later tasks need, which
only their worker has, and some may not run twice. For all tasks: how many had no result or a wrong one, and how many
ran more than once. For the workers: their exit codes, and how long they took to leave.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

import psutil

from scaler import Client, Scheduler

WORKERS, SLOTS = 3, 2
IN_FLIGHT = 40
LARGE_BYTES = 300_000
WAIT_SECONDS = 120.0
PROGRAM = "from scaler.programs.worker_host import main; import sys; sys.exit(main())"


def work(folder: str, number: int, seconds: float, size: int, *earlier: Any) -> Tuple[int, bytes]:
    """Note that it runs, take some time, and return something large that depends on what it got."""
    with open(os.path.join(folder, "runs"), "a") as file:
        file.write(f"{number}\n")
    time.sleep(seconds)
    return number + sum(each[0] for each in earlier), bytes(size)


class Submitted(NamedTuple):
    number: int
    expected: int
    size: int
    future: Any


class Load(threading.Thread):
    """Submits tasks, so that some always wait, and checks their results."""

    def __init__(self, address: str, folder: str, seed: int) -> None:
        super().__init__(name="load", daemon=True)
        self._address, self._folder = address, folder
        self._random = random.Random(seed)
        self.is_ending = threading.Event()
        self.submitted = 0
        self.faults: List[str] = []

    def run(self) -> None:
        with Client(self._address) as client:
            once = client.options(at_most_once=True)
            waiting: Deque[Submitted] = deque()
            while waiting or not self.is_ending.is_set():
                while len(waiting) < IN_FLIGHT and not self.is_ending.is_set():
                    waiting.append(self._submit(once if self._random.random() < 0.2 else client, waiting))
                self._check(waiting.popleft())

    def _submit(self, client: Any, waiting: Deque[Submitted]) -> Submitted:
        draw = self._random
        number = self.submitted = self.submitted + 1
        seconds = draw.choice((0.0, 0.01, 0.05, 0.3, 1.0))
        size = draw.choice((0, 100, LARGE_BYTES))
        earlier = draw.sample(list(waiting), min(len(waiting), draw.choice((0, 0, 1, 3))))
        future = client.submit(work, self._folder, number, seconds, size, *(each.future for each in earlier))
        return Submitted(number, number + sum(each.expected for each in earlier), size, future)

    def _check(self, task: Submitted) -> None:
        try:
            value, content = task.future.result(WAIT_SECONDS)
        except Exception as error:
            self.faults.append(f"task {task.number}: {type(error).__name__}: {error}")
            return
        if (value, len(content)) != (task.expected, task.size):
            self.faults.append(f"task {task.number} has a wrong result")


class Worker:
    """A worker's program, started as a user starts it."""

    def __init__(self, address: str, name: str, log: Path) -> None:
        self.name = name
        command = [sys.executable, "-c", PROGRAM, address, "-n", str(SLOTS), "-wn", name, "--logging-paths", str(log)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def terminate(self, is_whole_group: bool) -> None:
        first = psutil.Process(self.process.pid)
        for each in [first, *(first.children(recursive=True) if is_whole_group else [])]:
            try:
                each.send_signal(signal.SIGTERM)
            except psutil.NoSuchProcess:
                pass


def wait_for_worker(client: Client, name: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not any(each.name == name for each in client.info().workers):
        assert time.monotonic() < deadline, f"{name} does not join"
        time.sleep(0.02)


def is_busy(client: Client, name: str) -> bool:
    return any(each.name == name and each.tasks for each in client.info().workers)


def measure(signals: int, seed: int = 1, folder: Optional[str] = None) -> Dict[str, Any]:
    """Run it once; the figures."""
    own = folder or tempfile.mkdtemp(prefix="scaler-leaving-")
    leaving_seconds: List[float] = []
    codes: Counter[int] = Counter()
    busy = 0
    with Scheduler(logging_level="WARNING") as scheduler, Client(scheduler.get_address()) as client:
        address = scheduler.get_address()
        workers = [Worker(address, f"worker-{number}", Path(own, "log")) for number in range(WORKERS)]
        for worker in workers:
            wait_for_worker(client, worker.name)
        load = Load(address, own, seed)
        load.start()
        for number in range(signals):
            workers.append(Worker(address, f"worker-{WORKERS + number}", Path(own, "log")))
            wait_for_worker(client, workers[-1].name)
            leaver = workers.pop(0)
            deadline = time.monotonic() + 5.0
            while not is_busy(client, leaver.name) and time.monotonic() < deadline:
                time.sleep(0.005)
            busy += is_busy(client, leaver.name)
            began = time.monotonic()
            leaver.terminate(is_whole_group=number % 2 == 1)
            codes[leaver.process.wait(WAIT_SECONDS)] += 1
            leaving_seconds.append(time.monotonic() - began)
        load.is_ending.set()
        load.join()
        for worker in workers:
            worker.terminate(is_whole_group=False)
        for worker in workers:
            codes[worker.process.wait(WAIT_SECONDS)] += 1
    runs = Counter(Path(own, "runs").read_text().split())
    if folder is None:
        shutil.rmtree(own)
    return {
        "signals": signals,
        "of busy workers": busy,
        "tasks": load.submitted,
        "tasks without their result": len(load.faults),
        "faults": load.faults[:10],
        "tasks that never ran": load.submitted - len(runs),
        "tasks that ran more than once": sum(count > 1 for count in runs.values()),
        "exit codes": {str(code): count for code, count in codes.items()},
        "seconds to leave": {
            "median": round(sorted(leaving_seconds)[len(leaving_seconds) // 2], 3),
            "longest": round(max(leaving_seconds), 3),
        },
    }


def main() -> int:
    """Print the figures as JSON; the exit code is 1 if anything was lost or ran twice."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--signals", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = measure(options.signals, options.seed)
    print(json.dumps(found, indent=2))
    lost = found["tasks without their result"] + found["tasks that never ran"] + found["tasks that ran more than once"]
    return int(bool(lost) or set(found["exit codes"]) != {"0"})


if __name__ == "__main__":
    sys.exit(main())
