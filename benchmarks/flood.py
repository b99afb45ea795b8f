"""An honest client beside flooding peers: its latency and its throughput, with and without them. JSON out.

    python benchmarks/flood.py                   each kind of flood, 8 flooders, all programs on one processor
    python benchmarks/flood.py --apart downloads the flooders on other processors than all else
    python benchmarks/flood.py mutated --frames 1000000
    python benchmarks/flood.py mutated --frames 250000 --minutes 30 --seed 1000      a part of it, for example of four

Everything runs on one processor, so that flooders take time from the scheduler in every way that they can. The
scheduler must log no error of its own, and all results must be right. `throughput_ratio` is what the client has left of
its throughput; on a machine that others use too, look at `processor_ratio`, the same by the processor's time that all
programs of the benchmark have used for each task. What flooders use is theirs, not the scheduler's: it is left out of
`ratio_without_flooders`.

Mutated messages are slowed down by the scheduler. Several runs at once, each with another seed, send more in total.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import operator
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Dict, List, Set

from floods import FLOODS, flood

from scaler import Client

BATCH = 2000
SAMPLES_AT_ONCE = 200
DEADLINE_SECONDS = 60.0
FLOODED_LONGER = 10  # than without a flood, if frames are counted
OWN_ERRORS = ("Traceback", "internal error", "a bug of the scheduler")


PROGRAMS = {"flood.py": "client", "multiprocessing": "flooders", "scaler_appliance": "scheduler"}
"""By what is in their command lines; all others are of the worker."""


class Samples:
    """What an honest client has measured, in one or more periods."""

    def __init__(self) -> None:
        self.latencies: List[float] = []
        self.rates: List[float] = []
        self.tasks = 0
        self.processor_seconds: Dict[str, float] = {}  # while those tasks ran, by program

    def measure(self, client: Client, seconds: float) -> None:
        """Latency of one task at a time, then throughput of many."""
        ends = time.perf_counter() + seconds / 2
        least = len(self.latencies) + SAMPLES_AT_ONCE
        while time.perf_counter() < ends or len(self.latencies) < least:
            began = time.perf_counter()
            if client.submit(abs, -1).result(DEADLINE_SECONDS) != 1:
                raise AssertionError("a wrong result")
            self.latencies.append(time.perf_counter() - began)
        tasks = 0
        before = processor_seconds()
        began = time.perf_counter()
        while time.perf_counter() < began + seconds / 2:
            futures = [client.submit(abs, -number) for number in range(BATCH)]
            if [future.result(DEADLINE_SECONDS) for future in futures] != list(range(BATCH)):
                raise AssertionError("wrong results")
            tasks += BATCH
        self.rates.append(tasks / (time.perf_counter() - began))
        self.tasks += tasks
        for name, seconds in processor_seconds().items():
            self.processor_seconds[name] = self.processor_seconds.get(name, 0.0) + seconds - before.get(name, 0.0)

    def figures(self) -> Dict[str, Any]:
        ordered = sorted(self.latencies)
        return {
            "median_milliseconds": round(statistics.median(ordered) * 1e3, 2),
            "p99_milliseconds": round(ordered[int(0.99 * len(ordered))] * 1e3, 2),
            "worst_milliseconds": round(ordered[-1] * 1e3, 2),
            "tasks_per_second": round(statistics.median(self.rates)),
            "processor_microseconds_per_task": {
                name: round(seconds / self.tasks * 1e6, 2) for name, seconds in self.processor_seconds.items()
            },
        }

    def processor_seconds_per_task(self, *without: str) -> float:
        """Of all programs except these."""
        return sum(seconds for name, seconds in self.processor_seconds.items() if name not in without) / self.tasks


def processor_seconds() -> Dict[str, float]:
    """What this process and its descendants have used so far."""
    parents: Dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    seconds: Dict[str, float] = {}
    for process in parents:
        ancestor = process
        while ancestor != os.getpid() and ancestor in parents:
            ancestor = parents[ancestor]
        if ancestor == os.getpid():
            with suppress(OSError):
                command = Path(f"/proc/{process}/cmdline").read_text()
                name = next((name for word, name in PROGRAMS.items() if word in command), "worker")
                threads = Path(f"/proc/{process}/task").iterdir()
                used = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
                seconds[name] = seconds.get(name, 0.0) + used
    return seconds


def run(
    kind: str, flooders: int, seconds: float, rounds: int, frames: int, seed: int, minutes: float, apart: Set[int]
) -> Dict[str, Any]:
    """One kind of flood, and the same client without it, by turns.

    Parameters:
        apart: the processors of the flooders; empty: that of the others.
    """
    ends = time.monotonic() + minutes * 60
    with tempfile.TemporaryDirectory() as folder:
        log, addresses = Path(folder, "log"), Path(folder, "address")
        program = [sys.executable, "-m", "scaler_appliance", "tcp://127.0.0.1:0"]
        if not FLOODS[kind].has_keys:
            program.append("--insecure")
        scheduler = subprocess.Popen([*program, "--address-file", str(addresses), "--no-announce", "-lp", str(log)])
        worker = None
        processes: List[SpawnProcess] = []
        load = os.getloadavg()[0]
        try:
            while not (addresses.exists() and addresses.read_text().count("\n") == 2):
                time.sleep(0.05)
            address, monitor_address = addresses.read_text().splitlines()
            worker = subprocess.Popen([sys.executable, "-m", "scaler.worker", address, "-n", "1"])
            context = multiprocessing.get_context("spawn")
            sent, is_on, has_begun = context.Value("q", 0), context.RawValue("i", 0), context.Semaphore(0)
            arguments = [
                ((address, monitor_address), kind, seed, sent, is_on, has_begun)
                for seed in range(seed, seed + flooders)
            ]
            processes = [context.Process(target=flood, args=each, daemon=True) for each in arguments]
            for flooder in processes:
                flooder.start()
                if apart and flooder.pid is not None:
                    os.sched_setaffinity(flooder.pid, apart)
            for _ in processes:  # what their imports take is no flood
                has_begun.acquire()
            without, beside = Samples(), Samples()
            with Client(address=address) as client:
                client.submit(abs, -1).result(DEADLINE_SECONDS)
                while len(beside.rates) < rounds or (sent.value < frames and time.monotonic() < ends):
                    without.measure(client, seconds)
                    is_on.value = len(beside.rates) + 1
                    for _ in processes:
                        has_begun.acquire()
                    beside.measure(client, seconds * (FLOODED_LONGER if frames else 1))
                    is_on.value = 0
                    if frames:
                        print(f"{sent.value} frames", file=sys.stderr, flush=True)
            lines = log.read_text().splitlines()
            errors = [line for line in lines if any(word in line for word in OWN_ERRORS)]
            return {
                "kind": kind,
                "flooders": flooders,
                "frames": sent.value,
                "rounds": len(beside.rates),
                "load": [round(load, 1), round(os.getloadavg()[0], 1)],
                "without": without.figures(),
                "beside": beside.figures(),
                "throughput_ratio": round(statistics.median(map(operator.truediv, beside.rates, without.rates)), 2),
                "processor_ratio": ratio(without, beside),
                "ratio_without_flooders": ratio(without, beside, "flooders"),
                "connections_of_client": sum(f"process {os.getpid()}) connected" in line for line in lines),
                "errors": errors,
                "is_alive": scheduler.poll() is None,
            }
        finally:
            for flooder in processes:
                flooder.terminate()
            for program_process in [*([worker] if worker else []), scheduler]:
                program_process.terminate()


def ratio(without: Samples, beside: Samples, *leave_out: str) -> float:
    """How much less the programs use for a task without the flood."""
    used, used_beside = (each.processor_seconds_per_task(*leave_out) for each in (without, beside))
    return round(used / used_beside, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(FLOODS)} (default: all)")
    parser.add_argument("--flooders", type=int, default=8, help="how many (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="with and without the flood (default: %(default)s)")
    parser.add_argument("--frames", type=int, default=0, help="go on until so many were sent")
    parser.add_argument("--minutes", type=float, default=60.0, help="then stop in any case (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first flooder (default: %(default)s)")
    parser.add_argument("--apart", action="store_true", help="flooders use the other processors, and none of theirs")
    options = parser.parse_args()
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {first})
    apart = set(others) if options.apart else set()
    for kind in options.kinds or FLOODS:
        figures = run(
            kind,
            options.flooders,
            options.seconds,
            options.rounds,
            options.frames,
            options.seed,
            options.minutes,
            apart,
        )
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
