"""Dask's collections on Scaler and on `distributed`, in turns. A command line of its own.

    .venv-adapters/bin/python benchmarks/adapter_dask.py [--rounds 3] [--workers 2] [--only array]   ──▶  JSON

Rules:
- Both engines have the same number of worker processes of one thread each, are warm, and compute the same collection.
- A round is one computation of each engine, so that what else the machine does meets both; a figure is the least of the
  rounds, and `ratio` is that of distributed divided by that of Scaler: above 1, Scaler is faster.
- `cpu_ratio` is the same of processor time, of this process and all below it, by medians: it depends less on what
  else the machine does.
- The time is that of `compute`: optimising the graph, which Dask does for both, is part of it.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from typing import Any, Callable

import dask
import dask.array
import dask.bag
import dask.dataframe
import numpy
import pandas
import psutil

import scaler

Case = Callable[[], Any]
"""Makes a collection."""


def array_graph(blocks: int = 224) -> Any:
    """About 100 000 tasks on blocks of one element: what the engine costs for each."""
    numbers = dask.array.ones((blocks, blocks), chunks=1)
    return (numbers + numbers.T.rechunk((1, 1))).sum()


def array_sums(blocks: int = 30) -> Any:
    """Real work: random blocks of 8 MB, and sums of them."""
    return dask.array.random.random((blocks * 1000, 1000), chunks=(1000, 1000)).std(axis=0)


def frame_groupby(partitions: int = 40) -> Any:
    """Means by key of a frame of 4 million rows that is already here, as after reading a file."""
    count = partitions * 100_000
    dice = numpy.random.default_rng(0)
    rows = pandas.DataFrame({"key": dice.integers(0, 1000, count), "value": dice.random(count)})
    return dask.dataframe.from_pandas(rows, npartitions=partitions).groupby("key").value.agg(["mean", "sum", "std"])


def frame_made_by_tasks() -> Any:
    """Means by key of a frame that the tasks themselves make, a day each."""
    frame = dask.datasets.timeseries(end="2000-11-01", freq="10s", partition_freq="1d")
    return frame.groupby("name").x.mean()


def bag_counts() -> Any:
    """Many small partitions of a bag."""
    return dask.bag.range(100_000, npartitions=1000).map(lambda number: number % 100).frequencies()


CASES: dict[str, Case] = {
    "array of small tasks": array_graph,
    "array of random blocks": array_sums,
    "groupby of a frame from the client": frame_groupby,
    "groupby of a frame made by tasks": frame_made_by_tasks,
    "bag of 1000 partitions": bag_counts,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="a part of the names of cases")
    parser.add_argument("--blocks", type=int, default=224, help="of the array of small tasks, in each direction")
    options = parser.parse_args()
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=options.workers, threads_per_worker=1, dashboard_address=None, silence_logs=40
    )
    cases = []
    with (
        scaler.SchedulerClusterCombo(n_workers=options.workers, logging_level="WARNING") as combo,
        scaler.Client(address=combo.get_address()) as client,
        cluster,
        distributed.Client(cluster, set_as_default=False) as other,
    ):
        engines = {"scaler": client.dask_get, "distributed": other}
        for name, chosen in CASES.items():
            if options.only not in name:
                continue
            make = functools.partial(array_graph, options.blocks) if chosen is array_graph else chosen
            cases.append(measure(name, make, engines, options.rounds))
            print(json.dumps(cases[-1]), file=sys.stderr)
    about = {"dask": dask.__version__, "distributed": distributed.__version__, "scaler": scaler.__version__}
    machine = {"python": sys.version.split()[0], "cpus": os.cpu_count(), "workers": options.workers}
    print(json.dumps({**about, **machine, "rounds": options.rounds, "cases": cases}, indent=1))


def measure(name: str, make: Case, engines: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The least seconds of each engine, the median of its processor time, and the ratios of both."""
    seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    cpu_seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine, scheduler in engines.items():
            collection = make()
            started, cpu_started = time.perf_counter(), cpu_seconds_so_far()
            collection.compute(scheduler=scheduler)
            seconds[engine].append(time.perf_counter() - started)
            cpu_seconds[engine].append(cpu_seconds_so_far() - cpu_started)
    least = {f"{engine}_seconds": round(min(each), 3) for engine, each in seconds.items()}
    ratio = round(min(seconds["distributed"]) / min(seconds["scaler"]), 2)
    median = {f"{engine}_cpu_seconds": round(statistics.median(each), 3) for engine, each in cpu_seconds.items()}
    cpu_ratio = round(median["distributed_cpu_seconds"] / median["scaler_cpu_seconds"], 2)
    return {"case": name, "tasks": tasks_of(make()), **least, "ratio": ratio, **median, "cpu_ratio": cpu_ratio}


def cpu_seconds_so_far() -> float:
    """Of this process and those below it."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(float(each.user + each.system) for each in times)


class Counted(Exception):
    """Ends a computation whose tasks have been counted."""


def tasks_of(collection: Any) -> int:
    """The number of tasks that remain after Dask has optimised the graph."""

    def count(graph: Any, *_: Any, **__: Any) -> None:
        raise Counted(len(graph.__dask_graph__()))

    try:
        collection.compute(scheduler=count)
    except Counted as counted:
        return int(counted.args[0])
    raise AssertionError("Dask has not called its scheduler")


if __name__ == "__main__":
    main()
