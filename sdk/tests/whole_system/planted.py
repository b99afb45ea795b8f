"""Plants each bug of `planted_bugs`, and counts the seeds until the simulation fails.

    python -m whole_system.planted              all of them; `make planted-bugs` does that, too
    python -m whole_system.planted --seeds 500 credit cancel      those with these words in their names

In sdk/tests. Prints a table, and fails if a bug is not caught.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Container, Dict, Tuple

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[3] / "appliance/tests"))

from whole_system.bugs.leaving_bugs import LEAVING_BUGS
from whole_system.bugs.link_bugs import LINK_BUGS
from whole_system.bugs.planted_bugs import BUGS_OF_THE_TRIAL, NEW_BUGS, PLANTED_BUGS, planted
from whole_system.bugs.storage_bugs import STORAGE_BUGS
from whole_system.bugs.tenant_bugs import TENANT_BUGS
from whole_system.bugs.transfer_bugs import TRANSFER_BUGS
from whole_system.bugs.unit_bugs import UNIT_BUGS
from whole_system.seed_runs import run_plans
from whole_system.simulated_world import Plan

MOST_SEEDS = 2000
LISTS: Dict[str, Container[str]] = {
    "trial": BUGS_OF_THE_TRIAL,
    "new": NEW_BUGS,
    "tenants": TENANT_BUGS,
    "transfers": TRANSFER_BUGS,
    "leaving": LEAVING_BUGS,
    "links": LINK_BUGS,
    "storage": STORAGE_BUGS,
    "units": UNIT_BUGS,
}
"""Which bugs a list has, by its title; the others are of the first one."""


def seeds_until_caught(name: str, most_seeds: int) -> Tuple[int, str]:
    """How many seeds it takes, 0 if more than allowed; and how the bug shows itself."""
    with planted(PLANTED_BUGS[name]):
        runs = run_plans(map(Plan, range(most_seeds)), most_failures=1)
    if not runs.failures:
        return 0, ""
    lines = runs.failures[0][1].strip().splitlines()
    return runs.run_count, lines[-1]


def _list_of(name: str) -> str:
    return next((title for title, bugs in LISTS.items() if name in bugs), "first")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m whole_system.planted")
    parser.add_argument("words", nargs="*", help="only bugs with one of these in their names")
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS, help="how many to try for each")
    options = parser.parse_args()
    names = [name for name in PLANTED_BUGS if not options.words or any(word in name for word in options.words)]
    missed = 0
    print("| bug | core | list | seeds | first sign |\n| --- | --- | --- | --: | --- |")
    with ProcessPoolExecutor() as pool:
        jobs = {pool.submit(seeds_until_caught, name, options.seeds): name for name in names}
        for job in as_completed(jobs):
            name, (seeds, sign) = jobs[job], job.result()
            missed += not seeds
            count = str(seeds) if seeds else f"none in {options.seeds}"
            print(f"| {name} | {PLANTED_BUGS[name].core} | {_list_of(name)} | {count} | {sign[:110]} |", flush=True)
    print(f"\n{len(names) - missed} of {len(names)} bugs are caught")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
