"""Which lines and branches of the cores their own tests run, measured while all tests run.

    .ci/core_coverage.py [--cores] [PYTEST ARGUMENT ...]

Runs pytest, and then prints a line for each core. It fails if a test fails, or if less than 95 % of a core's lines or
of its branches were run. `--cores` runs only the tests that count, and lists what they do not run.

Rules: only the tests listed below count, which drive cores with events; what a test of whole processes happens to run
does not. Measuring is off during all other tests, which cost what they always cost. This module is also the pytest
plugin that switches it, in every process of pytest-xdist.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, List, NamedTuple

import coverage
import pytest

TREE = Path(__file__).resolve().parents[1]
PLUGIN = Path(__file__).stem
DATA = TREE / "build/core-coverage"
MINIMUM_PERCENT = 95.0
DATA_VARIABLE = "CORE_COVERAGE_DATA"


class Core(NamedTuple):
    """A core.

    Parameters:
        sources: the folder that its package is in.
        tests: where its tests are, which count for the other cores too: the beginnings of their ids.
    """

    name: str
    package: str
    sources: str
    tests: List[str]

    @property
    def folder(self) -> str:
        return str(TREE / self.sources / self.package.replace(".", "/"))


WHOLE_SYSTEM = "sdk/tests/whole_system/test_whole_system.py::test_every_future_ends_once_and_as_it_may[0]"
CORES = [
    Core(
        "scheduler", "scaler_appliance.core", "appliance/src", ["appliance/tests/core/", "appliance/tests/adversarial/"]
    ),
    Core("client", "scaler.client.core", "sdk/src", ["sdk/tests/client/core/", WHOLE_SYSTEM]),
    Core("agent", "scaler.worker.agent.core", "sdk/src", ["sdk/tests/worker/agent/core/", WHOLE_SYSTEM]),
    Core(
        "session",
        "scaler_protocol.session",
        "protocol-spec/python/src",
        ["protocol-spec/python/tests/session/", WHOLE_SYSTEM],
    ),
]
COUNTING = tuple(dict.fromkeys(test for core in CORES for test in core.tests))


class Measuring:
    """The plugin: measures while tests of the cores run."""

    def __init__(self, data: str) -> None:
        # Not by their names: to find packages, coverage would import them before it measures.
        folders = [core.folder for core in CORES]
        self._coverage = coverage.Coverage(data, data_suffix=True, config_file=False, branch=True, source=folders)
        self._is_on = False
        self._switch(True)
        for core in CORES:  # what modules do when they are imported counts
            import_all(core.package)
        self._switch(False)

    def _switch(self, is_on: bool) -> None:
        if is_on != self._is_on:
            self._is_on = is_on
            (self._coverage.start if is_on else self._coverage.stop)()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._switch(item.nodeid.startswith(COUNTING))
        return (yield)

    def pytest_sessionfinish(self) -> None:
        self._switch(False)
        self._coverage.save()


def import_all(package: str) -> None:
    """Import a package and all its modules."""
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before any conftest.py imports a core."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if is_worker or not getattr(early_config.known_args_namespace, "numprocesses", None):  # else others run the tests
        early_config.pluginmanager.register(Measuring(os.environ[DATA_VARIABLE]), "core-measuring")


def figures(measured: coverage.Coverage, core: Core) -> Any:
    """What coverage says of a core, in all."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        measured.json_report(outfile=file.name, include=[f"{core.folder}/*"])
        return json.load(file)["totals"]


def report(show_missing: bool) -> bool:
    """Print what was measured; whether it is enough."""
    measured = coverage.Coverage(str(DATA / "data"), config_file=False, branch=True)
    measured.combine([str(DATA)])
    if show_missing:
        measured.report(show_missing=True, skip_covered=True)
    is_enough = True
    for core in CORES:
        totals = figures(measured, core)
        lines = 100 * totals["covered_lines"] / totals["num_statements"]
        branches = 100 * totals["covered_branches"] / totals["num_branches"]
        is_enough &= min(lines, branches) >= MINIMUM_PERCENT
        print(f"coverage of the {core.name}'s core: {lines:.1f} % of lines, {branches:.1f} % of branches")
    if not is_enough:
        print(f"each must be at least {MINIMUM_PERCENT:g} %: make coverage lists what is missing")
    return is_enough


def main() -> int:
    arguments = sys.argv[1:]
    show_missing = "--cores" in arguments
    if show_missing:
        arguments.remove("--cores")
        arguments += COUNTING
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    os.environ[DATA_VARIABLE] = str(DATA / "data")
    sys.path.insert(0, str(TREE))  # as `python -m pytest` does: programs that tests start import functions of theirs
    exit_code = int(pytest.main(["-p", PLUGIN, *arguments]))
    return exit_code or int(not report(show_missing))


if __name__ == "__main__":
    sys.exit(main())
