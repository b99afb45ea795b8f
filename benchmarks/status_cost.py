"""The scheduler's cost of publishing to monitors: thousands of workers, a steady stream of tasks, and a monitor.

    python benchmarks/status_cost.py --workers 1500 --rate 15000

    quiet, watched, quiet, watched, …: phases of equal length in the life of one scheduler, under the same load

Rules:
- Peers do no work (see zero_worker_peers.py), so that only the scheduler is measured: its CPU time per task, read from
  outside, and its own figure for the cost of publishing.
- Everything changes all the time: each worker gets tasks about once a second, and reports a processor every two.
- The monitor receives all publications and checks that none is missing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any, Optional

import zmq
from processes import ThreadCpu, read_thread_cpu
from status_cost_peers import run_steady_client, run_watched_workers
from zero_worker import Driver, SchedulerUnderTest

from scaler_protocol import decode
from scaler_protocol import messages as m

SETTLING_SECONDS = 3.0


def main() -> None:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure what telling monitors costs the scheduler.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--workers", type=int, default=1500, help="thousands want a quiet machine")
    parser.add_argument("--rate", type=int, default=15_000, help="tasks a second that the client offers")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a phase")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of phases")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the scheduler")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    with SchedulerUnderTest([options.python, "-m", "scaler_appliance"], ["-ll", "ERROR"]) as scheduler:
        figures = measure(scheduler, options.workers, options.rate, options.seconds, options.rounds)
        figures["version"] = scheduler.version
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    print(f"{figures['version']}: {options.workers} workers, {options.rate} tasks/s offered")
    for name in ("quiet", "watched"):
        phases = figures[name]
        print(
            f"{name:8} {_median(phases, 'tasks_per_second'):8.0f} tasks/s, CPU"
            f" {_median(phases, 'cpu_permille') / 10:5.1f} %,"
            f" {_median(phases, 'cpu_microseconds_per_task'):6.2f} µs/task"
        )
    print(
        f"of the watched scheduler's CPU time, publishing takes {figures['publishing_percent']:.2f} %"
        f" ({_median(figures['watched'], 'status_milliseconds_per_second'):.1f} ms/s), and sends"
        f" {_median(figures['watched'], 'published_bytes_per_second') / 1000:.0f} KB/s;"
        f" a task costs {figures['more_percent']:+.1f} %"
    )


def _median(phases: list[dict[str, float]], name: str) -> float:
    return statistics.median(phase[name] for phase in phases)


def measure(scheduler: SchedulerUnderTest, workers: int, rate: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Phases by turns; returns figures of each, and of all together."""
    worker_driver, client = Driver(run_watched_workers, scheduler), Driver(run_steady_client, scheduler)
    worker_driver.order("connect", workers)
    worker_driver.answer("connected")
    client.order("start", rate)
    monitor_address = client.answer("started")[1]
    quiet, watched = [], []
    try:
        for _ in range(rounds):
            quiet.append(_phase(scheduler, client, None, seconds))
            with zmq.Context() as context, context.socket(zmq.SUB) as socket:
                socket.setsockopt(zmq.RCVHWM, 0)
                socket.subscribe(b"")
                socket.connect(monitor_address)
                watched.append(_phase(scheduler, client, Monitor(socket), seconds))
    finally:
        client.end()
        worker_driver.end()
    shares = [each["status_milliseconds_per_second"] / each["cpu_permille"] for each in watched]
    more = [
        after["cpu_microseconds_per_task"] / before["cpu_microseconds_per_task"]
        for before, after in zip(quiet, watched)
    ]
    return {
        "quiet": quiet,
        "watched": watched,
        "publishing_percent": 100 * statistics.median(shares),
        "more_percent": 100 * (statistics.median(more) - 1),
    }


class Monitor:
    """Takes what is published."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._sequences: dict[bytes, int] = {}
        self.bytes = self.runs = self.snapshots = 0
        self.status: Optional[m.SchedulerStatus] = None

    def take(self, seconds: float) -> None:
        """All that comes in so long."""
        deadline = time.monotonic() + seconds
        while self._socket.poll(max(0, int(1000 * (deadline - time.monotonic())))):
            topic, frame = self._socket.recv_multipart()
            message = decode(frame)
            assert isinstance(message, (m.SchedulerStatus, m.TaskRuns))
            last = self._sequences.get(topic, message.sequence - 1)
            assert message.sequence == last + 1, "a publication is missing"
            self._sequences[topic] = message.sequence
            self.bytes += len(frame)
            if isinstance(message, m.SchedulerStatus):
                self.status = message
                self.snapshots += message.is_snapshot
            else:
                self.runs += len(message.workers)


def _phase(
    scheduler: SchedulerUnderTest, client: Driver, monitor: Optional[Monitor], seconds: float
) -> dict[str, float]:
    _wait(monitor, SETTLING_SECONDS)
    client.order("count")
    _, at, tasks = client.answer("counted")
    cpu, status_microseconds = read_thread_cpu(scheduler.process_id), _status_microseconds(monitor)
    published_bytes, runs = (monitor.bytes, monitor.runs) if monitor is not None else (0, 0)
    _wait(monitor, seconds)
    client.order("count")
    _, later, more_tasks = client.answer("counted")
    elapsed, done = later - at, more_tasks - tasks
    used = _total(read_thread_cpu(scheduler.process_id)) - _total(cpu)
    phase = {
        "tasks_per_second": done / elapsed,
        "cpu_permille": 1000 * used / elapsed,
        "cpu_microseconds_per_task": 1e6 * used / max(1, done),
    }
    if monitor is not None:
        phase["status_milliseconds_per_second"] = (_status_microseconds(monitor) - status_microseconds) / 1000 / elapsed
        phase["published_bytes_per_second"] = (monitor.bytes - published_bytes) / elapsed
        phase["runs_told_per_second"] = (monitor.runs - runs) / elapsed
        phase["snapshots"] = monitor.snapshots
    return phase


def _wait(monitor: Optional[Monitor], seconds: float) -> None:
    if monitor is None:
        time.sleep(seconds)
    else:
        monitor.take(seconds)


def _status_microseconds(monitor: Optional[Monitor]) -> int:
    return monitor.status.status_microseconds if monitor is not None and monitor.status is not None else 0


def _total(cpu: ThreadCpu) -> float:
    return cpu.total_seconds


if __name__ == "__main__":
    main()
