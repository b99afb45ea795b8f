"""joblib's and scikit-learn's own tests, on the joblib backend."""

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
    fewest=1,
    plugin="joblib_on_scaler",
    arguments=arguments_for("joblib"),
)

SUITES: List[Suite] = [JOBLIB]
