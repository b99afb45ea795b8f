"""What pip installs from the wheels works by itself, and the SDK alone with a scheduler that is a binary."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Dict, Optional

import pytest
from packaged import PEX, PYPY_FILE, TREE, assert_finds_itself_sound, assert_serves, built, clean_environment

pytestmark = pytest.mark.slow

README_PROGRAM = re.compile(r"```python\n(from scaler import.*?)```.*?```text\n(.*?)```", re.DOTALL)
LOCAL_CLUSTER = """
from scaler import Client, SchedulerClusterCombo

with SchedulerClusterCombo(n_workers=2, logging_level="WARNING") as cluster:
    with Client(address=cluster.get_address()) as client:
        print(client.map(abs, [-1, 2, -3]))
"""


@pytest.fixture
def binary() -> Path:
    """The scheduler as a user downloads it."""
    return PYPY_FILE if PYPY_FILE.exists() else built(PEX, "dist-pex")


def run(python: Path, program: str, env: Dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-c", program],
        cwd=env["HOME"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_quick_start_runs(local_python: Path, tmp_path: Path) -> None:
    found = README_PROGRAM.search((TREE / "README.md").read_text(encoding="utf-8"))
    assert found is not None

    finished = run(local_python, found[1], clean_environment(tmp_path))

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == found[2]


def test_the_scheduler_finds_itself_sound(local_python: Path, tmp_path: Path) -> None:
    assert_finds_itself_sound([str(local_python.parent / "scaler_scheduler")], clean_environment(tmp_path))


def test_the_sdk_alone_works_with_a_binary_scheduler(sdk_python: Path, binary: Path, tmp_path: Path) -> None:
    assert_serves([str(binary)], clean_environment(tmp_path), sdk_python, tmp_path)


@pytest.mark.parametrize("place", ["PATH", pytest.param("SCALER_SCHEDULER", marks=pytest.mark.exhaustive), None])
def test_a_local_cluster_of_the_sdk_alone_starts_the_binary_it_finds(
    place: Optional[str], sdk_python: Path, binary: Path, tmp_path: Path
) -> None:
    environment = clean_environment(tmp_path)
    if place == "PATH":
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "scaler_scheduler").symlink_to(binary)
        environment["PATH"] = f"{programs}:{environment['PATH']}"
    elif place is not None:
        environment[place] = str(binary)

    finished = run(sdk_python, LOCAL_CLUSTER, environment)

    if place is None:
        assert finished.returncode == 1
        assert "there is no scheduler on this machine" in finished.stderr
    else:
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.endswith("[1, 2, 3]\n")
