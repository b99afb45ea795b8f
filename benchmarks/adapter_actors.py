"""Calls of actors beside plain tasks, and beside actors of Dask.

    .venv-adapters/bin/python benchmarks/adapter_actors.py [--calls 2000] [--rounds 5]

Rules:
- One process per engine and round, in turns; each of Scaler and of Dask has one worker with two slots, or one process
  with one thread.
- A call adds a number to a counter. "one at a time": with its result each; "at once": all are submitted, and then all
  results are awaited. Figures are microseconds per call, the median of the rounds; plain tasks run in the same process.
- "10 MB": an actor keeps so many bytes. "change" is a call that changes one of them, "push" and "pull" are calls with
  all of them as the argument or as the result, one at a time.
- The last column is how many times as long Dask takes, by the medians.
- Run it with an interpreter that has `distributed`, such as `.venv-adapters/bin/python`, to compare with Dask.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List

ONE_AT_A_TIME = 100
TURNS = 7  # of actors and tasks, in one process
STATE_BYTES = 10_000_000
STATE_CALLS = 10  # of each kind in a turn, with a state of so many bytes


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int) -> int:
        self.value += amount
        return self.value


class Store:
    def __init__(self) -> None:
        self.content = bytearray(STATE_BYTES)

    def change(self, place: int) -> int:
        self.content[place] ^= 1
        return place

    def push(self, content: bytes) -> int:
        self.content = bytearray(content)
        return len(content)

    def pull(self, begin: int) -> bytes:
        return bytes(self.content)


def add(amount: int) -> int:
    return amount


def one_at_a_time(call: Callable[[int], Any]) -> float:
    """Microseconds per call."""
    begin = time.perf_counter()
    for _ in range(ONE_AT_A_TIME):
        call(1).result()
    return (time.perf_counter() - begin) / ONE_AT_A_TIME * 1e6


def at_once(call: Callable[[int], Any], calls: int) -> float:
    """The same."""
    begin = time.perf_counter()
    for future in [call(1) for _ in range(calls)]:
        future.result()
    return (time.perf_counter() - begin) / calls * 1e6


def with_large_state(store: Any) -> Dict[str, float]:
    """The same, by kind of call."""
    calls: Dict[str, Callable[[int], Any]] = {
        "change": store.change,
        "push": lambda number: store.push(bytes([number]) * STATE_BYTES),
        "pull": store.pull,
    }
    figures: Dict[str, List[float]] = {}
    for turn in range(1 + TURNS):
        for name, call in calls.items():
            begin = time.perf_counter()
            for number in range(STATE_CALLS):
                call(number).result()
            if turn:  # the first one is to get warm
                figures.setdefault(name, []).append((time.perf_counter() - begin) / STATE_CALLS * 1e6)
    return {name: statistics.median(each) for name, each in figures.items()}


def with_scaler(calls: int) -> Dict[str, float]:
    from scaler import Client, SchedulerClusterCombo

    with SchedulerClusterCombo(n_workers=2, logging_level="ERROR") as cluster, Client(cluster.get_address()) as client:
        counter: Any = client.actor(Counter)
        counter.created.result()
        for call in (counter.add, lambda amount: client.submit(add, amount)):
            at_once(call, calls)  # so that both are known and measured
        figures: Dict[str, List[float]] = {}
        for _ in range(TURNS):
            for name, call in (("actor", counter.add), ("tasks", lambda amount: client.submit(add, amount))):
                figures.setdefault(f"Scaler, {name}, one at a time", []).append(one_at_a_time(call))
                figures.setdefault(f"Scaler, {name}, at once", []).append(at_once(call, calls))
        counter.close()
        large = {f"Scaler, 10 MB, {name}": each for name, each in with_large_state(client.actor(Store)).items()}
        return {**{name: statistics.median(each) for name, each in figures.items()}, **large}


def with_dask(calls: int) -> Dict[str, float]:
    from distributed import Client

    with Client(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as client:
        counter: Any = client.submit(Counter, actor=True).result()
        at_once(counter.add, calls)
        alone = [one_at_a_time(counter.add) for _ in range(TURNS)]
        together = [at_once(counter.add, calls) for _ in range(TURNS)]
        store: Any = client.submit(Store, actor=True).result()
        return {
            **{f"Dask, 10 MB, {name}": each for name, each in with_large_state(store).items()},
            "Dask, actor, one at a time": statistics.median(alone),
            "Dask, actor, at once": statistics.median(together),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", choices=["scaler", "dask"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        print(json.dumps((with_scaler if options.engine == "scaler" else with_dask)(options.calls)))
        return
    engines = ["scaler", *(["dask"] if importlib.util.find_spec("distributed") else [])]
    figures: Dict[str, List[float]] = {}
    for _ in range(options.rounds):
        for engine in engines:
            command = [sys.executable, __file__, "--engine", engine, "--calls", str(options.calls)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            for name, microseconds in json.loads(output.splitlines()[-1]).items():
                figures.setdefault(name, []).append(microseconds)
    for name, each in figures.items():
        spread = f"{min(each):.1f} to {max(each):.1f}"
        theirs = figures.get(name.replace("Scaler", "Dask")) if name.startswith("Scaler") else None
        ratio = (
            f", Dask takes {statistics.median(theirs) / statistics.median(each):.2f} times as long" if theirs else ""
        )
        print(f"{name:32} {statistics.median(each):9.1f} us, in {len(each)} rounds {spread}{ratio}")


if __name__ == "__main__":
    main()
