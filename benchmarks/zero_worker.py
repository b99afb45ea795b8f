"""The scheduler alone: a real scheduler process, driven through its real socket by peers that do no work.

With two cores the wall clock measures the drivers as well, so the figure that counts is the scheduler's own
CPU time per task, read from outside; the main thread (Python) is told apart from libzmq's threads.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Callable, Optional, final

import psutil
from processes import ThreadCpu, read_thread_cpu, resident_bytes
from workloads import Figures
from zero_worker_client import run_client
from zero_worker_workers import run_workers

_ANSWER_TIMEOUT_SECONDS = 240.0
_LOOK_SECONDS = 1.0
_STOP_TIMEOUT_SECONDS = 10.0
_WARM_UP_TASKS = 2_000_000
_WARM_UP_WORKERS = 10
_SMALLEST_SAMPLE_TASKS = 100_000


@final
class SchedulerUnderTest:
    """A scheduler process on a port of its own, for a `with` block.

    Parameters:
        command: what starts a scheduler, its address still to come.
        options: what comes after the address.
        environment: all variables of the process; None for this process's own.
    """

    def __init__(
        self, command: Sequence[str], options: Sequence[str] = (), environment: Optional[Mapping[str, str]] = None
    ) -> None:
        self._command = list(command)
        self._options = list(options)
        # Its played peers have no keys.
        self._environment = {**(os.environ if environment is None else environment), "SCALER_SCHEDULER_INSECURE": "1"}
        self.address = f"tcp://127.0.0.1:{_free_port()}"
        self._process: Optional[subprocess.Popen[bytes]] = None

    @property
    def process_id(self) -> int:
        """Of the scheduler, which the command may have started as a process of its own."""
        assert self._process is not None, "use it in a with block"
        started = psutil.Process(self._process.pid).children(recursive=True)
        return started[-1].pid if started else self._process.pid

    @property
    def version(self) -> str:
        """Name and version of the interpreter."""
        told = subprocess.run(
            [*self._command, "--version"], env=self._environment, check=True, capture_output=True, text=True
        ).stdout
        found = re.search(r"\w+ \d[\d.]*( \([^)]*\))?(?=, libzmq)", told)
        return found[0] if found else told.strip()

    def check_alive(self) -> None:
        """Raise if the scheduler has ended."""
        assert self._process is not None, "use it in a with block"
        if self._process.poll() is not None:
            raise RuntimeError(f"the scheduler ended with code {self._process.returncode}; its error is above")

    def __enter__(self) -> SchedulerUnderTest:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # inherited: a thousand workers need it
        command = [*self._command, self.address, *self._options]
        self._process = subprocess.Popen(command, env=self._environment)
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Driver:
    """A process of peers and the pipe that orders it about."""

    def __init__(self, target: Callable[[str, Connection[Any, Any]], None], scheduler: SchedulerUnderTest) -> None:
        self._scheduler = scheduler
        context = multiprocessing.get_context("spawn")
        self._orders, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(scheduler.address, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def order(self, *order: Any) -> None:
        """Give an order; see the driver's docstring for what there is."""
        self._orders.send(order)

    def answer(self, expected: str) -> tuple[Any, ...]:
        """Wait for an answer, which must be the expected one."""
        deadline = time.monotonic() + _ANSWER_TIMEOUT_SECONDS
        while not self._orders.poll(_LOOK_SECONDS):
            self._scheduler.check_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the peers did not report {expected!r} in {_ANSWER_TIMEOUT_SECONDS:.0f} s")
        try:
            answer: tuple[Any, ...] = self._orders.recv()
        except EOFError:
            raise RuntimeError(f"the peers ended before {expected!r}; their error is above") from None
        if answer[0] != expected:
            raise RuntimeError(f"the peers reported {answer[0]!r} instead of {expected!r}")
        return answer

    def end(self) -> None:
        """End the process; no farewell on the wire."""
        self._process.kill()
        self._process.join()
        self._orders.close()  # afterwards: it would see the end of its orders, and say so


class Round:
    """What one round of tasks through the scheduler took."""

    def __init__(self) -> None:
        self.wall_seconds = 0.0
        self.submit_cpu_seconds = 0.0
        self.cpu = ThreadCpu(0.0, 0.0)
        self.client_batches = 0
        self.worker_batches = 0
        self.tasks = 0

    def add_cpu(self, before: ThreadCpu, after: ThreadCpu) -> None:
        """Count the CPU time between two readings."""
        self.cpu = ThreadCpu(
            self.cpu.main_seconds + after.main_seconds - before.main_seconds,
            self.cpu.other_seconds + after.other_seconds - before.other_seconds,
        )

    def figures(self) -> Figures:
        """All rounds that were added up, per task."""
        return {
            "scheduler_cpu_microseconds_per_task": self.cpu.total_seconds / self.tasks * 1e6,
            "scheduler_main_thread_microseconds_per_task": self.cpu.main_seconds / self.tasks * 1e6,
            "submit_cpu_microseconds_per_task": self.submit_cpu_seconds / self.tasks * 1e6,
            "tasks_per_second": self.tasks / self.wall_seconds,
            "tasks_per_worker_batch": self.tasks / max(1, self.worker_batches),
            "tasks_per_client_batch": self.tasks / max(1, self.client_batches),
        }


def measure_queued(scheduler: SchedulerUnderTest, tasks: int, workers: int) -> Figures:
    """Queue all tasks while no worker is connected, then connect workers and drain the queue.

    Small amounts are repeated, and the handshakes of the workers are part of each round: with 1 000 tasks
    they show. The wall clock runs while something moves: from the first batch to the last one's acceptance,
    and from the workers' start to the last result.
    """
    client, worker_driver = _warm(scheduler)
    total = Round()
    while total.tasks < max(tasks, _SMALLEST_SAMPLE_TASKS):
        client.order("prepare", tasks)
        client.answer("prepared")
        before, started = read_thread_cpu(scheduler.process_id), time.monotonic()
        client.order("submit")
        accepted_at = client.answer("accepted")[1]
        queued, drain_started = read_thread_cpu(scheduler.process_id), time.monotonic()
        worker_driver.order("connect", workers)
        _, done_at, client_batches = client.answer("done")
        drained = read_thread_cpu(scheduler.process_id)
        worker_driver.answer("connected")
        total.wall_seconds += accepted_at - started + done_at - drain_started
        total.submit_cpu_seconds += queued.total_seconds - before.total_seconds
        total.add_cpu(before, drained)
        _finish_round(total, tasks, client_batches, worker_driver)
        _leave(worker_driver)
    client.end()
    worker_driver.end()
    return total.figures()


def measure_streamed(scheduler: SchedulerUnderTest, tasks: int, workers: int) -> Figures:
    """Connect the workers first, then send the tasks and count the results as they come."""
    client, worker_driver = _warm(scheduler)
    worker_driver.order("connect", workers)
    worker_driver.answer("connected")
    total = Round()
    _stream(scheduler, client, worker_driver, tasks, total)
    client.end()
    worker_driver.end()
    return total.figures()


def measure_memory(scheduler: SchedulerUnderTest, tasks: int) -> Figures:
    """How much a fresh scheduler grows for each queued task; no worker, one batch to warm up."""
    client = Driver(run_client, scheduler)
    client.order("connect")
    client.answer("connected")
    _queue(client, 1000)
    before = resident_bytes(scheduler.process_id)
    _queue(client, tasks)
    after = resident_bytes(scheduler.process_id)
    client.end()
    return {
        "bytes_per_task": (after - before) / tasks,
        "before_mib": before / 2**20,
        "after_mib": after / 2**20,
    }


def _warm(scheduler: SchedulerUnderTest) -> tuple[Driver, Driver]:
    """Connect both drivers and send enough through for a tracing compiler to have seen all paths."""
    client = Driver(run_client, scheduler)
    worker_driver = Driver(run_workers, scheduler)
    client.order("connect")
    client.answer("connected")
    worker_driver.order("connect", _WARM_UP_WORKERS)
    worker_driver.answer("connected")
    _stream(scheduler, client, worker_driver, _WARM_UP_TASKS, Round())
    _leave(worker_driver)
    return client, worker_driver


def _stream(scheduler: SchedulerUnderTest, client: Driver, worker_driver: Driver, tasks: int, total: Round) -> None:
    client.order("prepare", tasks)
    client.answer("prepared")
    worker_driver.order("count")
    batches_before = worker_driver.answer("counted")[2]
    before, started = read_thread_cpu(scheduler.process_id), time.monotonic()
    client.order("submit")
    client.answer("accepted")
    queued = read_thread_cpu(scheduler.process_id)
    _, done_at, client_batches = client.answer("done")
    total.add_cpu(before, read_thread_cpu(scheduler.process_id))
    total.submit_cpu_seconds += queued.total_seconds - before.total_seconds
    total.wall_seconds += done_at - started
    total.worker_batches -= batches_before
    _finish_round(total, tasks, client_batches, worker_driver)


def _finish_round(total: Round, tasks: int, client_batches: int, worker_driver: Driver) -> None:
    worker_driver.order("count")
    total.worker_batches += worker_driver.answer("counted")[2]
    total.client_batches += client_batches
    total.tasks += tasks


def _queue(client: Driver, tasks: int) -> None:
    client.order("prepare", tasks)
    client.answer("prepared")
    client.order("submit")
    client.answer("accepted")


def _leave(worker_driver: Driver) -> None:
    worker_driver.order("leave")
    worker_driver.answer("left")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
