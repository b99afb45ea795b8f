"""CPython's own tests of executors, of each CPython that is here with its tests.

Rules:
- Each interpreter runs the tests that it ships, in an environment of its own, which is kept: `.venv-executor3.X`.
- Debian has the tests of its Python in a package: apt-get install libpython3.11-testsuite.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional

from suite import HERE, Suite

TREE = HERE.parents[2]
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
NEWER_FILES = ("test_as_completed", "test_init", "test_shutdown", "test_thread_pool", "test_wait")
"""From 3.12 on. The other files test `Future` by itself, and ProcessPoolExecutor."""

NO_SHARED_MEMORY = "a lock, a list or an event of this process is used by the calls, which run in other processes"
NO_THREADS = "the threads of ThreadPoolExecutor are counted, named or joined"

EXCLUDED = {
    "ProcessPool*": "the same for the pools of ProcessPoolExecutor, or about its processes and queues",
    "FutureTests::*": "about `Future` of the standard library, without an executor",
    "ThreadPoolWaitTests::test_pending_calls_race": NO_SHARED_MEMORY,
    "ThreadPoolShutdownTest::test_threads_terminate": NO_SHARED_MEMORY,
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
    "ThreadPoolShutdownTest::test_cancel_futures": "one call must have started when cancel_futures comes, microseconds"
    " after its submission; here all may be cancelled in time",
}


class SuiteOfPython(Suite):
    """The tests of an interpreter."""

    @property
    def version(self) -> str:
        """Of the interpreter."""
        return _output_of(self.python, "import platform; print(platform.python_version())")


def _output_of(python: str, script: str) -> str:
    """What a script prints; empty if it fails."""
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=False).stdout.strip()


def _interpreter_with_tests(version: str) -> Optional[str]:
    """An interpreter of a version that has its tests, if one is here."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"), reverse=True)
    for candidate in [*map(str, pyenv), f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"]:
        if os.path.exists(candidate) and _output_of(candidate, "import test.test_concurrent_futures; print(1)"):
            return candidate
    return None


def _prepared(version: str, interpreter: str) -> str:
    """The interpreter of an environment with this tree and pytest."""
    environment = TREE / f".venv-executor{version}"
    python = str(environment / "bin/python")
    if not os.path.exists(python) or not _output_of(python, "import scaler, pytest, pytest_timeout; print(1)"):
        subprocess.run([interpreter, "-m", "venv", "--clear", str(environment)], check=True)
        packages = ["-e", "protocol-spec/python", "-e", "appliance", "-e", "sdk[local]", "pytest>=8", "pytest-timeout"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], cwd=TREE, check=True)
    return python


def _excluded(files: List[Path]) -> Dict[str, str]:
    """What is excluded of those tests that these files have: each version has some more."""
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    return {
        pattern: why
        for pattern, why in EXCLUDED.items()
        if f"def {pattern.rpartition('::')[2]}(" in text
        or (pattern == "FutureTests::*" and "class FutureTests" in text)
        or (pattern == "ProcessPool*" and "create_executor_tests" in text)
    }


def _suite(version: str) -> Optional[Suite]:
    interpreter = _interpreter_with_tests(version)
    if interpreter is None:
        print(f"no CPython {version} with its tests is here", file=sys.stderr)
        return None
    folder = Path(_output_of(interpreter, "import test; print(test.__path__[0])"))
    files = [folder / "test_concurrent_futures.py"]
    if not files[0].exists():
        files = [folder / "test_concurrent_futures" / f"{name}.py" for name in NEWER_FILES]
    texts = files if len(files) == 1 else [*files, files[0].parent / "executor.py"]
    return SuiteOfPython(
        adapter="ScalerExecutor",
        distribution="CPython",
        files=list(map(str, files)),
        fewest=28,
        excluded=_excluded(texts),
        plugin="executor_in_cpython",
        arguments=["-c", os.devnull, f"--rootdir={folder.parent}", f"--confcutdir={folder.parent}", "--timeout=120"],
        python=_prepared(version, interpreter),
    )


SUITES = [suite for suite in map(_suite, VERSIONS) if suite is not None]
