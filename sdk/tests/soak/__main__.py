"""Loads a real cluster for minutes or hours, with faults, and checks that nothing is lost, doubled, wrong or left over.

    python -m soak --minutes 120 --seed 7 --report FILE     in sdk/tests; `make soak` runs it, too
    python -m soak --minutes 10 --seed 7 --plan             only prints the plan of its faults

The report is written as FILE.md and FILE.json. Exit codes: 0, all is well; 1, something is not; 130, Ctrl-C, which ends
the run and still writes the report.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import FrozenSet

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "protocol-spec/python/tests"))

from soak.fault_plan import ON_DEMAND, names_without, windows
from soak.machine_means import enter_namespaces
from soak.soak_report import page_of, report_of
from soak.soak_run import UNLIMITED, Settings, SoakRun

DEFAULT_MINUTES = 10.0
SECONDS_OF_A_WINDOW = 32.0  # about, with its rest


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description="Load a cluster, with faults, and check it.")
    parser.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help="how long (default: 10)")
    rate_help = "submissions of each client, at most (default: as many as the cluster takes)"
    parser.add_argument("--most-a-second", type=float, default=UNLIMITED, metavar="COUNT", help=rate_help)
    parser.add_argument("--seed", type=int, default=None, help="repeats the plan of a run")
    parser.add_argument("--report", type=Path, default=None, help="where to write it, .md and .json are appended")
    parser.add_argument("--plan", action="store_true", help="print all faults, and start nothing")
    parser.add_argument("--without", nargs="+", default=[], metavar="WORD", help="no faults with this in their names")
    parser.add_argument("--starve", action="store_true", help="also leave the scheduler no address space for a while")
    parser.add_argument("--keep", action="store_true", help="keep the logs although all is well")
    return parser.parse_args()


def _print_plan(options: argparse.Namespace) -> int:
    count = int(60 * options.minutes / SECONDS_OF_A_WINDOW) + 1
    means, names = frozenset({"namespaces", "file systems"}), _names(options)
    for window in itertools.islice(windows(options.seed, options.minutes, means, names), count):
        print(window, *window.faults, sep="\n    ")
    return 0


def _names(options: argparse.Namespace) -> FrozenSet[str]:
    """Of the faults that may happen."""
    return names_without(options.without) - (frozenset() if options.starve else ON_DEMAND)


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    options = _options()
    if options.seed is None:
        options.seed = time.time_ns() % 10**6
    if options.plan:
        return _print_plan(options)
    again = [sys.executable, str(Path(__file__).parent), *sys.argv[1:], "--seed", str(options.seed)]
    enter_namespaces(again)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    report_path = options.report or folder.parent / f"soak-report-{options.seed}"
    _say(f"soak: {options.minutes:g} minutes, seed {options.seed}, in {folder}")
    run = SoakRun(Settings(options.minutes, options.seed, folder, _names(options), options.most_a_second), _say)

    def stop(number: int, frame: object) -> None:
        run.is_stopped = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second one does not wait

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    run.run()
    report = report_of(run)
    page = page_of(report)
    report_path.with_suffix(".json").write_text(json.dumps(report, indent=1))
    report_path.with_suffix(".md").write_text(page)
    _say(f"\n{page}\nsoak: the report is {report_path.with_suffix('.md')}")
    if report["passed"] and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    if report["interrupted"]:
        return 130
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
