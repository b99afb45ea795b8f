"""A plugin for pytest: CPython's tests of ThreadPoolExecutor get a ScalerExecutor instead.

Rules:
- All executors of a run use one cluster, which saves minutes. The scripts that tests start have clusters of their own.
- The tests are CPython's own files, unchanged. Only their mixin that names the class of executor is changed, and the
  scripts that they start import that class from where it is.
- Events that tests and calls share are those of a manager, which the tests give to ProcessPoolExecutor.
- CPython's helper that looks for left threads does so after a garbage collection: clients are in cycles with theirs.
- Of each kind of test there is one class for threads and several for processes: those for threads are run.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import multiprocessing
from typing import Any, List, Optional

import pytest

KEY = b"tests of executors"
SLOTS = 5  # as many as the tests ask for
MODULES = ("test.test_concurrent_futures", "test.test_concurrent_futures.util", "test_concurrent_futures.util")
"""By the last name if an interpreter lacks these tests, and runs those of another version."""


def pytest_configure(config: Any) -> None:
    from scaler import ScalerExecutor, SchedulerClusterCombo

    # Workers import the modules of the tests, too.
    cluster = SchedulerClusterCombo(n_workers=SLOTS, logging_level="WARNING", preload=f"{__name__}:complete_support()")
    config.scaler_cluster = cluster

    class OnOneCluster(ScalerExecutor):
        def __init__(self, max_workers: Optional[int] = None, **options: Any) -> None:
            if max_workers is None or max_workers > 0:
                super().__init__(cluster.get_address(), **options)
            else:
                super().__init__(max_workers=max_workers, **options)

    complete_support()
    for name in ("test.support", "test.support.threading_helper"):
        _collect_before_looking_for_threads(name)
    OnOneCluster.__name__ = ScalerExecutor.__name__  # in scripts
    for name in MODULES:
        try:
            mixin = getattr(importlib.import_module(name), "ThreadPoolMixin", None)
        except ModuleNotFoundError:
            continue
        if mixin is not None:
            mixin.executor_type = OnOneCluster
            _share_events(mixin)


def _share_events(mixin: Any) -> None:
    if not hasattr(mixin, "create_event"):
        return

    def create_event(test: Any) -> Any:
        if test.manager is None:
            test.manager = multiprocessing.get_context("spawn").Manager()
        return test.manager.Event()

    mixin.create_event = create_event


def complete_support() -> None:
    """Give `test.support` of an earlier Python what the tests of a later one import from it, and processes the key of
    managers."""
    multiprocessing.current_process().authkey = KEY
    support: Any = importlib.import_module("test.support")
    if not hasattr(support, "Py_GIL_DISABLED"):
        support.Py_GIL_DISABLED = False
        support.requires_gil_enabled = lambda _: _as_it_is
    skip = getattr(support, "skip_if_sanitizer", None)
    if skip is not None and "thread" not in inspect.signature(skip).parameters:
        support.skip_if_sanitizer = lambda *reason, thread=False, **others: (
            skip(*reason, **others) if others else _as_it_is
        )


def _collect_before_looking_for_threads(name: str) -> None:
    try:
        module: Any = importlib.import_module(name)
    except ModuleNotFoundError:
        return
    look = getattr(module, "threading_cleanup", None)
    if look is not None:
        module.threading_cleanup = lambda *before: (gc.collect(), look(*before))


def _as_it_is(test: Any) -> Any:
    return test


def pytest_unconfigure(config: Any) -> None:
    config.scaler_cluster.shutdown()


def pytest_collection_modifyitems(items: List[Any]) -> None:
    """The scripts of the tests import the executor from `scaler`."""
    for module in {item.module for item in items}:
        run = getattr(module, "assert_python_ok", None)
        if run is None:
            continue

        def run_with_scaler(*arguments: str, _run: Any = run) -> Any:
            scripts = [
                each.replace("from concurrent.futures import ScalerExecutor", "from scaler import ScalerExecutor")
                for each in arguments
            ]
            return _run(*scripts)

        module.assert_python_ok = run_with_scaler


@pytest.fixture(autouse=True)
def _threads_of_earlier_tests_are_gone() -> None:
    """That helper counts them before a test, too."""
    gc.collect()
