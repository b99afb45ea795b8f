"""The implementations of this tree conform.

In `make test`, those in Python do not import for each case what they are made of: `preloaded_programs.py`. Their own
commands start them in the few cases that show whether a set-up works, and in `make test-all` in all cases.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import List

import pytest
from implementations import Implementation, implementations
from preloaded_programs import PreloadedPrograms

from scaler_conformance.benches import implementation as command_starts

EXHAUSTIVE = {"scheduler-pypy"}  # the same scheduler as on CPython
PRELOADED = {
    "python-client": ["scaler.client.client", "scaler.data_serving.data_connections", "encodings.idna"],
    "scheduler": [
        "scaler_appliance.shell.scheduler_program",
        "scaler_protocol.programs.options.command_line",
        "encodings.idna",
    ],
    "worker-sdk": [
        "scaler.programs.worker_host",
        "scaler.compat.installation",
        "scaler.supported_systems",
        "scaler.worker.supervisor",
        "scaler.worker.agent.shell.agent_shell",
        "scaler_protocol.programs.options.command_line",
        "encodings.idna",
    ],
}
"""What each of them imports, before and after it has read its options."""


def _each() -> List[object]:
    return [
        pytest.param(each, id=each.name, marks=[pytest.mark.exhaustive] if each.name in EXHAUSTIVE else [])
        for each in implementations()
    ]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("implementation", _each())
def test_it_conforms(
    implementation: Implementation, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_exhaustive = "not exhaustive" not in request.config.getoption("-m")
    if is_exhaustive or implementation.name not in PRELOADED:
        check(implementation, tmp_path)
        return
    with PreloadedPrograms(PRELOADED[implementation.name]) as programs:
        stand_in = SimpleNamespace(Popen=programs.start, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)
        monkeypatch.setattr(command_starts, "subprocess", stand_in)
        check(implementation, tmp_path)


@pytest.mark.parametrize("name", PRELOADED)
def test_its_own_command_starts_it(name: str, tmp_path: Path) -> None:
    check(named(name), tmp_path, "--smoke")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [pytest.param("worker-sdk", marks=pytest.mark.exhaustive), "worker-cpp"])
def test_a_worker_conforms_with_a_key_too(name: str, tmp_path: Path) -> None:
    """In every case, and not only in those about keys. A fraction of the randomised repetitions is enough for that."""
    check(named(name), tmp_path, "--with-keys", "--effort", "0.1")


def named(name: str) -> Implementation:
    (found,) = [each for each in implementations() if each.name == name]
    return found


def check(implementation: Implementation, folder: Path, *options: str) -> None:
    if implementation.missing:
        pytest.skip(f"there is no {implementation.missing[0]}")
    report = folder / "report.json"
    usual = ["--jobs", "3", "--seed", "1", "--quiet", "--strict", "--json", str(report)]
    assert implementation.run(*usual, *options) == 0
