"""Would matrices prepare very large graphs faster than the client does? A command line of its own.

    pip install python-graphblas[default] && python benchmarks/graph_matrices.py

Rules:
- Both sides begin with the columns of numbers that the client reads from the user's dictionary: a matrix is made of
  numbers, so nobody is spared the reading.
- Matrices cull (breadth first from the wanted task) and look for cycles (by taking away, level after level, what waits
  for nothing). The client's sorting does both and yields the order, which is needed in any case.
- Each cell is the best of the runs. A run of matrices that takes too long is given up, and the table says so.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Callable, Optional

from graph_workloads import SHAPES

from scaler.client.graph_order import NeededTasks

_MILLISECONDS = 1e3


@dataclass
class Row:
    """One graph; milliseconds. None: given up."""

    graph: str
    nodes: int
    reading: float
    sorting: float
    matrices: Optional[float]


def cull_and_check(found: NeededTasks, root: int, give_up_seconds: float) -> Optional[bool]:
    """Whether the tasks that `root` needs are free of cycles, by GraphBLAS; None if that takes too long."""
    import graphblas as gb
    import numpy as np

    deadline = time.perf_counter() + give_up_seconds
    count = len(found.tasks)
    starts = np.frombuffer(found.starts, dtype=np.uint32).astype(np.uint64)
    needs = np.frombuffer(found.needs, dtype=np.uint32).astype(np.uint64)
    edges = gb.Matrix.from_csr(starts, needs, 1, nrows=count, ncols=count, dtype=gb.dtypes.INT32)

    reached = gb.Vector(gb.dtypes.BOOL, count)
    frontier = gb.Vector.from_coo([root], True, size=count)
    while frontier.nvals:
        reached(frontier.S) << True
        frontier(~reached.S, replace=True) << frontier.vxm(edges, gb.semiring.any_pair[bool])
        if time.perf_counter() > deadline:
            return None

    needed, _ = reached.to_coo(values=False)
    if len(needed) < count:
        edges = edges[needed, needed].new()
    remaining = len(needed)
    waits_for = edges.reduce_rowwise(gb.monoid.plus).new(gb.dtypes.INT32)
    waits_for(~waits_for.S) << 0
    needed_by = edges.T.new()
    ready = gb.select.valueeq(waits_for, 0).new()
    while ready.nvals:
        remaining -= ready.nvals
        met = ready.vxm(needed_by, gb.semiring.plus_pair[gb.dtypes.INT32]).new()
        waits_for(met.S, gb.binary.minus) << met
        touched = gb.Vector(gb.dtypes.INT32, len(needed))
        touched(met.S) << waits_for
        ready = gb.select.valueeq(touched, 0).new()
        if time.perf_counter() > deadline:
            return None
    return remaining == 0


def measure(kind: str, nodes: int, repeat: int, give_up_seconds: float) -> Row:
    """Prepare one graph, both ways."""
    graph, key, _ = SHAPES[kind](nodes)
    reading = sorting = float("inf")
    matrices: Optional[float] = float("inf")
    for _ in range(repeat):
        seconds, found = _timed(lambda: NeededTasks(graph, [key]))
        reading = min(reading, seconds)
        seconds, _ordered = _timed(found.sorted)
        sorting = min(sorting, seconds)
        if matrices is None:
            continue
        root = found.numbers[key]
        seconds, is_free = _timed(lambda: cull_and_check(found, root, give_up_seconds))  # noqa: B023
        if is_free is False:
            raise RuntimeError(f"GraphBLAS finds a cycle in {kind}, and there is none")
        matrices = min(matrices, seconds) if is_free else None
    scaled = None if matrices is None else matrices * _MILLISECONDS
    return Row(kind, len(graph), reading * _MILLISECONDS, sorting * _MILLISECONDS, scaled)


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    started = time.perf_counter()
    result = action()
    return time.perf_counter() - started, result


def main() -> int:
    """Print a table; with --json, write the figures too."""
    parser = argparse.ArgumentParser(description="Matrices (GraphBLAS) beside the client's way to prepare a graph.")
    parser.add_argument("--nodes", default="10000,100000,1000000", help="sizes (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts (default: %(default)s)")
    parser.add_argument("--give-up-seconds", type=float, default=10.0, help="of one run (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args()
    try:
        importing, _ = _timed(_start_graphblas)
    except ImportError as error:
        print(f"error: {error}. To install it: pip install 'python-graphblas[default]'", file=sys.stderr)
        return 2
    rows = []
    print(f"importing GraphBLAS: {importing * _MILLISECONDS:.0f} ms, once a process\n")
    print(f"{'graph':12} {'nodes':>9} {'reading':>12} {'sorting':>12} {'matrices':>14}")
    for kind in SHAPES:
        for nodes in map(int, options.nodes.split(",")):
            row = measure(kind, nodes, options.repeat, options.give_up_seconds)
            rows.append(row)
            matrices = f"over {options.give_up_seconds:.0f} s" if row.matrices is None else f"{row.matrices:.1f} ms"
            print(f"{kind:12} {row.nodes:9} {row.reading:9.1f} ms {row.sorting:9.1f} ms {matrices:>14}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"import": importing * _MILLISECONDS, "rows": [asdict(row) for row in rows]}, file, indent=1)
    return 0


def _start_graphblas() -> None:
    import graphblas

    graphblas.init("suitesparse", blocking=True)
    graphblas.Vector(bool, 1)  # what is imported at first use belongs to the cost, too


if __name__ == "__main__":
    sys.exit(main())
