"""Ctrl-C while a program still begins, and a reader that has enough: it ends at once, and says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, List

import pytest

TIMEOUT_SECONDS = 60

SCALER_CLUSTER = ["-c", "import sys; from scaler.programs.worker_host import main; sys.exit(main())"]


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (["-m", "scaler.programs", "dev"], "scaler.cluster.appliance"),
        (["-m", "scaler.programs", "dev"], "scaler.client"),
        (["-m", "scaler.programs", "scaler.toml"], "scaler.programs.from_file"),
        (["-m", "scaler.worker", "tcp://127.0.0.1:1"], "scaler.worker.worker_program"),
        (["-m", "scaler.worker", "tcp://127.0.0.1:1"], "scaler.worker.agent.shell.agent_shell"),
        ([*SCALER_CLUSTER, "tcp://127.0.0.1:1"], "scaler.worker.supervisor"),
        ([*SCALER_CLUSTER, "tcp://127.0.0.1:1"], "scaler.worker.agent.shell.agent_shell"),
    ],
)
def test_a_program_that_is_interrupted_while_it_begins_ends_without_a_word(
    command: List[str], module: str, run_interrupted: Callable[[List[str], str], subprocess.CompletedProcess[str]]
) -> None:
    ended = run_interrupted(command, module)
    assert ended.returncode == 130, ended.stdout + ended.stderr
    assert ended.stderr == ""


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "scaler.programs", "-h"],
        ["-m", "scaler.programs", "dev", "-h"],
        ["-m", "scaler.programs", "--print-config", "scaler.toml"],
        ["-m", "scaler.worker", "--print-config"],
        [*SCALER_CLUSTER, "--print-config"],
    ],
)
def test_a_reader_that_has_gone_is_no_error(command: List[str], tmp_path: Path) -> None:
    (tmp_path / "scaler.toml").write_text("[cluster]\nnum_of_workers = 1\n")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, *command], stdout=writer, stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS, cwd=tmp_path
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")
