"""Run the test suites of libraries written for earlier generations of Scaler against this tree: `make dropin`.

    for each library:  build/dropin/NAME   an environment with this tree's packages and the library from PyPI
                       its repository      cloned at a commit, since its distributions hold no tests
                       its tests           copied alone, so that the installed library is tested, and run by pytest

Rules:
- A run counts only if the Scaler backend was used: a test that is skipped because it did not load is a failure, and so
  is a run in which too few of the tests that need it passed.
- A test that skips itself because something is not installed is a failure too, unless it is about something else.
- What came of a library is recorded in build/foreign_suites, for the table of `make adapters`.
- Nothing of these libraries is kept in this tree.

`--sources FOLDER` takes the repositories FOLDER/parfun and FOLDER/pargraph instead of cloning them, for machines that
reach PyPI alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import List, Mapping, NamedTuple, Optional, Tuple

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "dropin"
OWN_PACKAGES = ("protocol-spec/python", "appliance", "sdk")
RUN_TIMEOUT_SECONDS = 1800


class Library(NamedTuple):
    """A library whose tests are run.

    Parameters:
        name: of the environment.
        requirements: what pip installs.
        repository: where its tests are, by the name of the folder and the URL.
        commit: of the tests.
        backend_tests: parts of the names of tests that use Scaler.
        minimum_passed: so many of these must pass.
        plugins: pytest plugins of this folder that put Scaler underneath.
        may_skip: reasons of tests to skip themselves, and what they are about.
    """

    name: str
    requirements: Tuple[str, ...]
    repository: Tuple[str, str]
    commit: str
    backend_tests: Tuple[str, ...]
    minimum_passed: int
    plugins: Tuple[str, ...] = ()
    may_skip: Mapping[str, str] = {}


_PARFUN_TESTS = ("test_scaler", "test_parallel_nested_calls")
_PARFUN_MAY_SKIP = {"Dask is not installed": "about parfun's backend for Dask"}
RECORDS = ROOT / "build/foreign_suites/dropin"

LIBRARIES = (
    Library(
        "parfun-7.2",
        ("parfun[pandas]==7.2",),
        ("parfun", "https://github.com/finos/opengris-parfun"),
        "29f550541609ac2e9c90478fac69726ac1f40408",
        _PARFUN_TESTS,
        8,
        may_skip=_PARFUN_MAY_SKIP,
    ),
    Library(
        "opengris-parfun-7.4",
        ("opengris-parfun[pandas]==7.4",),
        ("parfun", "https://github.com/finos/opengris-parfun"),
        "29f550541609ac2e9c90478fac69726ac1f40408",
        _PARFUN_TESTS,
        8,
        may_skip=_PARFUN_MAY_SKIP,
    ),
    Library(
        "pargraph",
        ("pargraph[graphblas]==0.9.6", "pandas", "numpy<2.4"),  # pargraph uses `in1d`, which numpy 2.4 has no longer
        ("pargraph", "https://github.com/finos/opengris-pargraph"),
        "924c8b95b68a3728f20d314b2c87e22a9dd990d7",
        ("TestEngineDefaultBackend",),
        5,
        ("client_as_executor",),
        {"abstract test class": "base classes of other tests"},
    ),
)


def main() -> int:
    """Run the program; its exit code is 0 if all suites passed with Scaler underneath."""
    parser = argparse.ArgumentParser(prog="make dropin", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--sources", type=Path, help="a folder of repositories, instead of cloning them")
    parser.add_argument("-k", dest="only", default="", help="only libraries with this in their name")
    options = parser.parse_args()
    chosen = [library for library in LIBRARIES if options.only in library.name]
    faults = [fault for library in chosen for fault in _run(library, options.sources)]
    for fault in faults:
        print(f"dropin: {fault}")
    return 1 if faults or not chosen else 0


def _run(library: Library, sources: Optional[Path]) -> List[str]:
    """What is wrong with the library on this tree."""
    print(f"dropin: {library.name}", flush=True)
    folder = BUILD / library.name
    python = _install(library, folder)
    tests = folder / "run" / "tests"
    shutil.rmtree(tests, ignore_errors=True)
    shutil.copytree(_checkout(library, folder, sources) / "tests", tests)
    (tests.parent / "pytest.ini").write_text("[pytest]\n")  # else that of this tree would do
    report = folder / "report.xml"
    command = [str(python), "-m", "pytest", "-q", "-ra", f"--junit-xml={report}", "tests"]
    for plugin in library.plugins:
        command += ["-p", plugin]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    run = subprocess.run(command, cwd=tests.parent, env=environment, timeout=RUN_TIMEOUT_SECONDS)
    faults = _faults(library, report, run.returncode)
    if not faults:
        _record(library, report)
    return [f"{library.name}: {fault}" for fault in faults]


def _install(library: Library, folder: Path) -> Path:
    """An environment with the library and this tree's packages, editable; its Python."""
    python, stamp = folder / "venv" / "bin" / "python", folder / "installed.txt"
    own = [ROOT / package for package in OWN_PACKAGES]
    wanted = "\n".join([*library.requirements, *((package / "pyproject.toml").read_text() for package in own)])
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    venv.create(folder / "venv", with_pip=True)
    editable = [word for package in own for word in ("-e", str(package))]
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "pytest", *editable, *library.requirements], check=True)
    stamp.write_text(wanted)
    return python


def _checkout(library: Library, folder: Path, sources: Optional[Path]) -> Path:
    """The library's files at its commit."""
    name, url = library.repository
    origin = str((sources / name).resolve()) if sources else url
    checkout = folder / "source"
    if not (checkout / ".git").exists():
        subprocess.run(["git", "clone", "-q", "--no-checkout", origin, str(checkout)], check=True)
    subprocess.run(["git", "-C", str(checkout), "checkout", "-q", library.commit], check=True)
    return checkout


def _faults(library: Library, report: Path, exit_code: int) -> List[str]:
    """What the report of a run says is wrong."""
    faults = [f"pytest ended with exit code {exit_code}"] if exit_code else []
    passed = 0
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        skipped = case.find("skipped")
        message = str(skipped.get("message")) if skipped is not None else ""
        if any(word in message.lower() for word in ("scaler", "not installed")) and message not in library.may_skip:
            faults.append(f"{name} was skipped: {message}")
        is_passed = all(case.find(kind) is None for kind in ("skipped", "failure", "error"))
        passed += is_passed and any(part in name for part in library.backend_tests)
    if passed < library.minimum_passed:
        faults.append(f"{passed} tests that use Scaler passed, and {library.minimum_passed} should")
    print(f"dropin: {library.name}: {passed} tests that use Scaler passed", flush=True)
    return faults


def _record(library: Library, report: Path) -> None:
    """Keep what came of a library's tests for the page of adapters."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    messages = [str(found.get("message")) for case in cases for found in [case.find("skipped")] if found is not None]
    reasons = Counter(library.may_skip.get(message, message) for message in messages)
    ran = len(cases) - len(messages)
    name, _, version = library.requirements[0].partition("==")
    title = f"{name.partition('[')[0]} {version}"
    record = {"adapter": library.repository[0], "title": title, "ran": ran, "passed": ran, "left_out": reasons}
    RECORDS.mkdir(parents=True, exist_ok=True)
    (RECORDS / f"{library.name}.json").write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    sys.exit(main())
