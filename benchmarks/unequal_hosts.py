"""How long work takes with one quick and one slow worker, beside the least that it can take.

    python benchmarks/unequal_hosts.py

    client ──▶ scheduler ──▶ four slots; tasks sleep as long as they say
                        └──▶ four slots; they sleep three times as long

The tasks sleep, so that eight slots need no eight cores. The least is that of a scheduler that knows how long all tasks
take, and uses no time for itself. What comes before, for measuring, is as long as what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Dict, List

from scaler import Client, Cluster, Scheduler

SLOTS = 4
SLOWNESS = 3
VARIABLE = "UNEQUAL_HOSTS_SLOWNESS"
TASKS = ((1.0, 4), (1.0, 6), (1.0, 8), (1.0, 20), (0.05, 200), (0.005, 2000))
LONE_TASKS, LONE_SECONDS = 20, 0.1
GRAPH_LEVELS, GRAPH_WIDTH, NODE_SECONDS = 8, 4, 0.2
MEASURED = 32  # tasks, before the others
TIMEOUT_SECONDS = 600.0


def sleep_here(seconds: float, *_: float) -> float:
    time.sleep(seconds * float(os.environ[VARIABLE]))
    return seconds


def least_seconds(task_seconds: float, count: int) -> float:
    """How long equal tasks take at least, each in one slot."""
    rounds = 1  # of the quick worker
    while SLOTS * rounds + SLOTS * (rounds // SLOWNESS) < count:
        rounds += 1
    return rounds * task_seconds


def seconds_of_bag(client: Client, task_seconds: float, count: int) -> float:
    begin = time.monotonic()
    futures = [client.submit(sleep_here, task_seconds) for _ in range(count)]
    for future in futures:
        future.result(TIMEOUT_SECONDS)
    return time.monotonic() - begin


def seconds_of_lone_tasks(client: Client) -> float:
    begin = time.monotonic()
    for _ in range(LONE_TASKS):
        client.submit(sleep_here, LONE_SECONDS).result(TIMEOUT_SECONDS)
    return time.monotonic() - begin


def seconds_of_graph(client: Client) -> float:
    """Levels of nodes: one of each level is needed by all of the next."""
    graph: Dict[str, Any] = {}
    for level in range(GRAPH_LEVELS):
        for node in range(GRAPH_WIDTH):
            needed = () if level == 0 else (f"{level - 1}/0",)
            graph[f"{level}/{node}"] = (sleep_here, NODE_SECONDS, *needed)
    begin = time.monotonic()
    client.get(graph, list(graph))
    return time.monotonic() - begin


def measure(client: Client) -> List[Dict[str, Any]]:
    rows: List[Dict[str, Any]] = []

    def note(work: str, seconds: float, least: float) -> None:
        row = {"work": work, "seconds": round(seconds, 2), "least_seconds": round(least, 2)}
        print(row, file=sys.stderr)
        rows.append(row)

    for task_seconds, count in TASKS:
        seconds_of_bag(client, task_seconds, MEASURED)
        seconds = seconds_of_bag(client, task_seconds, count)
        note(f"{count} tasks of {task_seconds * 1000:g} ms", seconds, least_seconds(task_seconds, count))
    seconds_of_bag(client, LONE_SECONDS, MEASURED)
    work = f"{LONE_TASKS} tasks of {LONE_SECONDS * 1000:g} ms, one after the other"
    note(work, seconds_of_lone_tasks(client), LONE_TASKS * LONE_SECONDS)
    seconds_of_bag(client, NODE_SECONDS, MEASURED)
    work = f"a graph of {GRAPH_LEVELS} levels of {GRAPH_WIDTH} nodes of {NODE_SECONDS * 1000:g} ms"
    note(work, seconds_of_graph(client), GRAPH_LEVELS * NODE_SECONDS)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    scheduler = Scheduler(logging_level="ERROR")
    scheduler.start()
    clusters: List[Cluster] = []
    try:
        for slowness in (SLOWNESS, 1):
            os.environ[VARIABLE] = str(slowness)
            clusters.append(Cluster(scheduler.get_address(), SLOTS, logging_level="ERROR"))
            clusters[-1].start()
        with Client(scheduler.get_address()) as client:
            while len(client.info().workers) < len(clusters):
                time.sleep(0.1)
            print(json.dumps(measure(client)))
    finally:
        for cluster in clusters:
            cluster.shutdown()
        scheduler.shutdown()


if __name__ == "__main__":
    main()
