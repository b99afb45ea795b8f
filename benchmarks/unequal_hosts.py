"""How long work takes with two workers that are not equally quick, beside the least that it can take.

    python benchmarks/unequal_hosts.py

    client ──▶ scheduler ──▶ four slots; tasks sleep as long as they say
                        └──▶ four slots; they sleep three times as long

                        ──▶ four slots; those of one function sleep three times as long
                        └──▶ four slots; those of the other one do

The tasks sleep, so that eight slots need no eight cores. The least is that of a scheduler that knows how long all tasks
take, and uses no time for itself. What comes before, for measuring, is as long as what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

from scaler import Client, Cluster, Scheduler

SLOTS = 4
SLOWNESS = 3
FIRST, SECOND = "UNEQUAL_HOSTS_FIRST", "UNEQUAL_HOSTS_SECOND"  # how slow the two functions are
TASKS = ((1.0, 4), (1.0, 6), (1.0, 8), (1.0, 20), (0.05, 200), (0.005, 2000))
LONE_TASKS, LONE_SECONDS = 20, 0.1
GRAPH_LEVELS, GRAPH_WIDTH, NODE_SECONDS = 8, 4, 0.2
OF_EACH = ((1.0, 4), (1.0, 20), (0.05, 200))  # tasks of two functions
MEASURED = 64  # tasks, before the others
TIMEOUT_SECONDS = 600.0


Function = Callable[..., float]


def sleep_here(seconds: float, *_: float) -> float:
    time.sleep(seconds * float(os.environ[FIRST]))
    return seconds


def sleep_there(seconds: float, *_: float) -> float:
    time.sleep(seconds * float(os.environ[SECOND]))
    return seconds


def least_seconds(task_seconds: float, count: int) -> float:
    """How long equal tasks take at least, each in one slot."""
    rounds = 1  # of the quick worker
    while SLOTS * rounds + SLOTS * (rounds // SLOWNESS) < count:
        rounds += 1
    return rounds * task_seconds


def seconds_of_bag(client: Client, task_seconds: float, count: int, *functions: Function) -> float:
    """So many tasks of each function, by turns."""
    begin = time.monotonic()
    futures = [client.submit(each, task_seconds) for _ in range(count) for each in functions or (sleep_here,)]
    for future in futures:
        future.result(TIMEOUT_SECONDS)
    return time.monotonic() - begin


def seconds_of_lone_tasks(client: Client, *functions: Function) -> float:
    begin = time.monotonic()
    for number in range(LONE_TASKS):
        client.submit(functions[number % len(functions)], LONE_SECONDS).result(TIMEOUT_SECONDS)
    return time.monotonic() - begin


def seconds_of_graph(client: Client, *functions: Function) -> float:
    """Levels of nodes, each of a function: one of each level is needed by all of the next."""
    graph: Dict[str, Any] = {}
    for level in range(GRAPH_LEVELS):
        for node in range(GRAPH_WIDTH):
            needed = () if level == 0 else (f"{level - 1}/0",)
            graph[f"{level}/{node}"] = (functions[level % len(functions)], NODE_SECONDS, *needed)
    begin = time.monotonic()
    client.get(graph, list(graph))
    return time.monotonic() - begin


def measure(client: Client, functions: Tuple[Function, ...]) -> List[Dict[str, Any]]:
    rows: List[Dict[str, Any]] = []

    def warm_up(task_seconds: float) -> None:
        for each in functions:
            seconds_of_bag(client, task_seconds, MEASURED, each)

    def note(work: str, seconds: float, least: float) -> None:
        row = {"work": work, "seconds": round(seconds, 2), "least_seconds": round(least, 2)}
        print(row, file=sys.stderr)
        rows.append(row)

    for task_seconds, count in TASKS if len(functions) == 1 else OF_EACH:
        warm_up(task_seconds)
        seconds = seconds_of_bag(client, task_seconds, count, *functions)
        work = f"{count} tasks of {task_seconds * 1000:g} ms"
        if len(functions) == 1:
            note(work, seconds, least_seconds(task_seconds, count))
        else:
            note(f"{work} of each function", seconds, -(-count // SLOTS) * task_seconds)
    warm_up(LONE_SECONDS)
    work = f"{LONE_TASKS} tasks of {LONE_SECONDS * 1000:g} ms, one after the other"
    note(work, seconds_of_lone_tasks(client, *functions), LONE_TASKS * LONE_SECONDS)
    warm_up(NODE_SECONDS)
    work = f"a graph of {GRAPH_LEVELS} levels of {GRAPH_WIDTH} nodes of {NODE_SECONDS * 1000:g} ms"
    note(work, seconds_of_graph(client, *functions), GRAPH_LEVELS * NODE_SECONDS)
    return rows


def measure_at(slowness: Tuple[Tuple[int, int], ...], functions: Tuple[Function, ...]) -> List[Dict[str, Any]]:
    """The same with a worker for each pair: how slow it is at the two functions."""
    scheduler = Scheduler(logging_level="ERROR")
    scheduler.start()
    clusters: List[Cluster] = []
    try:
        for first, second in slowness:
            os.environ[FIRST], os.environ[SECOND] = str(first), str(second)
            clusters.append(Cluster(scheduler.get_address(), SLOTS, logging_level="ERROR"))
            clusters[-1].start()
        with Client(scheduler.get_address()) as client:
            while len(client.info().workers) < len(clusters):
                time.sleep(0.1)
            return measure(client, functions)
    finally:
        for cluster in clusters:
            cluster.shutdown()
        scheduler.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    rows = {
        "one worker is slow": measure_at(((SLOWNESS, SLOWNESS), (1, 1)), (sleep_here,)),
        "each is slow at one function": measure_at(((SLOWNESS, 1), (1, SLOWNESS)), (sleep_here, sleep_there)),
    }
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
