"""Ten million queued tasks, and graphs of a million nodes: JSON out, a line each.

    python benchmarks/many_tasks.py --python .venv-pypy/bin/python

Rules:
- `queued`: tasks wait at the scheduler, sent by one client without an SDK. Then a hundred workers, which compute
  nothing, get them all.
- `wide`: nodes that need nothing, and sums of a thousand of them each, through a whole cluster: from `get` to the
  result.
- `chains`: a thousand chains of nodes that need each other, likewise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Dict

from zero_worker import SchedulerUnderTest, measure_memory, measure_queued

from scaler import Client, SchedulerClusterCombo

WIDTH = 1000
WITHOUT_LIMITS = ("--client-tasks-in-flight", "0", "--client-bytes-in-flight", "0", "-ll", "ERROR")


def increased(value: int) -> int:
    return value + 1


def total(*values: int) -> int:
    return sum(values)


def wide_graph(nodes: int) -> Dict[Any, Any]:
    """Sums of sums; the result has the key "total"."""
    graph: Dict[Any, Any] = {("node", number): (increased, number) for number in range(nodes)}
    starts = range(0, nodes, WIDTH)
    for start in starts:
        graph["sum", start] = (total, *(("node", number) for number in range(start, min(start + WIDTH, nodes))))
    graph["total"] = (total, *(("sum", start) for start in starts))
    return graph


def chains(nodes: int) -> Dict[Any, Any]:
    """A thousand chains; the result has the key "total"."""
    length = nodes // WIDTH
    graph: Dict[Any, Any] = {}
    for chain in range(WIDTH):
        graph[chain, 0] = (increased, chain)
        graph.update({(chain, place): (increased, (chain, place - 1)) for place in range(1, length)})
    graph["total"] = (total, *((chain, length - 1) for chain in range(WIDTH)))
    return graph


def measure_graph(client: Client, graph: Dict[Any, Any], expected: int) -> Dict[str, Any]:
    begin = time.monotonic()
    found = client.get(graph, ["total"])["total"]
    seconds = time.monotonic() - begin
    assert found == expected, f"{found} instead of {expected}"
    return {
        "nodes": len(graph),
        "seconds": round(seconds, 2),
        "microseconds_a_node": round(seconds / len(graph) * 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000_000, help="that are queued (default: 10000000)")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="of a graph (default: 1000000)")
    parser.add_argument("--python", default=sys.executable, help="that runs the scheduler of queued tasks")
    arguments = parser.parse_args()
    command, tasks, nodes = [arguments.python, "-m", "scaler_appliance"], arguments.tasks, arguments.nodes

    def tell(shape: str, figures: Dict[str, Any]) -> None:
        print(json.dumps({"shape": shape, **figures, "load": round(os.getloadavg()[0], 1)}), flush=True)

    with SchedulerUnderTest(command, WITHOUT_LIMITS) as scheduler:
        figures = measure_queued(scheduler, tasks, workers=100)
        tell("queued", {"tasks": tasks, "python": scheduler.version, **figures})
    with SchedulerUnderTest(command, WITHOUT_LIMITS) as scheduler:
        figures = measure_memory(scheduler, tasks)
        tell("memory", {"tasks": tasks, "python": scheduler.version, **figures})
    with SchedulerClusterCombo(n_workers=2, logging_level="ERROR") as cluster, Client(cluster.get_address()) as client:
        client.submit(increased, 0).result()
        tell("wide", measure_graph(client, wide_graph(nodes), nodes * (nodes + 1) // 2))
        length = nodes // WIDTH
        tell("chains", measure_graph(client, chains(nodes), WIDTH * (WIDTH - 1) // 2 + WIDTH * length))


if __name__ == "__main__":
    main()
