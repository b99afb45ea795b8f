"""Compare the performance of two source trees: `python benchmarks/compare_trees.py OLD NEW`.

Both trees need `make venv`. Each round runs this tree's `measure.py` with the interpreter of one tree and then of the
other, so that a change of load affects both alike. Prints a table, writes every run to
benchmarks/results/<timestamp>_trees.json.

A machine with other work on it is noisy: trust the ratio of the best runs and of CPU times more than that of medians.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import report
from plan import Measurement
from runner import FOLDER, Interpreters, Series, run_once

ENGINE = "scaler"
LARGE_BYTES = 50_000_000

Row = tuple[Measurement, tuple[str, ...]]
"""What is measured, and which of its figures are compared; less is better for all of them."""

ROWS: dict[str, Row] = {
    "round-trip": (
        Measurement("round-trip", ENGINE, 2, 2_000),
        ("p50_microseconds", "cpu_microseconds_per_call"),
    ),
    "submit": (
        Measurement("submit", ENGINE, 2, 100_000),
        ("microseconds_per_task", "client_cpu_microseconds_per_task", "cpu_microseconds_per_task"),
    ),
    "map": (Measurement("map", ENGINE, 2, 100_000), ("microseconds_per_task", "cpu_microseconds_per_task")),
    "argument": (Measurement("argument", ENGINE, 2, LARGE_BYTES), ("median_seconds",)),
    "result": (Measurement("result", ENGINE, 2, LARGE_BYTES), ("median_seconds",)),
    "array": (Measurement("array", ENGINE, 2, LARGE_BYTES), ("median_seconds",)),
    "graph-tree": (Measurement("graph-tree", ENGINE, 2, 10_000), ("microseconds_per_node",)),
    "graph-chain": (Measurement("graph-chain", ENGINE, 2, 1_000), ("microseconds_per_node",)),
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exits with a message when it is invalid."""
    parser = argparse.ArgumentParser(
        description="Compare the performance of two source trees.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("old", type=Path, help="folder of the tree to compare with")
    parser.add_argument("new", type=Path, help="folder of the other tree")
    parser.add_argument("--only", default=",".join(ROWS), help="comma-separated measurements")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each measurement in each tree")
    options = parser.parse_args(arguments)
    options.only = [name.strip() for name in options.only.split(",") if name.strip()]
    for name in options.only:
        if name not in ROWS:
            parser.error(f"unknown measurement {name!r}; there are {', '.join(ROWS)}")
    for tree in (options.old, options.new):
        if not _python(tree).exists():
            parser.error(f"no interpreter at {_python(tree)}: run `make venv` there")
    if options.rounds < 1:
        parser.error(f"--rounds must be >= 1, got {options.rounds}")
    return options


def compare(trees: dict[str, Path], names: Sequence[str], rounds: int) -> dict[str, dict[str, Series]]:
    """Run the named measurements in both trees in turn; returns their runs by name and tree."""
    series = {name: {tree: Series(ROWS[name][0]) for tree in trees} for name in names}
    for number in range(rounds):
        for name in names:
            for tree, folder in trees.items():
                python = str(_python(folder))
                scheduler = {"SCALER_SCHEDULER": f"{python} -m scaler_appliance"}
                run_once(series[name][tree], Interpreters(default=python, environment=scheduler))
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
    return series


def table(series: dict[str, dict[str, Series]]) -> str:
    """The figures of both trees, side by side."""
    lines = [f"{'':46}{'old':>10}{'new':>10}{'new/old':>9}   best: {'old':>8}{'new':>10}{'new/old':>9}"]
    for name, by_tree in series.items():
        for figure in ROWS[name][1]:
            old, new = ([float(run[figure]) for run in by_tree[tree].runs] for tree in ("old", "new"))
            if not old or not new:
                errors = [error for each in by_tree.values() for error in each.errors]
                lines.append(f"{name}: failed: {errors[-1].splitlines()[-1] if errors else 'no figures'}")
                continue
            medians, bests = (statistics.median(old), statistics.median(new)), (min(old), min(new))
            cells = [f"{_shown(before)}{_shown(after)}{after / before:9.2f}" for before, after in (medians, bests)]
            lines.append(f"{name + ', ' + figure.replace('_', ' '):46}{cells[0]}      {cells[1]}")
    return "\n".join(lines)


def _shown(value: float) -> str:
    return f"{value:10.4f}" if value < 1 else f"{value:10.2f}"


def _python(tree: Path) -> Path:
    return tree.resolve() / ".venv/bin/python"


def _revision(tree: Path) -> str:
    found = subprocess.run(["git", "-C", str(tree), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def main() -> None:
    """Program entry."""
    options = parse(sys.argv[1:])
    trees = {"old": options.old, "new": options.new}
    facts: dict[str, Any] = {**report.machine(), "revisions": {name: _revision(tree) for name, tree in trees.items()}}
    series = compare(trees, options.only, options.rounds)
    stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    results = FOLDER / "results" / f"{stamp}_trees.json"
    results.parent.mkdir(exist_ok=True)
    runs = {
        name: {tree: {"runs": each.runs, "errors": each.errors} for tree, each in by_tree.items()}
        for name, by_tree in series.items()
    }
    results.write_text(json.dumps({**facts, "measurements": runs}, indent=1))
    print(table(series))
    print(f"every run: {results}")


if __name__ == "__main__":
    main()
