"""The tests of the protocol and the scheduler, run on PyPy.

Rules:
- `make test` sets up .venv-pypy. Without PyPy, these tests are skipped with a message.
- A property is tried with a tenth of its examples, since CPython tries it with all. Of the scheduler's tests, those run
  that go through all of it: its simulation, adversarial peers, and its shell. `make test-all` tries all here.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Callable

import pytest

TREE = Path(__file__).resolve().parents[2]
ENVIRONMENT = TREE / ".venv-pypy"

TIME_LIMIT_SECONDS = 900
EXAMPLES_PERCENT = 10
CHOSEN = {
    "protocol-spec/python/tests": ("protocol-spec/python/tests",),
    "appliance/tests": tuple(f"appliance/tests/{each}" for each in ("simulation", "adversarial", "shell")),
}
"""What runs of each folder, but for `make test-all`."""


@pytest.mark.slow
@pytest.mark.timeout(TIME_LIMIT_SECONDS + 60)
@pytest.mark.skipif(not (ENVIRONMENT / ".packages").exists(), reason="no PyPy here (make test says why)")
@pytest.mark.parametrize("folder", CHOSEN)
def test_suite_passes_on_pypy(
    folder: str, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    is_exhaustive = "not exhaustive" not in request.config.getoption("-m")
    percent = 100 if is_exhaustive else EXAMPLES_PERCENT
    marks = "not slow" if is_exhaustive else "not slow and not exhaustive"
    finished = subprocess.run(
        # Without pytest's rewriting of assertions: compiling rewritten modules sometimes crashes PyPy 7.3.11.
        [
            str(ENVIRONMENT / "bin/pypy3"),
            *("-m", "pytest", "--assert=plain", "-p", "no:cacheprovider", "--color=no", "-m", marks),
            *((folder,) if is_exhaustive else CHOSEN[folder]),
            "--ignore=appliance/tests/browser",  # which needs the SDK, and tries what a browser makes of the pages
            *("-k", "not cpython and not pypy"),  # programs on either have been tried from CPython
        ],
        cwd=TREE,
        env={**os.environ, "SCALER_EXAMPLES_PERCENT": str(percent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
    )

    assert finished.returncode == 0, finished.stdout
    # Said again below the summary of the whole run, since this suite counts as one test there.
    record_property("on PyPy", f"{folder}: {finished.stdout.rstrip().splitlines()[-1].strip('= ')}")
