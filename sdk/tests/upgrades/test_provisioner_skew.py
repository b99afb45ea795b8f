"""A provisioner of another version than its scheduler: workers come with tasks, and leave without them."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from sdk_tasks import logged, wait_for
from upgrades.loaded_cluster import Cluster
from upgrades.loading_client import DEADLINE_SECONDS
from upgrades.version_skew import newer_build, this_build

from scaler import Client

QUICK = ("--maximum", "2", "--idle-seconds", "1", "--sustain-seconds", "0", "--list-interval-seconds", "0.5")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,  # seconds, for messages whose growth other tests of versions show
]


@pytest.mark.parametrize("is_scheduler_newer", [True, False])
def test_a_provisioner_of_another_version_starts_units_and_lets_them_go(
    is_scheduler_newer: bool, tmp_path: Path
) -> None:
    """Its workers are of its own version; a scheduler of the other one takes over in between."""
    older, newer = this_build(), newer_build(tmp_path / "newer")
    scheduler, provisioner = (newer, older) if is_scheduler_newer else (older, newer)
    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path)
        cluster.start_scheduler(scheduler)
        program = cluster.start_provisioner(provisioner, *QUICK)
        with Client(cluster.address) as client:
            for successor in (provisioner, None):
                futures = [client.submit(abs, -number) for number in range(9)]
                assert [each.result(DEADLINE_SECONDS) for each in futures] == [*range(9)]
                wait_for(lambda: client.info().worker_count == 0, "idle units to leave")
                if successor is not None:
                    cluster.replace_scheduler(successor, signal.SIGUSR1, 0)
        program.send_signal(signal.SIGTERM)
        assert program.wait(DEADLINE_SECONDS) == 0
    log = logged(Path(cluster.provision_log))
    assert log.count("is idle and leaves") >= 2 and "ERROR" not in log
