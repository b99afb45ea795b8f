"""Run the test suites of other projects on Scaler's adapters: `make adapters`, or with ARGS='joblib' some of them.

    suite_of_NAME.SUITES ──▶ run ──▶ build/foreign_suites/*.json: a Record each ──▶ the table in docs/how-to/adapters.md

Rules:
- Each module `suite_of_NAME` in this folder has the list SUITES.
- What came of a suite is recorded, so that suites can be run one by one. The page is rewritten when all have run in
  the versions that are installed, and nothing is wrong with any of them.
- `make dropin` records what came of parfun and pargraph in the same way.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

from suite import HERE, Outcome, Suite, run

TREE = HERE.parents[2]
PAGE = TREE / "docs/how-to/adapters.md"
RECORDS = TREE / "build/foreign_suites"
DROPIN = "dropin"
BEGIN, END = "<!-- suites: begin -->", "<!-- suites: end -->"


class Record(NamedTuple):
    """What came of a suite, for the page.

    Parameters:
        adapter: as in `Suite`.
        title: the project and its version.
        ran: how many tests.
        passed: how many of them.
        left_out: how many tests do not apply, by the reason.
    """

    adapter: str
    title: str
    ran: int
    passed: int
    left_out: Dict[str, int]


def names() -> List[str]:
    """Of all adapters that have suites."""
    return sorted(path.stem[len("suite_of_") :] for path in HERE.glob("suite_of_*.py"))


def suites_of(name: str) -> List[Suite]:
    """The suites for an adapter."""
    suites: List[Suite] = importlib.import_module(f"suite_of_{name}").SUITES
    return suites


def record_of(suite: Suite, outcome: Outcome) -> Record:
    """What the page says of a suite."""
    ran = len(outcome.passed) + sum(" failed: " in each for each in outcome.wrong)
    left_out: Dict[str, int] = {}
    for why in [*outcome.excluded.values(), *outcome.skipped.values()]:
        left_out[why] = left_out.get(why, 0) + 1
    return Record(suite.adapter, title_of(suite), ran, len(outcome.passed), left_out)


def title_of(suite: Suite) -> str:
    return f"{suite.distribution} {suite.version}"


def _file_of(adapter: str, title: str) -> Path:
    return RECORDS / f"{re.sub('[^A-Za-z0-9.]+', '-', f'{adapter}-{title}')}.json"


def save(record: Record) -> None:
    """Keep a record for the page."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    _file_of(record.adapter, record.title).write_text(json.dumps(record._asdict(), indent=1))


def saved(adapter: str, title: str) -> Optional[Record]:
    """The record of a suite that has passed."""
    file = _file_of(adapter, title)
    return Record(**json.loads(file.read_text())) if file.exists() else None


def table(records: List[Record]) -> str:
    """The page's table of all suites, and the reasons for what was left out."""
    lines = ["| adapter | suite | run | passed | do not apply |", "| --- | --- | --: | --: | --: |"]
    reasons: List[str] = []
    for adapter, title, ran, passed, left_out in records:
        lines.append(f"| {adapter} | {title} | {ran} | {passed} | {sum(left_out.values())} |")
        if left_out:
            reasons += ["", f"Of {title}, on {adapter}, these do not apply:", ""]
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
    parser.add_argument("--only", default="", help="a part of the project and version, such as '3.12'")
    options = parser.parse_args()
    chosen = options.names or names()
    unknown = [name for name in chosen if name not in names()]
    if unknown:
        parser.error(f"there is no suite for {', '.join(unknown)}: choose from {', '.join(names())}")
    records: List[Record] = []
    has_failed = False
    for suite in [suite for name in chosen for suite in suites_of(name) if options.only in title_of(suite)]:
        print(f"running the tests of {title_of(suite)} on {suite.adapter}", file=sys.stderr)
        began = time.monotonic()
        outcome = run(suite)
        records.append(record_of(suite, outcome))
        print(f"{len(outcome.passed)} passed in {time.monotonic() - began:.0f} s", file=sys.stderr)
        for each in outcome.wrong:
            print(f"error: {suite.adapter}: {each}", file=sys.stderr)
        if outcome.wrong:
            has_failed = True
            _file_of(suite.adapter, title_of(suite)).unlink(missing_ok=True)
        else:
            save(records[-1])
    print(table(records))
    if has_failed:
        return 1
    _rewrite_page()
    return 0


def _rewrite_page() -> None:
    """Write what is recorded of all suites, if none is missing."""
    wanted = [(suite.adapter, title_of(suite)) for name in names() for suite in suites_of(name)]
    records = [saved(*each) for each in wanted]
    missing = [title for (_, title), record in zip(wanted, records) if record is None]
    if missing:
        print(f"{PAGE.name} stays as it is, until these have passed too: {', '.join(missing)}", file=sys.stderr)
        return
    records += [Record(**json.loads(path.read_text())) for path in sorted(RECORDS.glob(f"{DROPIN}/*.json"))]
    PAGE.write_text(rewritten(PAGE.read_text(), table([record for record in records if record is not None])))


if __name__ == "__main__":
    sys.exit(main())
