"""`Client.info`: what the scheduler says of its cluster."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import List

import pytest

from scaler import Client, Scheduler
from scaler.exceptions import DisconnectedError


def hold(running: str, go: str) -> None:
    Path(running).touch()
    while not os.path.exists(go):
        time.sleep(0.01)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_an_idle_cluster(client: Client, address: str) -> None:
    client.submit(abs, -1).result()
    info = client.info()
    assert info.address == address
    assert info.scheduler == "scaler-appliance" and info.version and "Python" in info.language
    assert info.uptime_seconds > 0 and info.clients >= 1
    assert (info.worker_count, info.slots, len(info.workers)) == (1, 4, 1)
    assert info.tasks_waiting == 0
    assert info.workers[0].slots == 4 and info.workers[0].host


def test_a_task_that_runs_is_counted(client: Client, done_files: List[Path]) -> None:
    running, go = done_files
    future = client.submit(hold, str(running), str(go))
    wait_for(running)
    info = client.info()
    assert info.tasks_running == 1 and info.slots_free == 3
    assert info.workers[0].tasks == 1
    go.touch()
    future.result()
    assert client.info().slots_free == 4


def test_no_more_workers_are_listed_than_asked_for(any_client: Client) -> None:
    any_client.submit(abs, -1).result()
    info = any_client.info(maximum_workers=0)
    assert info.workers == () and info.worker_count == info.workers_not_listed == 1
    assert str(info).endswith("  and 1 more")
    with pytest.raises(ValueError, match="at least 0"):
        any_client.info(maximum_workers=-1)
    with pytest.raises(TypeError):
        any_client.info(maximum_workers=1.5)  # type: ignore[arg-type]


def test_an_end_is_said() -> None:
    with Scheduler(logging_level="WARNING") as scheduler:
        with Client(address=scheduler.get_address()) as client:  # type: ignore[attr-defined]
            assert client.info().worker_count == 0
            scheduler._process.kill()  # type: ignore[union-attr]
            with pytest.raises(DisconnectedError, match=r"has not answered for 0\.2 s"):
                client.info(timeout_seconds=0.2)
        with pytest.raises(DisconnectedError, match="make a new Client"):
            client.info()
