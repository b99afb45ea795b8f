"""`make simulate SEEDS=100000 FIRST=0`: many seeds, on all cores; prints those that fail, and where to go on.

`python -m tests.simulation FIRST COUNT`, in the appliance's folder, is the same.
"""

from __future__ import annotations

import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import List, NamedTuple, Tuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from simulation.simulated_run import simulate

SEEDS_OF_A_PART = 500
REPORT_INTERVAL_SECONDS = 10
MOST_FAILURES = 20


class Part(NamedTuple):
    """What came of some seeds."""

    stop: int
    events: int
    outcomes: int
    failures: List[Tuple[int, str]]  # seed, traceback


def run_part(first: int, stop: int) -> Part:
    events = outcomes = 0
    failures = []
    for seed in range(first, stop):
        try:
            summary = simulate(seed)
            events += summary.events
            outcomes += summary.outcomes
        except Exception:
            failures.append((seed, traceback.format_exc(limit=-4)))
    return Part(stop, events, outcomes, failures)


def main(first: int = 0, count: int = 10_000) -> int:
    starts = range(first, first + count, SEEDS_OF_A_PART)
    stops = [min(first + count, start + SEEDS_OF_A_PART) for start in starts]
    failed = events = outcomes = 0
    reported_at = time.monotonic()
    with ProcessPoolExecutor() as pool:
        for part in pool.map(run_part, starts, stops):
            events += part.events
            outcomes += part.outcomes
            failed += len(part.failures)
            for seed, text in part.failures:
                print(f"seed {seed} failed; alone: make simulate FIRST={seed} SEEDS=1\n{text}", flush=True)
            if time.monotonic() - reported_at > REPORT_INTERVAL_SECONDS:
                reported_at = time.monotonic()
                print(f"seeds {first} to {part.stop - 1} are done; to go on from here: FIRST={part.stop}", flush=True)
            if failed >= MOST_FAILURES:
                pool.shutdown(cancel_futures=True)
                break
    print(f"{failed} of {count} seeds failed; {events} events, {outcomes} outcomes")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
