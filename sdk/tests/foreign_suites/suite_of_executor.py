"""CPython's own tests of executors, of each CPython that is here with its tests.

Rules:
- Each interpreter runs the tests that it ships, in an environment of its own, which is kept: `.venv-executor3.X`.
- An interpreter that ships none runs those of the next newer one; the table says so.
- Debian has the tests of its Python in a package: apt-get install libpython3.11-testsuite.
- $SCALER_CPYTHONS names folders with further interpreters, such as `…/bin` with `python3.14`; they come before others.
- Without a CPython 3.14, the cases that are new in it run on the newest interpreter, if $SCALER_CPYTHON_TESTS names the
  folder Lib/test of 3.14.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional

from suite import HERE, Suite

TREE = HERE.parents[2]
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
PACKAGE = "test_concurrent_futures"
NEW_IN_3_14 = "buffersize or falsey"
CPYTHONS = "SCALER_CPYTHONS"
TESTS_OF_3_14 = "SCALER_CPYTHON_TESTS"
FEWEST = 28
FEWEST_NEW_IN_3_14 = 9
NEWER_FILES = ("test_as_completed", "test_init", "test_shutdown", "test_thread_pool", "test_wait")
"""From 3.12 on. The other files test `Future` by itself, and ProcessPoolExecutor."""

NO_SHARED_MEMORY = "a lock, a list or an event of this process is used by the calls, which run in other processes"
NO_THREADS = "the threads of ThreadPoolExecutor are counted, named or joined"

EXCLUDED = {
    "ProcessPool*": "the same for the pools of ProcessPoolExecutor, or about its processes and queues",
    "InterpreterPool*": "the same for the pools of InterpreterPoolExecutor",
    "FailingInitializerResourcesTest::*": "about what the processes of multiprocessing leave, without an executor",
    "FutureTests::*": "about `Future` of the standard library, without an executor",
    "ThreadPoolWaitTests::test_pending_calls_race": NO_SHARED_MEMORY,
    "ThreadPoolShutdownTest::test_threads_terminate": NO_SHARED_MEMORY,
    "ThreadPoolExecutorTest::test_map_buffersize_raise_on_shutdown": "after a shutdown, the error that no more items"
    " can be submitted comes after the results of those that were, and not in their place",
    "ThreadPoolExecutorTest::test_saturation": NO_SHARED_MEMORY,
    "ThreadPoolExecutorTest::test_map_submits_without_iteration": NO_SHARED_MEMORY,
    "ThreadPoolExecutorTest::test_executor_map_current_future_cancel": NO_SHARED_MEMORY,
    "ThreadPoolExecutorTest::test_idle_thread_reuse": NO_THREADS,
    "ThreadPoolExecutorTest::test_default_workers": "the default is ThreadPoolExecutor's, four more than CPUs; ours is"
    " one less than CPUs",
    "ThreadPoolShutdownTest::test_context_manager_shutdown": NO_THREADS,
    "ThreadPoolShutdownTest::test_del_shutdown": NO_THREADS,
    "ThreadPoolShutdownTest::test_shutdown_no_wait": NO_THREADS,
    "ThreadPoolShutdownTest::test_thread_names_assigned": NO_THREADS,
    "ThreadPoolShutdownTest::test_thread_names_default": NO_THREADS,
    "ThreadPoolShutdownTest::test_cancel_futures_wait_false": "its script makes a ThreadPoolExecutor by name",
    "ThreadPoolExecutorTest::test_process_fork_from_a_threadpool": "makes a ThreadPoolExecutor by name",
    "ThreadPoolShutdownTest::test_cancel_futures": "one call must have started when cancel_futures comes, microseconds"
    " after its submission; here all may be cancelled in time",
}


class SuiteOfPython(Suite):
    """The tests of an interpreter."""

    @property
    def version(self) -> str:
        """Of the interpreter, and of the tests if these are of another one."""
        version = _output_of(self.python, "import platform; print(platform.python_version())")
        borrowed = Path(self.python).parents[1] / "tests/from"
        return f"{version}, tests of {borrowed.read_text()}" if borrowed.exists() else version


def _output_of(python: str, script: str) -> str:
    """What a script prints; empty if it fails."""
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=False).stdout.strip()


def _interpreters(version: str) -> List[str]:
    """Interpreters of a version that are here."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"), reverse=True)
    given = [os.path.join(each, f"python{version}") for each in os.environ.get(CPYTHONS, "").split(os.pathsep) if each]
    places = [*given, *map(str, pyenv), f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"]
    return [place for place in places if os.path.exists(place)]


def _own_tests(interpreter: str) -> Optional[Path]:
    """The folder of the tests that an interpreter ships, or their one file."""
    found = _output_of(interpreter, f"import test.{PACKAGE} as tests; print(tests.__file__)")
    if not found:
        return None
    return Path(found).parent if found.endswith("__init__.py") else Path(found)


def _prepared(name: str, interpreter: str) -> str:
    """The interpreter of an environment with this tree and pytest."""
    environment = TREE / f".venv-executor{name}"
    python = str(environment / "bin/python")
    if not os.path.exists(python) or not _output_of(python, "import scaler, pytest, pytest_timeout; print(1)"):
        subprocess.run([interpreter, "-m", "venv", "--clear", str(environment)], check=True)
        packages = ["-e", "protocol-spec/python", "-e", "appliance", "-e", "sdk[local]", "pytest>=8", "pytest-timeout"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], cwd=TREE, check=True)
    return python


def _borrowed(python: str, tests: Path, version: str) -> Path:
    """Copy the tests of another interpreter into an environment, as a part of the package `test` there."""
    folder = Path(python).parents[1] / "tests"
    if (folder / "from").exists() and (folder / "from").read_text() == version:
        return folder / PACKAGE
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(tests, folder / PACKAGE)
    (folder / "from").write_text(version)
    site = _output_of(python, "import sysconfig; print(sysconfig.get_path('purelib'))")
    # Scripts of the tests import them from `test`, in interpreters that ignore PYTHONPATH.
    (Path(site) / "borrowed_tests.pth").write_text(f"import test; test.__path__.append({str(folder)!r})\n{folder}\n")
    return folder / PACKAGE


def _excluded(files: List[Path]) -> Dict[str, str]:
    """What is excluded of those tests that these files have: each version has some more."""
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    return {
        pattern: why
        for pattern, why in EXCLUDED.items()
        if f"def {pattern.rpartition('::')[2]}(" in text
        or (pattern.endswith("::*") and f"class {pattern[:-3]}" in text)
        or (pattern == "ProcessPool*" and "create_executor_tests" in text)
        or (pattern == "InterpreterPool*" and "class InterpreterPoolMixin" in text)
    }


def _suite(python: str, tests: Path, fewest: int, only: str = "") -> Suite:
    """The suite of an environment.

    Parameters:
        tests: the folder with the tests, or their one file.
        only: an expression for pytest's -k.
    """
    files, folder = [tests], tests.parent
    if tests.is_dir():
        files = [tests / f"{name}.py" for name in NEWER_FILES]
    texts = files if len(files) == 1 else [*files, tests / "executor.py", tests / "util.py"]
    excluded = _excluded(texts)
    if only:
        excluded = {
            pattern: why for pattern, why in excluded.items() if any(each in pattern for each in only.split(" or "))
        }
    arguments = ["-c", os.devnull, f"--rootdir={folder.parent}", f"--confcutdir={folder.parent}", "--timeout=120"]
    return SuiteOfPython(
        adapter="ScalerExecutor",
        distribution="CPython",
        files=list(map(str, files)),
        fewest=fewest,
        excluded=excluded,
        plugin="executor_in_cpython",
        arguments=[*arguments, *(["-k", only] if only else [])],
        python=python,
    )


def _suites() -> List[Suite]:
    """Those of all versions that are here."""
    suites: List[Suite] = []
    own = {
        version: (interpreter, tests)
        for version in VERSIONS
        for interpreter in reversed(_interpreters(version))
        for tests in [_own_tests(interpreter)]
        if tests is not None
    }
    for position, version in enumerate(VERSIONS):
        if version in own:
            interpreter, tests = own[version]
            suites.append(_suite(_prepared(version, interpreter), tests, FEWEST))
            continue
        newer = [own[other] for other in VERSIONS[position:] if other in own and own[other][1].is_dir()]
        others = _interpreters(version)
        if others and newer:
            python = _prepared(version, others[0])
            theirs = _output_of(newer[0][0], "import platform; print(platform.python_version())")
            suites.append(_suite(python, _borrowed(python, newer[0][1], theirs), FEWEST))
        else:
            print(f"no CPython {version} with its tests is here", file=sys.stderr)
    newest = os.environ.get(TESTS_OF_3_14)
    if newest and "3.14" not in own:
        latest = [version for version in VERSIONS if version in own][-1]
        python = _prepared(f"{latest}-3.14", own[latest][0])
        tests = _borrowed(python, Path(newest) / PACKAGE, f"3.14 for {NEW_IN_3_14.replace(' or ', ' and ')}")
        suites.append(_suite(python, tests, FEWEST_NEW_IN_3_14, NEW_IN_3_14))
    return suites


SUITES = _suites()
