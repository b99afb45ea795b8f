"""Monitors on the network need keys that may read the status; others are told nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator, Tuple

import pytest
from security.keyed_scheduler import TIMEOUT_SECONDS, KeyedScheduler


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedScheduler]:
    started = KeyedScheduler(tmp_path_factory.mktemp("watched"), "-ma", "tcp://127.0.0.2:*")
    yield started
    started.stop()


def look(watched: KeyedScheduler, *options: str, **environment: str) -> Tuple[int, str]:
    """What scaler_top prints, and its exit code."""
    command = [sys.executable, "-m", "scaler_appliance.top", watched.monitor_address, "--once", "--timeout", "4"]
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("role", ["monitor", "admin", "provisioner", "owner"])
def test_a_key_that_may_read_the_status_shows_it(watched: KeyedScheduler, role: str) -> None:
    code, text = look(watched, "--key-file", str(watched.admitted_key(role, f"{role}-watches")))
    assert code == 0 and "scheduler" in text, text


@pytest.mark.parametrize("role", ["client", "worker"])
def test_a_key_of_another_role_shows_nothing(watched: KeyedScheduler, role: str) -> None:
    code, text = look(watched, "--key-file", str(watched.admitted_key(role, f"{role}-pries")))
    assert code == 1 and "does not admit the one given" in text, text
    assert f"role {role} cannot be used by a monitor" in watched.log


def test_programs_of_the_scheduler_s_user_need_nothing(watched: KeyedScheduler) -> None:
    code, text = look(watched)
    assert code == 0, text


def test_a_monitor_without_a_key_is_told_how_to_get_one(watched: KeyedScheduler, tmp_path: Path) -> None:
    nothing = {"SCALER_KEY_DIRECTORY": str(tmp_path / "none"), "SCALER_RUN_DIRECTORY": str(tmp_path / "nothing-runs")}
    code, text = look(watched, **nothing)
    assert code == 1 and "there is no key for the scheduler" in text
    code, text = look(watched, "--insecure", **nothing)
    assert code == 1 and "requires a key" in text
