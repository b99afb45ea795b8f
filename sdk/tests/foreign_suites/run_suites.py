"""Run the test suites of other projects on Scaler's adapters: `make adapters`, or with ARGS='joblib' some of them.

Each module `suite_of_NAME` in this folder has the list SUITES. The table in docs/adapters.md is rewritten if all ran.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
from pathlib import Path
from typing import Dict, List, Tuple

from suite import HERE, Outcome, Suite, run

PAGE = HERE.parents[2] / "docs/adapters.md"
BEGIN, END = "<!-- suites: begin -->", "<!-- suites: end -->"


def names() -> List[str]:
    """Of all adapters that have suites."""
    return sorted(path.stem[len("suite_of_") :] for path in HERE.glob("suite_of_*.py"))


def suites_of(name: str) -> List[Suite]:
    """The suites for an adapter."""
    suites: List[Suite] = importlib.import_module(f"suite_of_{name}").SUITES
    return suites


def table(results: List[Tuple[Suite, Outcome]]) -> str:
    """The page's table of all suites, and the reasons for what was left out."""
    lines = ["| adapter | suite | run | passed | do not apply |", "| --- | --- | --: | --: | --: |"]
    reasons: List[str] = []
    for suite, outcome in results:
        ran = len(outcome.passed) + sum(" failed: " in each for each in outcome.wrong)
        left_out: Dict[str, int] = {}
        for why in [*outcome.excluded.values(), *outcome.skipped.values()]:
            left_out[why] = left_out.get(why, 0) + 1
        title = f"{suite.distribution} {suite.version}"
        lines.append(f"| {suite.adapter} | {title} | {ran} | {len(outcome.passed)} | {sum(left_out.values())} |")
        if left_out:
            reasons += ["", f"Of {title}, on {suite.adapter}, these do not apply:", ""]
            reasons += [f"- {count}: {why}" for why, count in sorted(left_out.items(), key=lambda each: -each[1])]
    return "\n".join([*lines, *reasons])


def rewritten(page: str, text: str) -> str:
    """The page with another table. Raises ValueError if it has no place for one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> int:
    # A shell that starts this in the background makes it ignore Ctrl-C, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names())}; by default all")
    chosen = parser.parse_args().names or names()
    unknown = [name for name in chosen if name not in names()]
    if unknown:
        parser.error(f"there is no suite for {', '.join(unknown)}: choose from {', '.join(names())}")
    results: List[Tuple[Suite, Outcome]] = []
    for name in chosen:
        for suite in suites_of(name):
            print(f"running the tests of {suite.distribution} {suite.version} on {suite.adapter}", file=sys.stderr)
            began = time.monotonic()
            outcome = run(suite)
            results.append((suite, outcome))
            print(f"{len(outcome.passed)} passed in {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(table(results))
    for suite, outcome in results:
        for each in outcome.wrong:
            print(f"error: {suite.adapter}: {each}", file=sys.stderr)
    if any(outcome.wrong for _, outcome in results):
        return 1
    if set(chosen) == set(names()):
        Path(PAGE).write_text(rewritten(PAGE.read_text(), table(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
