"""`scaler_scheduler keys` is `scaler keys`, for hosts that have the scheduler only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.key_file import parse_key_file

TIMEOUT_SECONDS = 60


def run_keys(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scaler_appliance", "keys", *arguments],
        env={**os.environ, "SCALER_KEY_DIRECTORY": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )


def test_the_scheduler_s_program_makes_and_lists_keys(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    made = run_keys(folder, "new", "--role", "worker", "--name", "node1")
    assert made.returncode == 0, made.stderr
    assert parse_key_file(made.stdout, "output").keys.public in KeyDirectory(str(folder)).allow_list().grants

    listed = run_keys(folder, "list")
    assert "node1" in listed.stdout and listed.stderr == ""


def test_its_help_names_the_command_as_it_was_called(tmp_path: Path) -> None:
    assert "usage: scaler_scheduler keys new " in run_keys(tmp_path, "new", "-h").stdout
    assert "usage: scaler_scheduler keys " in run_keys(tmp_path).stderr
