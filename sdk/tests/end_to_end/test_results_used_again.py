"""Large results that are arguments of other tasks, when they are no longer where they were placed."""

from __future__ import annotations

import os
import signal

import pytest
from quiet_addresses import quiet_address

from scaler import Client, Cluster, Scheduler

TIMEOUT_SECONDS = 60.0
LARGE_BYTES = 200_000


def lengthen(number: int, data: bytes) -> int:
    return number + len(data)


@pytest.mark.parametrize("sees_the_same_memory", [True, False], ids=["same host", "other host"])
@pytest.mark.parametrize("is_loaded", [True, False], ids=["loaded", "as received"])
def test_tasks_get_results_from_a_scheduler_that_is_killed_before(
    monkeypatch: pytest.MonkeyPatch, sees_the_same_memory: bool, is_loaded: bool
) -> None:
    """No worker runs before the second scheduler does, so that everything has to be sent again."""
    if not sees_the_same_memory:
        monkeypatch.setattr("scaler.client.shell.client_object_files.shares_directory", lambda path, token: False)
    address = quiet_address()
    scheduler = Scheduler(address=address, logging_level="ERROR")
    scheduler.start()
    workers = Cluster(address, 1, logging_level="CRITICAL")
    workers.start()
    with Client(address) as client:
        made = client.submit(bytes, LARGE_BYTES)
        client.wait([made])
        if is_loaded:
            assert len(made.result()) == LARGE_BYTES
        workers.shutdown()
        users = [client.submit(lengthen, number, made) for number in range(3)]
        client._shell.flush(None)
        assert scheduler.pid is not None
        os.kill(scheduler.pid, signal.SIGKILL)
        scheduler.join(TIMEOUT_SECONDS)

        scheduler = Scheduler(address=address, logging_level="ERROR")
        scheduler.start()
        users += [client.submit(lengthen, number, made) for number in range(3, 5)]
        workers = Cluster(address, 1, logging_level="CRITICAL")
        workers.start()
        assert [user.result(TIMEOUT_SECONDS) for user in users] == [LARGE_BYTES + number for number in range(5)]
        assert client.submit(lengthen, 7, made).result(TIMEOUT_SECONDS) == LARGE_BYTES + 7
    workers.shutdown()
    scheduler.shutdown()
