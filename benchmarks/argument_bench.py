"""What a task with a large argument takes, if a worker fetches it from the client, and if the scheduler carries it.

    python benchmarks/argument_bench.py                    seconds by size, by turns
    python benchmarks/argument_bench.py --reach blocked    the same for a client that no worker reaches

    round, for each way and size: a client in a network namespace submits tasks to one worker in another, one by one

Rules:
- Both ways are measured by turns, with a client of its own each: a ratio is of one round, and a figure a median.
- The tasks map what they get, so their own work takes no time from the transfer. The client's main thread waits, or
  counts, so that it holds the interpreter.
- Without the right to make namespaces, nothing is measured, and one line says why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from host_scenes import Block, measure_block
from hosts_bench import ADDRESS, ENVIRONMENT, HOSTS, MEGABYTE, NETWORK, PREFIX, inside, ip, network, program
from hosts_bench import reason_not_to_run as why_not

from scaler import Client

WAYS = {"direct": "tcp://*:0", "relayed": "off"}
SIZES = (250_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 20_000_000, 100_000_000)
SECONDS_OF_A_SIZE = 1.0
MOST_TASKS = 30


def main() -> int:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure tasks with large arguments, between hosts in network namespaces.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of the argument, in bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reach", choices=("open", "blocked"), default="open", help="whether workers reach the client")
    parser.add_argument("--busy", action="store_true", help="the client's main thread computes meanwhile")
    parser.add_argument("--inside", choices=WAYS, help=argparse.SUPPRESS)  # this program runs as the client's
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(act(options.inside, options.sizes, options.busy)))
        return 0
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return 0
    print(table(measure(options.sizes, options.rounds, options.reach == "blocked", options.busy)))
    return 0


def act(way: str, sizes: Sequence[int], is_busy: bool) -> dict[str, list[float]]:
    """As the client's program: the first time of each size, and the median of the others, in seconds."""
    found: dict[str, list[float]] = {}
    with Client(ADDRESS, data_address=WAYS[way], direct_bytes=1, modules=["host_scenes"]) as client:
        while not client.info().slots:
            client.submit(measure_block, Block(b"0")).result()
        for size in sizes:
            times: list[float] = []
            while len(times) < 3 or (sum(times[1:]) < SECONDS_OF_A_SIZE and len(times) < MOST_TASKS):
                content = Block(os.urandom(1) * size)
                began = time.perf_counter()
                future = client.submit(measure_block, content)
                while is_busy and not future.done():
                    sum(range(1000))
                assert future.result() == (size, content.content[0])
                times.append(time.perf_counter() - began)
            found[str(size)] = [times[0], statistics.median(times[1:])]
    return found


def measure(sizes: Sequence[int], rounds: int, is_blocked: bool, is_busy: bool) -> dict[str, dict[str, list[float]]]:
    """By way and size: the medians over all rounds."""
    runs: dict[str, list[dict[str, list[float]]]] = {way: [] for way in WAYS}
    with contextlib.ExitStack() as stack:
        stack.enter_context(network(HOSTS[:3]))
        if is_blocked:
            there = f"{NETWORK}.{HOSTS.index('worker-1') + 1}"
            ip("-n", PREFIX + "client", "route", "add", "blackhole", f"{there}/32")
        start = [sys.executable, "-m", "scaler_appliance", ADDRESS, "--insecure", "--no-announce", "-lp", "/dev/null"]
        stack.enter_context(program("scheduler", start))
        worker = [sys.executable, "-m", "scaler.worker", ADDRESS, "--insecure", "-n", "1", "-lp", "/dev/null"]
        stack.enter_context(program("worker-1", worker))
        for _ in range(rounds):
            for way in WAYS:
                this = [sys.executable, __file__, "--inside", way, "--sizes", *map(str, sizes)]
                command = inside("client", [*this, *(["--busy"] if is_busy else [])])
                done = subprocess.run(command, check=True, timeout=600, env=ENVIRONMENT, capture_output=True)
                runs[way].append(json.loads(done.stdout))
    return {
        way: {
            str(size): [statistics.median(run[str(size)][part] for run in found) for part in (0, 1)] for size in sizes
        }
        for way, found in runs.items()
    }


def table(figures: dict[str, dict[str, list[float]]]) -> str:
    """The figures as a table in Markdown."""
    lines = [
        "| bytes | direct, ms | relayed, ms | direct / relayed | direct, MB/s | first direct, ms | first relayed, ms |",
        "| --: | --: | --: | --: | --: | --: | --: |",
    ]
    for size, (first, direct) in figures["direct"].items():
        first_relayed, relayed = figures["relayed"][size]
        rate = int(size) / MEGABYTE / direct
        cells = [size, f"{direct * 1e3:.1f}", f"{relayed * 1e3:.1f}", f"{direct / relayed:.2f}", f"{rate:.0f}"]
        lines.append(f"| {' | '.join([*cells, f'{first * 1e3:.0f}', f'{first_relayed * 1e3:.0f}'])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
