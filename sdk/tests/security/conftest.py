"""Schedulers with keys, and what belongs to them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List, Optional

import pytest
from security.attackers.another_user import AnotherUser
from security.keyed_scheduler import TIMEOUT_SECONDS, KeyedScheduler, StartWorker


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedScheduler]:
    """With all settings as they are by default."""
    started = KeyedScheduler(tmp_path_factory.mktemp("scheduler"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def another_user() -> Iterator[AnotherUser]:
    """The attacker of the tests of the negative matrix."""
    folder = Path(tempfile.mkdtemp(prefix="scaler-another-user-"))  # pytest's own folders are private
    folder.chmod(0o711)
    yield AnotherUser(folder / "files")
    shutil.rmtree(folder)


@pytest.fixture
def workers(scheduler: KeyedScheduler) -> Iterator[StartWorker]:
    """Starts workers that end with the test."""
    started: List[subprocess.Popen[bytes]] = []

    def start(*options: str, key_file: Path, environment: Optional[Dict[str, str]] = None) -> subprocess.Popen[bytes]:
        started.append(scheduler.worker(*options, key_file=key_file, environment=environment))
        return started[-1]

    yield start
    for worker in started:
        worker.terminate()
        worker.wait(TIMEOUT_SECONDS)
