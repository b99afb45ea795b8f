"""ScalerExecutor beside ProcessPoolExecutor, in turns, and streams beside lists. A command line of its own.

    .venv/bin/python benchmarks/adapter_executor.py [--rounds 5] [--workers 2] [--items 10000000]   ──▶  JSON

Rules:
- Both executors have the same number of warm processes. A round is every case on both, so that what else the machine
  does meets both. A figure is the median of the rounds; `ratios` divides ProcessPoolExecutor's by ScalerExecutor's:
  above 1, Scaler is faster.
- `cpu ratios` are of the processor time of this process and all below it, which depends less on other load.
- The maps of a client are compared with its `map` of a list, in the same rounds.
- Memory is what client and scheduler have grown by while items came from a generator, at most, after a few items. It
  is measured first: later, the process has room that it does not give back.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

import numpy
import psutil

import scaler

NO_OPS = 20_000
SUBMITTED = 3_000
SLEEPS = 400
ARRAYS = 60
LOOKS = 100  # at the memory
BUFFER_ITEMS = 100_000


def nothing(number: int) -> int:
    return number


def one_millisecond(number: int) -> int:
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass
    return number


def doubled(array: Any) -> Any:
    return array * 2


def submitted_one_by_one(executor: Executor) -> int:
    for future in [executor.submit(nothing, number) for number in range(SUBMITTED)]:
        future.result()
    return SUBMITTED


def no_ops(executor: Executor) -> int:
    return sum(1 for _ in executor.map(nothing, range(NO_OPS // 4)))


def no_ops_in_chunks(executor: Executor) -> int:
    return sum(1 for _ in executor.map(nothing, range(NO_OPS), chunksize=100))


def calls_of_a_millisecond(executor: Executor) -> int:
    return sum(1 for _ in executor.map(one_millisecond, range(SLEEPS)))


def arrays_of_a_megabyte(executor: Executor) -> int:
    array = numpy.ones(1 << 17)
    return sum(1 for _ in executor.map(doubled, [array] * ARRAYS))


CASES: Dict[str, Callable[[Executor], int]] = {
    "submit, no-ops": submitted_one_by_one,
    "map, no-ops": no_ops,
    "map, no-ops, chunksize=100": no_ops_in_chunks,
    "map, calls of 1 ms": calls_of_a_millisecond,
    "map, arrays of 1 MiB there and back": arrays_of_a_megabyte,
}


def maps(client: scaler.Client) -> Dict[str, Callable[[], int]]:
    """Each runs 300 000 no-ops; returns how many."""
    count = 300_000
    return {
        "client.map, a list": lambda: len(client.map(nothing, range(count))),
        "client.map, buffersize=100_000": lambda: sum(
            1 for _ in client.map(nothing, iter(range(count)), buffersize=BUFFER_ITEMS)
        ),
        "client.map, buffersize=1000": lambda: sum(1 for _ in client.map(nothing, iter(range(count)), buffersize=1000)),
        "client.imap_unordered": lambda: sum(1 for _ in client.imap_unordered(nothing, iter(range(count)))),
    }


class Cost(NamedTuple):
    """What an item takes, in seconds."""

    time: float
    cpu_time: float


def cost_of(run: Callable[[], int]) -> Cost:
    """Of each item; `run` returns how many there are."""
    begin, cpu_begin = time.perf_counter(), cpu_seconds_so_far()
    count = run()
    return Cost((time.perf_counter() - begin) / count, (cpu_seconds_so_far() - cpu_begin) / count)


def cpu_seconds_so_far() -> float:
    """Of this process and those below it."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(float(each.user + each.system) for each in times)


def medians(costs: List[Cost]) -> Cost:
    return Cost(*(statistics.median(column) for column in zip(*costs)))


def compared(rounds: int, workers: int) -> Dict[str, Dict[str, Cost]]:
    """By engine and case."""
    figures: Dict[str, Dict[str, List[Cost]]] = {}
    with scaler.ScalerExecutor(workers) as own, ProcessPoolExecutor(workers) as pool:
        for number in range(rounds + 1):  # the first one warms up
            for case, run in CASES.items():
                for name, executor in (("ScalerExecutor", own), ("ProcessPoolExecutor", pool)):
                    figure = cost_of(lambda run=run, executor=executor: run(executor))  # type: ignore[misc]  # once
                    if number:
                        figures.setdefault(name, {}).setdefault(case, []).append(figure)
    with scaler.SchedulerClusterCombo(workers, logging_level="WARNING") as combo:
        with scaler.Client(combo.get_address()) as client:
            for number in range(rounds + 1):
                for case, run_map in maps(client).items():
                    figure = cost_of(run_map)
                    if number:
                        figures.setdefault("Client", {}).setdefault(case, []).append(figure)
    return {name: {case: medians(runs) for case, runs in cases.items()} for name, cases in figures.items()}


def growth(items: int, workers: int) -> Dict[str, float]:
    """How much memory a map of so many items takes, in MiB, and its microseconds per item."""
    with scaler.SchedulerClusterCombo(workers, logging_level="WARNING") as combo:
        with scaler.Client(combo.get_address()) as client:
            processes = {"client": psutil.Process(), "scheduler": psutil.Process(combo.scheduler.pid)}
            for _ in client.map(nothing, iter(range(10_000)), buffersize=BUFFER_ITEMS):
                pass
            before = {name: process.memory_info().rss for name, process in processes.items()}
            most = dict(before)
            begin, cpu_begin = time.perf_counter(), cpu_seconds_so_far()
            stream: Iterator[int] = client.map(nothing, iter(range(items)), buffersize=BUFFER_ITEMS)
            for number in stream:
                if number % (items // LOOKS) == 0:
                    for name, process in processes.items():
                        most[name] = max(most[name], process.memory_info().rss)
            seconds, cpu_seconds = time.perf_counter() - begin, cpu_seconds_so_far() - cpu_begin
            cpu_begin = cpu_seconds_so_far()
            client.map(nothing, range(items // 10))
            of_list = (cpu_seconds_so_far() - cpu_begin) / (items // 10)
    grown = {f"{name} MiB": round((most[name] - before[name]) / 2**20, 1) for name in processes}
    each = {"microseconds": seconds / items, "cpu microseconds": cpu_seconds / items, "of a list": of_list}
    return {"items": items, **{name: round(figure * 1e6, 2) for name, figure in each.items()}, **grown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--items", type=int, default=10_000_000)
    options = parser.parse_args()
    memory = growth(options.items, options.workers)
    print(json.dumps(memory), file=sys.stderr)
    figures = compared(options.rounds, options.workers)
    own, pool, client = figures["ScalerExecutor"], figures["ProcessPoolExecutor"], figures["Client"]
    ratios: Dict[str, Dict[str, float]] = {}
    for name, kind in (("ratios", 0), ("cpu ratios", 1)):
        ratios[name] = {case: round(pool[case][kind] / own[case][kind], 2) for case in own}
        ratios[name].update(
            {case: round(cost[kind] / client["client.map, a list"][kind], 2) for case, cost in client.items()}
        )
    scaled = {
        engine: {case: round(cost.time * 1e6, 2) for case, cost in cases.items()} for engine, cases in figures.items()
    }
    print(json.dumps({"microseconds": scaled, **ratios, "memory": memory}, indent=2))


if __name__ == "__main__":
    main()
