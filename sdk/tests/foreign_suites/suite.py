"""The test suite of another project, run with Scaler in the place of that project's own engine.

    SUITE: Suite ──▶ run ──▶ pytest, in a process of its own ──▶ JUnit XML ──▶ Outcome ──▶ a row of how-to/adapters.md

Rules:
- A test that does not apply is excluded by name, with the reason. What is excluded and no longer exists is an error.
- Nothing passes because it was left out unseen: a test that skips itself has to be listed as well, and a suite that
  runs fewer tests than it is known to have has failed.
"""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

HERE = Path(__file__).resolve().parent


class Suite(NamedTuple):
    """How to run the tests of another project.

    Parameters:
        adapter: what of Scaler they test, as the documentation names it.
        distribution: whose tests they are, as pip names it; its version is reported.
        files: paths or modules for pytest, such as `/…/joblib/test/test_parallel.py`.
        fewest: how many tests have to run at least: fewer mean that the suite was not found, or has changed.
        excluded: patterns of test ids as `module::test[parameters]`, and why these do not apply.
        skipping: patterns of tests that may skip themselves, and why.
        plugin: a module in this folder that pytest loads first, and that puts Scaler in the place of the usual engine.
        arguments: more of pytest's.
        environment: variables.
        python: the interpreter that runs them; by default this one.
    """

    adapter: str
    distribution: str
    files: Sequence[str]
    fewest: int
    excluded: Mapping[str, str] = {}
    skipping: Mapping[str, str] = {}
    plugin: str = ""
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = {}
    python: str = sys.executable

    @property
    def version(self) -> str:
        """Of the distribution, in the environment of this process."""
        return metadata.version(self.distribution)


class Outcome(NamedTuple):
    """What came of a suite.

    Parameters:
        passed: ids of tests.
        excluded: ids of tests that were left out, and why.
        skipped: ids of tests that skipped themselves as they may, and why.
        wrong: what must not be: tests that failed or skipped themselves, exclusions of tests that do not exist.
    """

    passed: List[str]
    excluded: Dict[str, str]
    skipped: Dict[str, str]
    wrong: List[str]


def run(suite: Suite, timeout_seconds: float = 3600.0) -> Outcome:
    """Run a suite, with its output on standard error.

    Raises subprocess.TimeoutExpired if it hangs.
    """
    with tempfile.TemporaryDirectory() as folder:
        report, left_out = Path(folder, "report.xml"), Path(folder, "excluded")
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "SCALER_EXCLUDED_PATTERNS": "\n".join(suite.excluded),
            "SCALER_EXCLUDED_FILE": str(left_out),
            **suite.environment,
        }
        plugins = ["-p", "excluding", *(["-p", suite.plugin] if suite.plugin else [])]
        command = [suite.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins]
        command += [f"--junitxml={report}", *suite.arguments, *suite.files]
        # Elsewhere than in the tree, so that its settings for pytest are not those of the suite.
        result = subprocess.run(command, cwd=folder, env=environment, stdout=sys.stderr, timeout=timeout_seconds)
        # 1: tests have failed; 5: none was chosen.
        if result.returncode not in (0, 1, 5) or not report.exists():
            return Outcome([], {}, {}, [f"pytest could not run the tests: exit code {result.returncode}"])
        ids = left_out.read_text().split("\n")[:-1] if left_out.exists() else []
        return _outcome(suite, ElementTree.parse(report).getroot(), ids)


def _outcome(suite: Suite, report: ElementTree.Element, left_out: Sequence[str]) -> Outcome:
    passed: List[str] = []
    skipped: Dict[str, str] = {}
    wrong: List[str] = []
    for case in report.iter("testcase"):
        name, what, text = _case(case)
        if what == "passed":
            passed.append(name)
        elif what == "skipped" and _reason(name, suite.skipping):
            skipped[name] = _reason(name, suite.skipping)
        else:
            wrong.append(f"{name} {what}: {text}")
    excluded = {name: _reason(name, suite.excluded) for name in left_out}
    for pattern in suite.excluded:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in excluded):
            wrong.append(f"there is no test to exclude like {pattern}")
    if len(passed) < suite.fewest:
        wrong.append(f"{len(passed)} tests have passed, and {suite.fewest} are expected")
    return Outcome(passed, excluded, skipped, wrong)


def _case(case: ElementTree.Element) -> Tuple[str, str, str]:
    """The id of a test, what came of it, and the message."""
    name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '')}"
    for kind, what in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(kind)
        if found is not None:
            # An expected failure is a test of that project's own, about its own defects.
            is_expected = found.get("type") == "pytest.xfail"
            return name, "passed" if is_expected else what, (found.get("message") or "")[:300]
    return name, "passed", ""


def _reason(name: str, reasons: Mapping[str, str]) -> str:
    return next((why for pattern, why in reasons.items() if fnmatch.fnmatchcase(name, pattern)), "")
