"""joblib's and scikit-learn's own tests, on the joblib backend; and pandas' of engines."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import List

from suite import Suite


def folder_of(package: str) -> Path:
    """Where a package is installed."""
    found = find_spec(package)
    assert found is not None and found.origin is not None, f"{package} is not installed: run make adapters"
    return Path(found.origin).parent


def arguments_for(package: str) -> List[str]:
    """pytest's arguments for the tests of a package as if it were installed elsewhere than in this tree."""
    folder = folder_of(package)
    return ["-c", os.devnull, f"--rootdir={folder}", f"--confcutdir={folder}", "--timeout=120"]


JOBLIB = Suite(
    adapter="joblib",
    distribution="joblib",
    files=[str(folder_of("joblib") / "test/test_parallel.py")],
    fewest=650,
    plugin="joblib_on_scaler",
    arguments=arguments_for("joblib"),
    excluded={
        "*::test_effective_n_jobs_None[[]negative-int-*": "compares this machine's CPUs with the slots of the cluster",
        "*::test_nested_backend_in_sequential*": "expects one job by default, and the backend's default is the cluster",
        "*::test_nested_parallel_warnings*": "expects a warning that nested calls are impossible, which they are not",
        "*::test_nested_backend_context_manager[[]*-[lmb]*": "expects threads for nested calls, which use the cluster",
        "*::test_nested_parallelism_limit*-loky]": "expects threads for nested calls, which use the cluster",
        "*::test_auto_memmap_on_arrays_from_generator*": "asks for numpy.memmap, where Scaler maps plain arrays",
        "*::test_memmapping_leaks*": "asks for numpy.memmap, where Scaler maps plain arrays",
        "*::test_multiple_generator_call_separated_gc[[]*-loky-True]": (
            "expects that a second call at the same time is refused, and it is not"
        ),
        "*::test_initializer_not_reused*": "expects new processes for another initializer, which runs in the same ones",
        "*::test_thread_bomb_mitigation[[]loky-*": (
            "raises a RecursionError too deep to be pickled, for which joblib expects its own workers to crash"
        ),
        "*::test_parallel_with_interactively_defined_bound_method_loky": "looks into the log of joblib's own processes",
        "*::test_backend_no_multiprocessing": "is for systems without processes",
        "*::test_dask_backend_when_dask_not_installed*": "is about Dask",
    },
    skipping={
        "*::test_parallel_with_unpicklable_functions_in_args*": "is for engines that cannot send lambdas",
        "*::test_parallel_thread_limit*": "needs a C extension of joblib's source tree, which its wheel lacks",
    },
)

# Tried: with n_jobs=2 on "loky", exactly these tests fail as well.
LOOK_HERE = "looks in this process for what calls have done there, and fails with joblib's own processes too"

SKLEARN = Suite(
    adapter="joblib",
    distribution="scikit-learn",
    files=[
        str(folder_of("sklearn") / file)
        for file in (
            "utils/tests/test_parallel.py",
            "model_selection/tests/test_search.py",
            "ensemble/tests/test_voting.py",
            "ensemble/tests/test_stacking.py",
        )
    ],
    fewest=199,
    plugin="joblib_on_scaler",
    arguments=arguments_for("sklearn"),
    excluded={
        "*::test_grid_search_cv_splits_consistency": "passes a generator to calls, which no process can",
        "*::test_parallel_delayed_warnings": LOOK_HERE,
        "*::test_searchcv_raise_warning_with_non_finite_score*": LOOK_HERE,
        "*::test_search_cv_verbose_3*": LOOK_HERE,
        "*::test_multi_metric_search_forwards_metadata*": LOOK_HERE,
        "*::test_search_callbacks_receive_search_instance*": LOOK_HERE,
        "*::test_search_callbacks_with_partial_fit_failures": LOOK_HERE,
        "*::test_voting_verbose*": LOOK_HERE,
        "*::test_metadata_routing_for_voting_estimators*": LOOK_HERE,
        "*::test_metadata_routing_for_stacking_estimators*": LOOK_HERE,
    },
    skipping={"*": "makes no parallel calls"},
    environment={"SCALER_SUITE_JOBS": "2"},
)

PANDAS = Suite(
    adapter="pandas",
    distribution="pandas",
    files=[
        str(folder_of("pandas") / "tests" / file)
        for file in ("apply/test_frame_apply.py", "apply/test_series_apply.py", "series/methods/test_map.py")
    ],
    fewest=46,
    plugin="pandas_on_scaler",
    arguments=[*arguments_for("pandas"), "-k", "MockEngineDecorator"],
    excluded={"*::test_apply_raw_function_runs_once*": "appends to a list of this process, not of the worker's"},
    skipping={"*::test_apply_args*": "have a second half about another engine, numba"},
)

SUITES: List[Suite] = [JOBLIB, SKLEARN, PANDAS]
