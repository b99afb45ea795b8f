"""A plugin for pytest: Dask's own tests with a cluster as the scheduler.

Rules:
- Whatever a test computes without naming a scheduler runs on the cluster, and so does what Dask's `assert_eq` computes,
  which names the synchronous one if the test names none.
- The tasks that run are counted: too few are an error, for then the tests have run elsewhere.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any, List

import dask
import dask.array.utils
import dask.bag.utils
import dask.base
import dask.dataframe.utils
import pytest

from scaler import Client, SchedulerClusterCombo
from scaler.adapters import dask_graphs

FEWEST_TASKS = "SCALER_FEWEST_TASKS"
COUNTS = "SCALER_TASK_COUNTS"  # a file: the number of tasks of each process, a line
NAME = "scaler"

_tasks: List[int] = []
_open: List[Any] = []


def pytest_configure(config: Any) -> None:
    if not hasattr(config, "workerinput"):
        folder = Path(os.environ["SCALER_EXCLUDED_FILE"]).parent
        os.environ[COUNTS] = str(folder / "task_counts")
        Path(os.environ[COUNTS]).touch()
        if getattr(config.option, "numprocesses", None):
            return  # only its workers run tests
    combo = SchedulerClusterCombo(n_workers=2, logging_level="WARNING")
    client = Client(address=combo.get_address())
    _open.extend([client, combo])
    _count_tasks()
    dask.base.named_schedulers[NAME] = client.dask_get
    dask.config.set(scheduler=NAME)
    for function in (
        dask.array.utils.assert_eq,
        dask.bag.utils.assert_eq,
        dask.dataframe.utils.assert_eq,
        dask.dataframe.utils.assert_divisions,
    ):
        _name_scheduler(function)


def _name_scheduler(function: Any) -> None:
    """Replace the default of the parameter `scheduler`."""
    parameters = inspect.signature(function).parameters.values()
    if (function.__kwdefaults__ or {}).get("scheduler"):
        function.__kwdefaults__["scheduler"] = NAME
    with_defaults = [
        each.name for each in parameters if each.default is not each.empty and each.kind != each.KEYWORD_ONLY
    ]
    defaults = list(function.__defaults__ or ())
    if "scheduler" in with_defaults:
        defaults[with_defaults.index("scheduler")] = NAME
        function.__defaults__ = tuple(defaults)


def _count_tasks() -> None:
    names = vars(dask_graphs)
    submit = names["submit_nodes"]

    def counted(client: Any, order: Any, *rest: Any) -> Any:
        _tasks.append(len(order))
        return submit(client, order, *rest)

    names["submit_nodes"] = counted


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: Any) -> None:
    counts = Path(os.environ[COUNTS])
    with counts.open("a") as file:
        file.write(f"{sum(_tasks)}\n")
    for each in _open:
        each.disconnect() if isinstance(each, Client) else each.shutdown()
    if not hasattr(session.config, "workerinput"):
        total = sum(map(int, counts.read_text().split()))
        print(f"\n{total} tasks of Dask have run on the cluster")
        if total < int(os.environ[FEWEST_TASKS]):
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
