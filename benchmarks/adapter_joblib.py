"""joblib and scikit-learn on Scaler, beside joblib's own engines, in turns.

    .venv-adapters/bin/python benchmarks/adapter_joblib.py --rounds 5

    each workload: loky, threading, scaler, loky, threading, scaler, …: all warm, with the same number of jobs

Rules:
- The figures are medians over rounds of the ratio of loky's time to Scaler's in the same round: other load on the
  machine affects both. Above 1, Scaler is faster.
- The CPU time is that of this process and all below it. It depends less on what else the machine does.
- Engines compute the same: the results of a workload are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib import metadata
from typing import Any, Callable

import numpy
import psutil
from joblib import Parallel, delayed, parallel_config
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

import scaler.joblib

ENGINES = ("loky", "threading", "scaler")
NEW_PROGRAM = "grid search, new program"


def main() -> None:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure joblib and scikit-learn on Scaler and on joblib's own engines.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each engine and workload")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--rows", type=int, default=100_000, help="of the data that the models are fitted to")
    parser.add_argument("--workloads", nargs="*", default=[], help="by default all")
    parser.add_argument("--once", metavar="ENGINE", help="only search the grid on large data, once")
    options = parser.parse_args()
    if options.once:
        with parallel_config(options.once, n_jobs=options.jobs):
            print(make_workloads(options.rows)["grid search, large data"]())
        return
    threadpool_limits(1)  # in this process: threads that wait for others in a loop would disturb all engines
    workloads = make_workloads(options.rows)
    chosen = options.workloads or [NEW_PROGRAM, *workloads]
    with scaler.SchedulerClusterCombo(n_workers=options.jobs, logging_level="WARNING") as combo:
        os.environ["SCALER_ADDRESS"] = combo.get_address()
        figures = {}
        for name in chosen:
            figures[name] = measured(workloads.get(name), options)
            print(json.dumps({name: figures[name]}), file=sys.stderr)
    versions = {name: metadata.version(name) for name in ("joblib", "scikit-learn", "numpy")}
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), **versions}
    print(json.dumps({"machine": machine, "jobs": options.jobs, "rows": options.rows, "figures": figures}, indent=1))


def digits_of(number: int) -> int:
    """Takes some tens of microseconds."""
    return len(str(number))


def make_workloads(rows: int) -> dict[str, Callable[[], Any]]:
    """By name; each returns what can be compared."""
    features, labels = make_classification(rows, 40, n_informative=20, random_state=0)
    few_features, few_labels = features[:500], labels[:500]
    large = numpy.ones(25_000_000)

    def grid(features: Any, labels: Any, values: int) -> Any:
        search = GridSearchCV(LogisticRegression(max_iter=30, tol=1e-2), {"C": numpy.logspace(-3, 1, values)}, cv=4)
        return search.fit(features, labels).best_params_["C"]

    return {
        "grid search, large data": lambda: grid(features, labels, 6),
        "grid search, small data": lambda: grid(few_features, few_labels, 60),
        "random forest": lambda: (
            RandomForestClassifier(40, max_depth=8, max_samples=0.1, random_state=0)
            .fit(features, labels)
            .predict(few_features)
            .sum()
        ),
        "200 000 short calls": lambda: sum(Parallel()(delayed(digits_of)(2**2000) for _ in range(200_000))),
        "200 calls with 200 MB": lambda: sum(Parallel()(delayed(numpy.max)(large) for _ in range(200))),
        "one call at a time, 20 times": lambda: [Parallel()(delayed(abs)(-1) for _ in range(2)) for _ in range(20)],
    }


def search_in_new_program(engine: str, options: argparse.Namespace) -> Any:
    """A script that searches a grid: loky starts its processes, and the cluster is there already."""
    command = [sys.executable, __file__, "--once", engine, "--jobs", str(options.jobs), "--rows", str(options.rows)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def measured(workload: Callable[[], Any] | None, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each engine, and by how much Scaler is faster.

    Parameters:
        workload: None: `search_in_new_program`.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ENGINES}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in ENGINES}
    results: list[Any] = []
    for turn in range(options.rounds + 1):  # the first one warms up
        for name in ENGINES:
            with parallel_config(name, n_jobs=options.jobs):
                begin, cpu_begin = time.perf_counter(), cpu_seconds_so_far()
                results.append(search_in_new_program(name, options) if workload is None else workload())
                if turn:
                    seconds[name].append(time.perf_counter() - begin)
                    cpu_seconds[name].append(cpu_seconds_so_far() - cpu_begin)
    assert all(result == results[0] for result in results), "the engines have computed different results"
    figures: dict[str, Any] = {f"{name}_seconds": statistics.median(each) for name, each in seconds.items()}
    for kind, measurements in (("time", seconds), ("cpu_time", cpu_seconds)):
        for name in ("loky", "threading"):
            ratios = [other / ours for other, ours in zip(measurements[name], measurements["scaler"])]
            figures[f"{kind}_of_{name}"] = round(statistics.median(ratios), 3)
            figures[f"{kind}s_of_{name}"] = [round(ratio, 2) for ratio in ratios]
    return figures


def cpu_seconds_so_far() -> float:
    """Of this process and those below it that are running."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(float(each.user + each.system) for each in times)


if __name__ == "__main__":
    main()
