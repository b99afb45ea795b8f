"""What a busy scheduler spends on each task: many clients, none of which sends large batches.

    .venv/bin/python benchmarks/mixed_load.py scaler_scheduler .venv-pypy/bin/scaler_scheduler

Each client goes round: a lone task whose result it waits for, twenty tasks at once, a graph of fifteen nodes, an object
that two tasks share, and one that it deletes. Rules:

- Clients and workers are the SDK's, in processes of their own. What counts is the CPU time of the scheduler alone.
- The first rounds are not measured: PyPy compiles in them. Several schedulers are measured by turns.
- Every result is checked.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import psutil
from graph_workloads import tree
from tasks import add, no_op
from zero_worker import SchedulerUnderTest

from scaler import Client

CLIENTS = 24
WORKERS = 4
TASKS_AT_ONCE = 20
GRAPH_NODES = 15
TASKS_A_ROUND = 1 + TASKS_AT_ONCE + GRAPH_NODES + 2
WARM_UP_ROUNDS = 240
ROUNDS = 60
STOP_SECONDS = 60.0


def cpu_seconds(process: psutil.Process) -> float:
    """Of a process and its children."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def cpu_microseconds_per_task(
    scheduler: SchedulerUnderTest, rounds: int = ROUNDS, warm_up_rounds: int = WARM_UP_ROUNDS
) -> float:
    """What a scheduler that runs spends on a task of the mix.

    Parameters:
        rounds: of each client that are measured.
        warm_up_rounds: that come before.

    Raises RuntimeError if a result is wrong.
    """
    command = [sys.executable, "-m", "scaler.worker", scheduler.address, "-n", "1", "--exit-when-stdin-closes"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    workers = [
        subprocess.Popen([*command, "-ll", "ERROR"], env=environment, stdin=subprocess.PIPE) for _ in range(WORKERS)
    ]
    clients = [Client(scheduler.address) for _ in range(CLIENTS)]
    try:
        process = psutil.Process(scheduler.process_id)
        _run(clients, warm_up_rounds)
        before = cpu_seconds(process)
        _run(clients, rounds)
        return (cpu_seconds(process) - before) / (rounds * CLIENTS * TASKS_A_ROUND) * 1e6
    finally:
        for client in clients:
            client.disconnect()
        for worker in workers:
            worker.communicate(timeout=STOP_SECONDS)


def _run(clients: Sequence[Client], rounds: int) -> None:
    errors: List[BaseException] = []

    def run(number: int, client: Client) -> None:
        try:
            for _ in range(rounds):
                _round(number, client)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=numbered) for numbered in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _round(number: int, client: Client) -> None:
    graph, key, right = tree(GRAPH_NODES)
    shared = client.send_object(number)
    seen: Dict[str, Any] = {
        "lone": client.submit(no_op, number).result(),
        "map": client.map(no_op, range(TASKS_AT_ONCE)),
        "graph": client.get(graph, [key])[key],
        "shared": [future.result() for future in [client.submit(add, shared, each) for each in (1, 2)]],
    }
    expected = {"lone": number, "map": list(range(TASKS_AT_ONCE)), "graph": right, "shared": [number + 1, number + 2]}
    if seen != expected:
        raise RuntimeError(f"wrong results: {seen} instead of {expected}")


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Measure commands by turns, and print each figure and their medians."""
    parser = argparse.ArgumentParser(description="What schedulers spend on a task of a mixed load, in CPU µs.")
    parser.add_argument("commands", nargs="+", metavar="COMMAND", help="starts a scheduler; its address is added")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="how often each is measured")
    options = parser.parse_args(arguments)
    figures: Dict[str, List[float]] = {command: [] for command in options.commands}
    for _ in range(options.turns):
        for command, seen in figures.items():
            with SchedulerUnderTest(shlex.split(command), ["--logging-level", "ERROR"]) as scheduler:
                seen.append(cpu_microseconds_per_task(scheduler))
    for command, seen in figures.items():
        print(f"{statistics.median(seen):6.1f}  {command}  ({' '.join(f'{each:.1f}' for each in seen)})")


if __name__ == "__main__":
    main()
