"""Graphs of tasks: what it costs to prepare and to run one, for each of its nodes.

The three shapes are the extremes: a reduction tree is wide and gets narrow, a fan is as wide as can be between two
single nodes, a chain is as long as can be, so that nothing in it happens at the same time.
"""

from __future__ import annotations

import time
from typing import Any, Callable

from engines import Engine
from processes import cpu_between, read_cpu
from tasks import add, no_op, total
from workloads import Figures, WrongResultError

Graph = dict[Any, Any]

_WARM_UP_NODES = 500


def tree(nodes: int) -> tuple[Graph, Any, int]:
    """A reduction tree of about so many nodes, the key of its root, and the right result."""
    leaves = (nodes + 1) // 2
    graph: Graph = {("leaf", index): (no_op, index) for index in range(leaves)}
    level = list(graph)
    height = 0
    while len(level) > 1:
        height += 1
        pairs = list(zip(level[::2], level[1::2]))
        keys = [(f"sum-{height}", index) for index in range(len(pairs))]
        graph.update((key, (add, left, right)) for key, (left, right) in zip(keys, pairs))
        level = keys + level[2 * len(pairs) :]
    return graph, level[0], sum(range(leaves))


def fan(nodes: int) -> tuple[Graph, Any, int]:
    """One node that all others but the last need, which needs all of these."""
    middle = [("middle", index) for index in range(nodes - 2)]
    graph: Graph = {"source": (no_op, 1)}
    graph.update((key, (add, "source", key[1])) for key in middle)
    graph["total"] = (total, middle)
    return graph, "total", sum(range(nodes - 2)) + nodes - 2


def chain(nodes: int) -> tuple[Graph, Any, int]:
    """Each node needs the one before."""
    graph: Graph = {("link", 0): (no_op, 0)}
    graph.update({("link", index): (add, ("link", index - 1), 1) for index in range(1, nodes)})
    return graph, ("link", nodes - 1), nodes - 1


SHAPES: dict[str, Callable[[int], tuple[Graph, Any, int]]] = {
    "graph-tree": tree,
    "graph-fan": fan,
    "graph-chain": chain,
}


def measure_graph(engine: Engine, benchmark: str, nodes: int) -> Figures:
    """Run one graph, from the dictionary to the result."""
    make = SHAPES[benchmark]
    _run(engine, *make(min(nodes, _WARM_UP_NODES)))
    graph, key, right = make(nodes)
    before = read_cpu()
    started = time.perf_counter()
    prepared = _run(engine, graph, key, right)
    finished = time.perf_counter()
    used = cpu_between(before, read_cpu())
    return {
        "seconds": finished - started,
        "microseconds_per_node": (finished - started) / len(graph) * 1e6,
        "prepare_microseconds_per_node": (prepared - started) / len(graph) * 1e6,
        "cpu_microseconds_per_node": used.total_seconds / len(graph) * 1e6,
        "client_cpu_microseconds_per_node": used.own_seconds / len(graph) * 1e6,
        "other_jobs_cores": used.other_jobs_cores,
    }


def _run(engine: Engine, graph: Graph, key: Any, right: int) -> float:
    """Returns when the program had its handle back."""
    handle = engine.start_graph(graph, key)
    prepared = time.perf_counter()
    result = engine.result(handle)
    if result != right:
        raise WrongResultError(f"the graph's result is {result}, not {right}")
    return prepared
