"""Measure Scaler beside the standard library's executors: `python benchmarks/run.py`.

Prints tables, writes benchmarks/results/<timestamp>.json. benchmarks/README.md says what each figure means.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import report
import summary
from engines import engine_names
from plan import BENCHMARKS, FULL, QUICK, STANDARD_ENGINES, plan
from runner import FOLDER, Interpreters, Series, run_groups

ROOT = FOLDER.parent
SCHEDULER_PYTHONS = {"cpython": ROOT / ".venv/bin/python", "pypy": ROOT / ".venv-pypy/bin/python"}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exits with a message when it is invalid."""
    parser = argparse.ArgumentParser(
        description="Measure Scaler beside the standard library's executors.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--only", default=",".join(BENCHMARKS), help="comma-separated benchmarks")
    parser.add_argument("--engines", default=",".join(STANDARD_ENGINES), help="comma-separated engines to compare")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tasks, one run each")
    parser.add_argument("--repeat", type=int, help="runs of each measurement (3, with --quick 1)")
    parser.add_argument(
        "--python-scheduler",
        choices=sorted(SCHEDULER_PYTHONS),
        default="cpython",
        help="interpreter of the local cluster's scheduler; the scheduler alone is measured on both",
    )
    parser.add_argument(
        "--merge", type=Path, nargs="*", default=[], help="JSON files of earlier runs to show in the same tables"
    )
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    options = parser.parse_args(arguments)
    options.only = _names(parser, options.only, BENCHMARKS, "benchmark")
    options.engines = _names(parser, options.engines, engine_names(), "engine")
    if options.repeat is None:
        options.repeat = 1 if options.quick else 3
    if options.repeat < 1:
        parser.error("--repeat takes 1 or more")
    return options


def main() -> None:
    """Program entry."""
    options = parse(sys.argv[1:])
    schedulers = {name: str(python) for name, python in SCHEDULER_PYTHONS.items() if python.exists()}
    if options.python_scheduler not in schedulers:
        sys.exit(f"there is no interpreter at {SCHEDULER_PYTHONS[options.python_scheduler]}")
    groups = plan(options.only, QUICK if options.quick else FULL, options.engines, list(schedulers))
    scheduler_command = f"{schedulers[options.python_scheduler]} -m scaler_appliance"
    interpreters = Interpreters(schedulers=schedulers, environment={"SCALER_SCHEDULER": scheduler_command})
    facts = report.machine()
    series = run_groups(groups, options.repeat, interpreters, lambda line: print(line, file=sys.stderr, flush=True))
    for path in options.merge:
        series = report.merged(series, report.read_json(path))
        facts.setdefault("merged", []).append(report.read_origin(path))
    finish(facts, series, options.markdown, ["benchmarks/run.py", *sys.argv[1:]])


def finish(
    facts: dict[str, Any],
    series: Sequence[Series],
    markdown: Optional[Path],
    command: Sequence[str],
    skipped: Sequence[str] = (),
) -> None:
    """Print the tables and write the files; `skipped` says what was not even tried, and why."""
    stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    results = FOLDER / "results" / f"{stamp}.json"
    report.write_json(results, {**facts, "skipped": list(skipped)}, series)
    print(report.terminal_text(series, skipped))
    print(f"every run: {results}")
    if markdown:
        found = report.summary_of(facts, series, " ".join(command), skipped)
        summary.write(markdown.with_suffix(".json"), found)
        markdown.write_text(summary.markdown(found), encoding="utf-8")
        print(f"tables: {markdown}, and as data beside it")


def _names(parser: argparse.ArgumentParser, text: str, known: Sequence[str], what: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            parser.error(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()
