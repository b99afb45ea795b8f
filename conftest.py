"""What all tests share: no test finds a scheduler that it did not start, and other programs find none of a test.

Rules: schedulers announce themselves in a folder of this test process, removed at its end.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest


def pytest_configure(config: pytest.Config) -> None:
    folder = tempfile.mkdtemp(prefix="scaler-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["SCALER_RUN_DIRECTORY"] = folder
    os.environ.pop("SCALER_ADDRESS", None)
