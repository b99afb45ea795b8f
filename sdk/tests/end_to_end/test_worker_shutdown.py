"""Workers that a client lets leave."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List

import pytest
from sdk_tasks import identity, wait_for_file, wait_until

from scaler import Client, Cluster, SchedulerClusterCombo

TIMEOUT_SECONDS = 30.0


@pytest.fixture
def unprotected() -> Iterator[str]:
    """The address of a cluster of one worker, whose scheduler obeys its clients."""
    with SchedulerClusterCombo(n_workers=1, protected=False, logging_level="WARNING") as combo:
        yield combo.get_address()


def other_worker(address: str) -> Cluster:
    return Cluster(address=address, n_workers=1, worker_names=["other"], capabilities={"other": 1})


def test_a_worker_that_drains_finishes_what_it_runs_and_stays_away(unprotected: str, done_files: List[Path]) -> None:
    running, go = done_files
    with other_worker(unprotected) as other, Client(address=unprotected) as client:
        there = client.options(capabilities={"other": 0})
        first = there.submit(wait_for_file, str(go), str(running))
        wait_until(running)
        client.shutdown_worker("other")
        assert client.map(identity, [1, 2, 3]) == [1, 2, 3]
        assert other.is_alive() and not first.done()
        go.touch()
        assert first.result(TIMEOUT_SECONDS) == str(go)
        assert other.join(TIMEOUT_SECONDS) == 0, "it is not replaced"


def test_a_worker_that_is_stopped_leaves_its_tasks_to_others(unprotected: str, done_files: List[Path]) -> None:
    running, go = done_files
    with Client(address=unprotected) as client:
        with other_worker(unprotected) as other:
            there = client.options(capabilities={"other": 0})
            future = there.submit(wait_for_file, str(go), str(running))
            wait_until(running)
            running.unlink()
            client.shutdown_worker("other", drain=False)
            assert other.join(TIMEOUT_SECONDS) == 0
        with other_worker(unprotected):
            wait_until(running)
            go.touch()
            assert future.result(TIMEOUT_SECONDS) == str(go)


def test_who_cannot_be_asked_is_named(unprotected: str, any_client: Client) -> None:
    with pytest.raises(ValueError, match="protected"):
        any_client.shutdown_worker(1, drain=False)
    with Client(address=unprotected) as client:
        with pytest.raises(ValueError, match="no worker with the name 'unknown'"):
            client.shutdown_worker("unknown")
        with pytest.raises(ValueError, match="no worker with session 4294967295"):
            client.shutdown_worker(0xFFFFFFFF)
        for nonsense in (0, "", None, True, 1.5):
            with pytest.raises(TypeError, match="worker must be a session number or a name"):
                client.shutdown_worker(nonsense)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("session", [-1, 1 << 32])
def test_a_number_that_no_worker_can_have_is_named_and_harms_no_task(any_client: Client, session: int) -> None:
    future = any_client.submit(identity, 1)
    with pytest.raises(ValueError, match=f"no worker has the session number {session}"):
        any_client.shutdown_worker(session)
    assert future.result(TIMEOUT_SECONDS) == 1
