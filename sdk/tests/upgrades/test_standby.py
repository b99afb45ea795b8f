"""A standby takes over the clients and workers of a scheduler that was lost, and gives them back. No future is lost.

How a standby finds out that it is needed is tested in `appliance/tests/services/test_standby.py`.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from quiet_addresses import quiet_address
from upgrades.loaded_cluster import Cluster
from upgrades.loading_client import DEADLINE_SECONDS
from upgrades.version_skew import this_build


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGUSR1, marks=pytest.mark.exhaustive)], ids=["killed", "replaced"]
)
def test_a_cluster_under_load_moves_to_the_standby_and_back(tmp_path: Path, number: signal.Signals) -> None:
    with ExitStack() as stack:
        build, other = this_build(), quiet_address()
        cluster = Cluster(stack, tmp_path, other)
        cluster.start_scheduler(build)
        options = ["--monitor-address", f"ipc://{tmp_path}/other", "--takeover-seconds", "1", "-ll", "INFO"]
        command = build.command("scaler_appliance", other, "--standby-of", cluster.address, *options)
        standby = stack.enter_context(
            subprocess.Popen(command, env=build.environment(), stdout=subprocess.PIPE, text=True)
        )
        stack.callback(standby.kill)

        def wait_for_line(text: str) -> None:
            assert standby.stdout is not None
            for line in standby.stdout:  # it ends with the process, which is killed if the test takes too long
                if text in line:
                    return
            raise AssertionError(f"the standby has ended without {text!r}")

        wait_for_line(f"{cluster.address} answers")
        for _ in range(2):
            cluster.start_worker(build)
        clients = [cluster.start_client(build) for _ in range(2)]
        for client in clients:
            client.wait_for_rounds(1)
        cluster.scheduler.send_signal(number)
        cluster.scheduler.wait(DEADLINE_SECONDS)
        wait_for_line("listening at")
        for client in clients:
            client.wait_for_rounds(2)
        cluster.start_scheduler(build)
        wait_for_line("serves again")
        for client in clients:
            client.wait_for_rounds(2)
        for client in clients:
            client.check()
        standby.send_signal(signal.SIGTERM)
        assert standby.wait(DEADLINE_SECONDS) == 0
