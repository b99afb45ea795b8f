"""Dask's own tests, with the cluster as the scheduler.

Of its 177 files, those are run that compute, and that do not ask for a scheduler by themselves: delayed calls, bags, arrays,
dataframes, and what all of these have in common. The others test how graphs are made and optimised, files, the schedulers
of Dask itself, and `distributed`.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import List

from dask_on_scaler import FEWEST_TASKS
from suite import Suite


def folder_of(package: str) -> Path:
    """Where a package is installed."""
    found = find_spec(package)
    assert found is not None and found.origin is not None, f"{package} is not installed: run make adapters"
    return Path(found.origin).parent


FOLDER = folder_of("dask")

FILES = (
    "tests/test_base.py",
    "tests/test_callbacks.py",
    "tests/test_delayed.py",
    "tests/test_graph_manipulation.py",
    "bag/tests/test_bag.py",
    "array/tests/test_array_core.py",
    "array/tests/test_linalg.py",
    "array/tests/test_overlap.py",
    "array/tests/test_rechunk.py",
    "array/tests/test_reductions.py",
    "array/tests/test_routines.py",
    "array/tests/test_slicing.py",
    "dataframe/dask_expr/tests/test_groupby.py",
    "dataframe/dask_expr/tests/test_merge.py",
    "dataframe/dask_expr/tests/test_reductions.py",
    "dataframe/dask_expr/tests/test_shuffle.py",
)

EXCLUDED = {}

DASK = Suite(
    adapter="Dask",
    distribution="dask",
    files=[str(FOLDER / each) for each in FILES],
    fewest=3000,
    plugin="dask_on_scaler",
    arguments=["-c", os.devnull, f"--rootdir={FOLDER}", f"--confcutdir={FOLDER}", "--timeout=300", "-n2", "-Wignore"],
    environment={FEWEST_TASKS: "50000"},
    excluded=EXCLUDED,
)

SUITES: List[Suite] = [DASK]
