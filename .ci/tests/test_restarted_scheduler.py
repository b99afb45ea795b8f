"""A scheduler that met a bug of its own is replaced, and no future is lost by it."""

from __future__ import annotations

import shlex
import sys
from operator import neg
from pathlib import Path

import pytest

from scaler import Client, SchedulerClusterCombo

FAULTY_SCHEDULER = Path(__file__).resolve().parents[2] / "appliance/tests/faulty_scheduler.py"


def test_clients_get_every_result_from_the_scheduler_that_replaces_a_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "marker"
    monkeypatch.setenv("SCALER_SCHEDULER", shlex.join([sys.executable, str(FAULTY_SCHEDULER), str(marker)]))
    with (
        SchedulerClusterCombo(n_workers=2, logging_level="WARNING") as cluster,
        Client(cluster.get_address()) as client,
    ):
        first, address = cluster.scheduler.pid, cluster.get_address()
        futures = [client.submit(neg, number) for number in range(500)]
        mapped = client.map(neg, range(5000))

        assert [future.result(60) for future in futures] == [-number for number in range(500)]
        assert mapped == [-number for number in range(5000)]
        assert marker.exists(), "the fault was planted"
        assert cluster.scheduler.is_alive() and cluster.scheduler.pid != first and cluster.get_address() == address
        assert client.submit(neg, 1).result(60) == -1


def test_a_scheduler_that_was_killed_is_not_replaced() -> None:
    cluster = SchedulerClusterCombo(n_workers=0, logging_level="WARNING")
    try:
        cluster.scheduler.kill()
        assert cluster.scheduler.join(30) == -9
        assert not cluster.scheduler.is_alive()
    finally:
        cluster.shutdown()
