"""A provisioner has a key of its own role, and its workers have theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator, Tuple

import pytest
from sdk_tasks import identity
from security.keyed_scheduler import KeyedScheduler

TIMEOUT_SECONDS = 60.0


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[KeyedScheduler]:
    scheduler = KeyedScheduler(tmp_path)
    yield scheduler
    scheduler.stop()


@pytest.fixture
def pool(keyed: KeyedScheduler, tmp_path: Path) -> Iterator[Tuple[Path, Path]]:
    """The keys of a program that starts a worker of this host, and of that worker."""
    keys = keyed.admitted_key("provisioner"), keyed.admitted_key("worker")
    options = ["--minimum", "1", "--key-file", str(keys[0]), "--worker-key-file", str(keys[1])]
    command = [
        sys.executable,
        "-m",
        "scaler.provision",
        keyed.address,
        *options,
        "-lp",
        str(tmp_path / "provision.log"),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
    yield keys
    program.terminate()
    program.wait(TIMEOUT_SECONDS)


def test_workers_of_a_pool_have_a_key_of_their_own(keyed: KeyedScheduler, pool: Tuple[Path, Path]) -> None:
    with keyed.client(keyed.admitted_key("client")) as client:
        assert client.submit(identity, 7).result(TIMEOUT_SECONDS) == 7
        assert [each.slots for each in client.info().workers] == [1]
    assert "with the key 'provisioner' (provisioner" in keyed.log and "with the key 'worker' (worker" in keyed.log
