"""The cost of monitoring: no-ops with scaler_top and scaler_ui attached, compared with none attached.

    python benchmarks/watched.py --rounds 7

    quiet, watched, quiet, watched, …: each a fresh burst of no-ops on the same cluster

Rules:
- scaler_top runs in a terminal of its own (a pty of 200 by 50), scaler_ui with a browser's two event streams, and both
  have shown the cluster before the clock starts.
- Bursts alternate, so that other load on the machine affects both; the figure is the median of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import socket
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from fcntl import ioctl
from typing import Any

from tasks import no_op

from scaler import Client, SchedulerClusterCombo

TERMINAL_ROWS, TERMINAL_COLUMNS = 50, 200
READY_SECONDS = 30.0
PAGES = ("overview", "stream")


def main() -> None:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure no-ops with and without scaler_top and scaler_ui attached.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=7, help="pairs of bursts of each kind")
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--submitted", type=int, default=300_000, help="tasks of a burst of submit")
    parser.add_argument("--mapped", type=int, default=5_000_000, help="tasks of a burst of map")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    cluster = SchedulerClusterCombo(n_workers=options.workers, logging_paths=[os.devnull])
    try:
        with Client(cluster.get_address()) as client:
            figures = {
                "submit": measure(cluster, lambda: submit(client, options.submitted), options.rounds),
                "map": measure(cluster, lambda: map_all(client, options.mapped), options.rounds),
            }
    finally:
        cluster.shutdown()
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    for name, each in figures.items():
        print(
            f"{name:8} quiet {each['quiet_seconds']:.3f} s, watched {each['watched_seconds']:.3f} s:"
            f" {100 * each['throughput_ratio']:.1f} % of the throughput (pairs:"
            f" {', '.join(f'{100 * ratio:.0f}' for ratio in each['ratios'])} %)"
        )


def measure(cluster: SchedulerClusterCombo, burst: Callable[[], float], rounds: int) -> dict[str, Any]:
    """Alternate; returns seconds, and the share of the throughput that is left with monitors."""
    burst()
    quiet, watched = [], []
    for _ in range(rounds):
        quiet.append(burst())
        with looking_on(cluster.get_monitor_address()):
            watched.append(burst())
    ratios = [before / after for before, after in zip(quiet, watched)]
    return {
        "quiet_seconds": statistics.median(quiet),
        "watched_seconds": statistics.median(watched),
        "throughput_ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def submit(client: Client, tasks: int) -> float:
    """Seconds from the first submit to the last result."""
    begin = time.perf_counter()
    futures = [client.submit(no_op, number) for number in range(tasks)]
    for number, future in enumerate(futures):
        assert future.result() == number
    return time.perf_counter() - begin


def map_all(client: Client, tasks: int) -> float:
    """Seconds of one map."""
    begin = time.perf_counter()
    assert len(client.map(no_op, range(tasks))) == tasks
    return time.perf_counter() - begin


@contextlib.contextmanager
def looking_on(monitor_address: str) -> Iterator[None]:
    """Both programs, each with a viewer."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminal([sys.executable, "-m", "scaler_appliance.top", monitor_address]))
        stack.enter_context(browser(monitor_address))
        yield


@contextlib.contextmanager
def terminal(command: list[str]) -> Iterator[None]:
    """A program in a terminal, once it has drawn the cluster."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", TERMINAL_ROWS, TERMINAL_COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    has_drawn = threading.Event()

    def read() -> None:
        with contextlib.suppress(OSError):  # the program has ended
            while True:
                if b"success" in os.read(ours, 65536):
                    has_drawn.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert has_drawn.wait(READY_SECONDS), "scaler_top draws nothing"
        yield
    finally:
        process.terminate()
        process.wait(READY_SECONDS)
        reader.join(READY_SECONDS)
        os.close(ours)


@contextlib.contextmanager
def browser(monitor_address: str) -> Iterator[None]:
    """scaler_ui with a reader of each page's events, once each has come."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "scaler_appliance.ui", monitor_address, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ready = [_read_events(f"http://127.0.0.1:{port}/events?page={page}") for page in PAGES]
        assert all(event.wait(READY_SECONDS) for event in ready), "scaler_ui tells nothing"
        yield
    finally:
        process.terminate()
        process.wait(READY_SECONDS)


def _read_events(url: str) -> threading.Event:
    """Read a stream of events until it ends; the event is set when the cluster is known in it."""
    has_come = threading.Event()

    def read() -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(url) as stream:
                    for line in stream:
                        if b'"is_connected":true' in line.replace(b" ", b""):
                            has_come.set()
                return
            except OSError:
                if has_come.is_set():
                    return
                time.sleep(0.05)  # it does not listen yet

    threading.Thread(target=read, daemon=True).start()
    return has_come


if __name__ == "__main__":
    main()
