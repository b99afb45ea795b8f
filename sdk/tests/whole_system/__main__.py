"""Runs many seeds, on all cores, and cuts those that fail to their shortest form.

    python -m whole_system FIRST COUNT                     seeds FIRST to FIRST + COUNT - 1
    python -m whole_system SEED 1 --off break,pause --trace     one of them, with less going on, told step by step

In sdk/tests; `make simulate` runs it, too.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import List

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[3] / "appliance/tests"))

from whole_system.seed_runs import report, run_plans
from whole_system.simulated_world import Plan
from whole_system.system import System

SEEDS_AT_ONCE = 20
MOST_FAILURES = 20
REPORT_INTERVAL_SECONDS = 10
TRACE_LINES = 400


def _trace(plan: Plan) -> int:
    system = System(plan)
    system.world.trace = []
    try:
        print(system.run())
        return 0
    except Exception:
        print(*system.world.trace[-TRACE_LINES:], sep="\n")
        traceback.print_exc()
        return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m whole_system")
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--off", default="", help="faults and features that do not happen, with commas")
    parser.add_argument("--peers", type=int, default=0, help="most clients, and most workers")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long faults happen, in virtual seconds")
    parser.add_argument("--trace", action="store_true", help="tell what happens")
    parser.add_argument("--whole", action="store_true", help="do not shrink what fails")
    options = parser.parse_args()
    off = frozenset(filter(None, options.off.split(",")))
    plan = Plan(options.first, off, options.peers, options.seconds)
    if options.trace:
        return _trace(plan)
    seeds = range(options.first, options.first + options.count)
    plans = [Plan(seed, off, options.peers, options.seconds) for seed in seeds]
    parts: List[List[Plan]] = [plans[at : at + SEEDS_AT_ONCE] for at in range(0, len(plans), SEEDS_AT_ONCE)]
    failed = events = outcomes = done = 0
    began = reported_at = time.monotonic()
    with ProcessPoolExecutor() as pool:
        for part, runs in zip(parts, pool.map(run_plans, parts)):
            done += runs.run_count
            failed += len(runs.failures)
            events += runs.events
            outcomes += runs.outcomes
            for plan, text in runs.failures:
                print(report(plan, text, not options.whole), flush=True)
            if time.monotonic() - reported_at > REPORT_INTERVAL_SECONDS:
                reported_at = time.monotonic()
                last = part[-1].seed
                print(f"seeds {options.first} to {last} are done; to go on from here: FIRST={last + 1}", flush=True)
            if failed >= MOST_FAILURES:
                pool.shutdown(cancel_futures=True)
                break
    rate = done / (time.monotonic() - began)
    print(f"{failed} of {done} seeds failed; {events} events, {outcomes} outcomes, {rate:.1f} seeds a second")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
