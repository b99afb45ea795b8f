"""Measure Scaler beside comparable systems: `python benchmarks/run_peers.py`.

Each peer is installed from the package index into a virtual environment of its own, at the first run; one
that cannot be installed is reported and left out. The workloads and the reports are those of run.py; peers
that need minutes for 100 000 tasks run fewer, and figures are compared per task.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import report
from engines import engine_class
from peers.environments import PEERS, InstallationError, Peer, python_of
from plan import FULL, LARGE_BYTES, QUICK, Group, Measurement, Sizes
from run import ROOT, finish
from runner import Interpreters, run_groups

_TIMEOUT_SECONDS = 240.0
_BENCHMARKS = ("submit", "map", "round-trip", "graph-tree", "argument", "result", "array", "footprint", "startup")
_QUICK_DIVISOR = 10


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Measure Scaler beside comparable systems, each installed in an environment of its own.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    names = ",".join(peer.engine for peer in PEERS)
    parser.add_argument("--peers", default=names, help="comma-separated peers")
    parser.add_argument("--only", default=",".join(_BENCHMARKS), help="comma-separated benchmarks")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tasks")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each measurement")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    return parser.parse_args(arguments)


def main() -> None:
    """Program entry."""
    options = parse(sys.argv[1:])
    wanted = options.peers.split(",")
    installed: list[tuple[Peer, str]] = []
    skipped = []
    for peer in PEERS:
        if peer.engine not in wanted:
            continue
        try:
            installed.append((peer, python_of(peer)))
        except InstallationError as error:
            skipped.append(f"{peer.engine} was left out, it could not be installed: {error}")
    sizes = QUICK if options.quick else FULL
    groups = [_group(name, [peer for peer, _ in installed], sizes, options.quick) for name in options.only.split(",")]
    interpreters = Interpreters(
        default=str(ROOT / ".venv/bin/python"),
        by_engine={peer.engine: python for peer, python in installed},
    )
    facts = report.machine()
    series = run_groups(groups, options.repeat, interpreters, lambda line: print(line, file=sys.stderr, flush=True))
    finish(facts, series, options.markdown, ["benchmarks/run_peers.py", *sys.argv[1:]], skipped)


def _group(benchmark: str, peers: Sequence[Peer], sizes: Sizes, quick: bool) -> Group:
    group = [Measurement(benchmark, "scaler", 10, _own_amount(benchmark, sizes))]
    for peer in peers:
        if benchmark == "graph-tree" and not engine_class(peer.engine).runs_graphs:
            continue
        amount = _amount(benchmark, peer, sizes, quick)
        group.append(Measurement(benchmark, peer.engine, 10, amount, timeout_seconds=_TIMEOUT_SECONDS))
    return group


def _own_amount(benchmark: str, sizes: Sizes) -> int:
    amounts = {
        "submit": sizes.tasks,
        "map": sizes.tasks,
        "round-trip": sizes.round_trips,
        "graph-tree": sizes.tree_nodes[0],
        "footprint": sizes.idle_seconds,
        "startup": 1,
    }
    return amounts.get(benchmark, LARGE_BYTES)


def _amount(benchmark: str, peer: Peer, sizes: Sizes, quick: bool) -> int:
    divisor = _QUICK_DIVISOR if quick else 1
    if benchmark == "submit" or (benchmark == "map" and not peer.maps_everything):
        return peer.tasks // divisor
    if benchmark == "round-trip":
        return max(100, peer.round_trips // divisor)
    return _own_amount(benchmark, sizes)


if __name__ == "__main__":
    main()
