"""`scaler keys` is a command of `scaler`; its own tests are those of `scaler_protocol.keys`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.key_file import parse_key_file


def test_scaler_keys_makes_a_key(tmp_path: Path) -> None:
    folder = str(tmp_path / "keys")
    made = subprocess.run(
        [sys.executable, "-m", "scaler.programs", "keys", "new", "--role", "client"],
        env={**os.environ, "SCALER_KEY_DIRECTORY": folder},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert made.returncode == 0, made.stderr
    assert parse_key_file(made.stdout, "output").keys.public in KeyDirectory(folder).allow_list().grants
