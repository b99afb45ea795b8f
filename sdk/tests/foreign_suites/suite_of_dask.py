"""Dask's own tests, with the cluster as the scheduler.

Rule: of its 177 files, those are run that compute much and leave the scheduler open: delayed calls, bags, arrays,
dataframes, and what these have in common. The others test how graphs are made and optimised, files and formats, the
schedulers of Dask itself, and `distributed`.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Dict, List

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

IN_PROCESS = "looks at what tasks have changed in its own process, and they run in others"
STORES = "stores into memory of its own process, and tasks run in others"
IDENTITY = "expects the same object, which has travelled to another process and back"
DEFAULT = "expects that no scheduler is configured"
WARNINGS = "expects a warning in its own process, and tasks run in others"
OPEN_FILE = "writes to an open HDF5 file, which cannot leave its process"
ALWAYS = "is skipped by Dask itself, always"
OLDER_PANDAS = "is for pandas before version 3"
NETWORK = "fetches a file of Amazon's S3, and Dask expects it to fail"

EXCLUDED: Dict[str, str] = {
    "test_base::test_compute_array_bag": DEFAULT,
    "test_base::test_persist_array_bag": DEFAULT,
    "test_base::test_get_scheduler": DEFAULT,
    "test_base::test_visualize*": "draws graphs, and computes nothing",
    "test_delayed::test_traverse_false": IDENTITY,
    "test_graph_manipulation::test_bind[[]*": IN_PROCESS,
    "test_bag::test_bag_with_single_callable": IDENTITY,
    "test_bag::test_reductions_are_lazy": "has a generator in its graph, which cannot leave its process",
    "test_bag::test_repartition_partition_size_complex_dtypes": IDENTITY,
    "test_bag::test_to_delayed_optimize_graph": IN_PROCESS,
    "test_array_core::test_from_array_getitem[[]*-True]": IN_PROCESS,
    "test_array_core::test_from_array_with_lock*": IN_PROCESS,
    "test_array_core::test_memmap": STORES,
    "test_array_core::test_to_hdf5": OPEN_FILE,
    "test_array_core::test_store": STORES,
    "test_array_core::test_store_compute_false": STORES,
    "test_array_core::test_store_delayed_target": STORES,
    "test_array_core::test_store_locks_count_calls*": IN_PROCESS,
    "test_array_core::test_store_regions": STORES,
    "test_array_core::test_zarr_existing_array": STORES,
    "test_array_core::test_zarr_regions": STORES,
    "test_array_core::test_zarr_to_zarr_shards*": STORES,
    "test_bag::test_from_s3": NETWORK,
    "test_reductions::test_array_cumreduction_axis[[]blelloch-None-*-cumprod]": WARNINGS,
    "test_reductions::test_array_cumreduction_axis[[]blelloch-None-*-nancumprod]": WARNINGS,
    "test_reductions::test_nanquantile_all_nan": WARNINGS,
    "test_routines::test_average_raises": WARNINGS,
}

SKIPPING: Dict[str, str] = {
    "test_bag::test_from_url": ALWAYS,
    "test_slicing::test_slicing_exhaustively": ALWAYS,
    "test_groupby::test_apply_or_transform_shuffle_multilevel[[]*-False]": OLDER_PANDAS,
    "test_array_core::test_scipy_sparse_indexing[[]cupyx*": "needs a GPU",
}

# Among Dask's own settings for pytest is that its warnings are errors; a test expects this one to be raised.
FILTERS = ["-Wignore", "-Werror::dask.array.core.PerformanceWarning"]

DASK = Suite(
    adapter="Dask",
    distribution="dask",
    files=[str(FOLDER / each) for each in FILES],
    fewest=3000,
    plugin="dask_on_scaler",
    arguments=["-c", os.devnull, f"--rootdir={FOLDER}", f"--confcutdir={FOLDER}", "--timeout=300", "-n2", *FILTERS],
    environment={FEWEST_TASKS: "50000"},
    excluded=EXCLUDED,
    skipping=SKIPPING,
)

SUITES: List[Suite] = [DASK]
