"""A plugin for pytest: leaves out the tests that do not apply, and says which these were.

It runs in the environment of another project's tests, and imports nothing of Scaler.
"""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Any, List

import pytest


@pytest.hookimpl(trylast=True)  # what -k leaves
def pytest_collection_modifyitems(config: Any, items: List[Any]) -> None:
    patterns = os.environ["SCALER_EXCLUDED_PATTERNS"].split("\n")
    excluded = [each for each in items if any(fnmatch.fnmatchcase(_id_of(each), pattern) for pattern in patterns)]
    if excluded:
        config.hook.pytest_deselected(items=excluded)
        items[:] = [each for each in items if each not in excluded]
    if getattr(config, "workerinput", {}).get("workerid", "gw0") == "gw0":  # with xdist, the first of its processes
        Path(os.environ["SCALER_EXCLUDED_FILE"]).write_text("".join(f"{_id_of(each)}\n" for each in excluded))


def _id_of(item: Any) -> str:
    """As the report has it: the innermost class or module, and the name with its parameters."""
    owner = item.parent.name if item.parent is not None else ""
    return f"{owner.rpartition('/')[2].removesuffix('.py')}::{item.name}"
