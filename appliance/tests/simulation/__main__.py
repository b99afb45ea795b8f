"""`python -m tests.simulation FIRST COUNT`, in the appliance's folder: many seeds; prints those that fail."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from simulation.simulated_run import simulate


def main(first: int = 0, count: int = 10_000) -> int:
    failed = events = outcomes = 0
    for seed in range(first, first + count):
        try:
            summary = simulate(seed)
            events += summary.events
            outcomes += summary.outcomes
        except Exception:
            failed += 1
            print(f"seed {seed}", flush=True)
            traceback.print_exc(limit=-4)
            if failed >= 10:
                break
    print(f"{failed} seeds failed; {events} events, {outcomes} outcomes")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
