"""One measurement in one fresh process: started by run.py, never by hand (though it can be).

A fresh process for each measurement means that no engine inherits another one's heap, threads or open
sockets, that an engine which hangs can be killed, and that engines in other virtual environments are
measured by the same code. The figures go to a file, since engines log to the standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from engines import engine_class, engine_names
from workloads import Figures

ENGINE_BENCHMARKS = (
    *("submit", "map", "round-trip", "graph-tree", "graph-fan", "graph-chain", "makespan"),
    *("argument", "result", "array", "footprint", "startup"),
)
SCHEDULER_BENCHMARKS = ("queued", "streamed", "memory")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the measurement that the options name."""
    if options.benchmark in SCHEDULER_BENCHMARKS:
        return _measure_scheduler(options)
    if options.benchmark == "startup":
        from footprint import measure_startup

        engine = engine_class(options.engine)()
        return {"version": engine.version(), "figures": measure_startup(options.engine, options.workers)}
    return _measure_engine(options)


def _measure_engine(options: argparse.Namespace) -> dict[str, Any]:
    import workloads

    engine = engine_class(options.engine)()
    workers = 1 if options.benchmark == "makespan" and options.style != "one host" else options.workers
    engine.start(workers)
    workloads.warm_up(engine, workers)
    figures: Figures
    if options.benchmark == "submit":
        figures = workloads.measure_submit(engine, options.amount)
    elif options.benchmark == "map":
        figures = workloads.measure_map(engine, options.amount, options.style)
    elif options.benchmark == "round-trip":
        figures = workloads.measure_round_trip(engine, options.amount)
    elif options.benchmark.startswith("graph-"):
        from graph_workloads import measure_graph

        figures = measure_graph(engine, options.benchmark, options.amount)
    elif options.benchmark == "makespan":
        from makespan import measure_makespan

        figures = measure_makespan(engine, options.workers, options.amount, options.style)
    elif options.benchmark == "argument":
        figures = workloads.measure_large_argument(engine, options.amount)
    elif options.benchmark == "result":
        figures = workloads.measure_large_result(engine, options.amount)
    elif options.benchmark == "array":
        figures = workloads.measure_large_array(engine, options.amount)
    else:
        from footprint import measure_footprint

        figures = measure_footprint(engine, options.workers, float(options.amount))
    version = engine.version()
    # written before stop(): an engine that hangs while stopping has still been measured
    _write(options.output, {"version": version, "figures": figures})
    started = time.perf_counter()
    engine.stop()
    figures["stop_seconds"] = time.perf_counter() - started
    return {"version": version, "figures": figures}


def _measure_scheduler(options: argparse.Namespace) -> dict[str, Any]:
    import zero_worker

    with zero_worker.SchedulerUnderTest([options.python, "-m", "scaler_appliance"]) as scheduler:
        if options.benchmark == "queued":
            figures = zero_worker.measure_queued(scheduler, options.amount, options.workers)
        elif options.benchmark == "streamed":
            figures = zero_worker.measure_streamed(scheduler, options.amount, options.workers)
        else:
            figures = zero_worker.measure_memory(scheduler, options.amount)
        return {"version": scheduler.version, "figures": figures}


def _write(path: Path, record: dict[str, Any]) -> None:
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(record))
    os.replace(temporary, path)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", required=True, choices=ENGINE_BENCHMARKS + SCHEDULER_BENCHMARKS)
    parser.add_argument("--engine", choices=engine_names(), default="scaler", help="default: scaler")
    parser.add_argument("--style", default="map", help="way of mapping, or of spreading (default: map)")
    parser.add_argument("--workers", type=int, default=10, help="default: 10")
    parser.add_argument("--amount", type=int, required=True, help="tasks, calls, bytes or idle seconds")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the scheduler measured alone")
    parser.add_argument("--output", type=Path, required=True, help="file for the figures")
    return parser.parse_args(arguments)


def main() -> None:
    """Program entry."""
    options = _parse(sys.argv[1:])
    _write(options.output, measure(options))


if __name__ == "__main__":
    main()
