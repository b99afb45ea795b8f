"""`python -m tests.adversarial.many_seeds FIRST COUNT`, in the appliance's folder: many seeds, on all cores.

It prints those that fail, with what repeats them and the last messages.
"""

from __future__ import annotations

import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from adversarial.history import run

SEEDS_OF_A_PART = 50
MOST_FAILURES = 20


def failure_of(seed: int) -> str:
    """The traceback and the last events of a history that failed; otherwise nothing."""
    try:
        run(seed)
    except AssertionError:
        return traceback.format_exc(limit=-5)
    return ""


def main(first: int = 0, count: int = 2_000) -> int:
    failed = 0
    with ProcessPoolExecutor() as pool:
        for text in pool.map(failure_of, range(first, first + count), chunksize=SEEDS_OF_A_PART):
            if text:
                failed += 1
                print(text, flush=True)
            if failed >= MOST_FAILURES:
                pool.shutdown(cancel_futures=True)
                break
    print(f"{failed} of {count} seeds failed, from {first} on")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
