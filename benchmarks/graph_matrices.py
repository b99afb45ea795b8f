"""From which size on do matrices prepare a graph faster than Python does? A command line of its own.

    pip install 'scaler-sdk[graphblas]' && python benchmarks/graph_matrices.py

Rules:
- Both sides begin with the user's dictionary and end with the columns that are sent: what is wanted is the whole way.
- CPU time of this process, the least of the runs; both sides take turns, so that what else the machine does meets both.
- Importing is paid once a process. It is measured in processes of its own and stands beside the figures, which are
  those of a process that has paid.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Callable

from graph_workloads import SHAPES, Graph
from tasks import no_op, total

from scaler.graph import graph_columns as graph_columns
from scaler.graph import matrices as graph_matrices
from scaler.graph import order as graph_order

_MILLISECONDS = 1e3
_IMPORT = """
import sys, time
started = time.process_time()
for name in sys.argv[1:]:
    __import__(name)
    print(time.process_time() - started)
    started = time.process_time()
"""


@dataclass
class Row:
    """One graph; milliseconds."""

    graph: str
    nodes: int
    python: float
    matrices: float
    reading: float  # these are parts of `matrices`: all of the dictionary in columns,
    order: float  # an order by GraphBLAS,
    has_order: bool  # and whether there was one; otherwise it is sorted task by task after that


def layers(nodes: int) -> tuple[Graph, Any, int]:
    """Twenty layers of tasks that need three of the layer before, whichever."""
    dice, width = random.Random(nodes), nodes // 20
    graph: Graph = {("layer", 0, index): (no_op, index) for index in range(width)}
    for layer in range(1, 20):
        for index in range(width):
            before = [("layer", layer - 1, dice.randrange(width)) for _ in range(3)]
            graph["layer", layer, index] = (no_op, *before)
    graph["total"] = (total, [("layer", 19, index) for index in range(width)])
    return graph, "total", 0


def skipping_layers(nodes: int) -> tuple[Graph, Any, int]:
    """The same, but each needs one of one, of two and of three layers before."""
    dice, width = random.Random(nodes), nodes // 20
    graph: Graph = {("layer", 0, index): (no_op, index) for index in range(width)}
    for layer in range(1, 20):
        for index in range(width):
            before = [("layer", max(0, layer - step), dice.randrange(width)) for step in (1, 2, 3)]
            graph["layer", layer, index] = (no_op, *before)
    graph["total"] = (total, [("layer", 19, index) for index in range(width)])
    return graph, "total", 0


def measure(kind: str, make: Callable[[int], tuple[Graph, Any, int]], nodes: int, repeat: int) -> Row:
    """Prepare one graph, both ways."""
    graph, key, _ = make(nodes)
    row = Row(kind, len(graph), python=inf, matrices=inf, reading=inf, order=inf, has_order=True)
    for _ in range(repeat):
        graph_order.FEWEST_FOR_MATRICES = sys.maxsize
        row.python = min(row.python, _timed(lambda: graph_order.GraphOrder(graph, [key]))[0])
        graph_order.FEWEST_FOR_MATRICES = 0
        row.matrices = min(row.matrices, _timed(lambda: graph_order.GraphOrder(graph, [key]))[0])
        spent, columns = _timed(lambda: graph_columns.read_columns(graph))
        row.reading = min(row.reading, spent)
        roots = [columns.numbers[key]]
        spent, order = _timed(lambda: graph_matrices.order_of(columns.starts, columns.needs, roots))  # noqa: B023
        row.order, row.has_order = min(row.order, spent), order is not None
    return row


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    started = time.process_time()
    result = action()
    return (time.process_time() - started) * _MILLISECONDS, result


def measure_imports(repeat: int) -> dict[str, float]:
    """Milliseconds for each of the two, one after the other."""
    names = ["numpy", "suitesparse_graphblas"]
    runs = [
        subprocess.run([sys.executable, "-c", _IMPORT, *names], capture_output=True, text=True, check=True, timeout=60)
        for _ in range(repeat)
    ]
    seconds = [min(map(float, times)) for times in zip(*[run.stdout.split() for run in runs])]
    return {name: spent * _MILLISECONDS for name, spent in zip(names, seconds)}


def main() -> int:
    """Print a table; with --json, write the figures too."""
    parser = argparse.ArgumentParser(description="Matrices (GraphBLAS) beside Python: CPU time to prepare a graph.")
    parser.add_argument("--nodes", default="10000,100000,1000000", help="sizes (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args()
    if not graph_matrices.load():
        print(
            "error: GraphBLAS cannot be imported. To install it: pip install 'scaler-sdk[graphblas]'", file=sys.stderr
        )
        return 2
    imports = measure_imports(max(options.repeat, 5))
    print("importing, once a process: " + ", ".join(f"{name} {spent:.0f} ms" for name, spent in imports.items()) + "\n")
    print(f"{'CPU ms':16} {'nodes':>9} {'Python':>9} {'matrices':>9} {'reading':>9} {'order':>9}")
    rows = []
    shapes = {**SHAPES, "graph-layers": layers, "graph-skipping": skipping_layers}
    for kind, make in shapes.items():
        for nodes in map(int, options.nodes.split(",")):
            row = measure(kind, make, nodes, options.repeat)
            rows.append(row)
            times = f"{row.python:9.1f} {row.matrices:9.1f} {row.reading:9.1f} {row.order:9.1f}"
            print(f"{kind:16} {row.nodes:9} {times}{'' if row.has_order else ' (no order)'}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"imports": imports, "rows": [asdict(row) for row in rows]}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
