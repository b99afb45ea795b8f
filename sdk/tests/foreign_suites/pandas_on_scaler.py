"""A plugin for pytest: where pandas' tests use their engine of `apply` and `map`, they use Scaler's."""

from __future__ import annotations

import os
import sys
from typing import Any


def pytest_configure(config: Any) -> None:
    from scaler import SchedulerClusterCombo

    config.scaler_cluster = SchedulerClusterCombo(n_workers=2, logging_level="WARNING")
    os.environ["SCALER_ADDRESS"] = config.scaler_cluster.get_address()


def pytest_collection_finish() -> None:
    from scaler.pandas import engine

    # pandas' tests refer to this class by name, so it stays.
    theirs: Any = sys.modules["pandas.tests.apply.conftest"]
    theirs.MockEngineDecorator.__pandas_udf__ = engine.__pandas_udf__


def pytest_unconfigure(config: Any) -> None:
    config.scaler_cluster.shutdown()
