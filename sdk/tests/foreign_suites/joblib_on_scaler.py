"""A plugin for pytest: joblib's calls run on a cluster of four slots, in the place of its own processes.

    pytest, this plugin ──▶ cluster; joblib's "loky" and "multiprocessing" are Scaler's ◀── the same in each worker

Rules:
- Tests that ask for another number of processes than four get them all the same: the cluster says how many run.
- With SCALER_SUITE_JOBS=N in the environment, calls that ask for no engine run on the cluster too, with N jobs; a test
  that has then run no call there is reported as skipped, not as passed.
- Scripts that tests start use the same cluster, and have more time for it than joblib's processes would.
"""

from __future__ import annotations

import multiprocessing
import os
from functools import partial
from pathlib import Path
from typing import Any, Callable, Generator, List

import pytest

SCRIPT_SECONDS = 100
NO_CALLS = "has run no call on the cluster"
KEY_OF_MANAGERS = b"the same in all processes of this suite"

_submitted = 0


def replace_engines() -> None:
    """In this process, joblib's engines with processes are Scaler's. Also run by workers, before their first task."""
    import joblib._parallel_backends
    import joblib.parallel

    from scaler.joblib import ScalerBackend

    for name in ("loky", "multiprocessing"):
        joblib.parallel.BACKENDS[name] = ScalerBackend
    # The class that tests compare with; `joblib.parallel` keeps its own, for what it does for this one only.
    joblib._parallel_backends.LokyBackend = ScalerBackend
    multiprocessing.current_process().authkey = KEY_OF_MANAGERS


def pytest_configure(config: Any) -> None:
    from scaler import SchedulerClusterCombo
    from scaler.adapters.joblib_workers import Workers

    config.scaler_cluster = SchedulerClusterCombo(
        n_workers=4, logging_level="WARNING", preload=f"{__name__}:replace_engines()"
    )
    os.environ["SCALER_ADDRESS"] = config.scaler_cluster.get_address()
    replace_engines()
    submit = Workers._submitted

    def counted(self: Workers, calls: Any) -> Any:
        global _submitted
        _submitted += 1
        return submit(self, calls)

    Workers._submitted = counted  # type: ignore[method-assign]  # to count


def pytest_collectstart() -> None:
    """Test modules import the class now, and joblib's own methods look for it later."""
    import joblib._parallel_backends

    from scaler.joblib import ScalerBackend

    joblib._parallel_backends.MultiprocessingBackend = ScalerBackend


def pytest_collection_finish(session: Any) -> None:
    import joblib._parallel_backends
    import joblib.parallel

    for module in {item.module for item in session.items}:
        run = getattr(module, "check_subprocess_call", None)
        if run is not None:
            module.check_subprocess_call = partial(_run_script, run)

    joblib._parallel_backends.MultiprocessingBackend = joblib.parallel.MultiprocessingBackend


def _run_script(run: Callable[..., Any], command: List[str], timeout: object = None, **expected: Any) -> Any:
    """Run a script, given as text or by its path, with Scaler in the place of joblib's processes."""
    prologue = f"import {__name__}; {__name__}.replace_engines()\n"
    python, *rest = command
    if rest[0] == "-c":
        return run([python, "-c", prologue + rest[1]], timeout=SCRIPT_SECONDS, **expected)
    script = Path(rest[0])
    script.write_text(prologue + script.read_text())
    return run(command, timeout=SCRIPT_SECONDS, **expected)


def pytest_unconfigure(config: Any) -> None:
    config.scaler_cluster.shutdown()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    return (yield from _refused_to_skip())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    jobs = os.environ.get("SCALER_SUITE_JOBS")
    if not jobs:
        return (yield)
    from joblib import parallel_config

    before = _submitted
    with parallel_config("loky", n_jobs=int(jobs)):
        result = yield from _refused_to_skip()
    if _submitted == before:
        pytest.skip(NO_CALLS)
    return result


def _refused_to_skip() -> Generator[None, Any, Any]:
    """Where tests without calls are skipped, a test that skips itself would pass for one of them."""
    try:
        return (yield)
    except pytest.skip.Exception as skipped:
        if not os.environ.get("SCALER_SUITE_JOBS"):
            raise
        pytest.fail(f"it skips itself: {skipped}")
