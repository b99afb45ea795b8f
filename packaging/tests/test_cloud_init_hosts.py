"""The user data for cloud-init as a real systemd runs what it installs, the two hosts on one machine.

Files are written and commands run as cloud-init does it: in their order, by root.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Iterator

import pytest
import yaml
from packaged import TREE, WHEELS, built
from sdk_tasks import wait_for
from systemd_machine import SystemdMachine, download, reason_not_to_run

ADDRESS = "tcp://127.0.0.1:2345"
PIP = "export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_QUIET=1\n"
TASK = f"import scaler; print(scaler.Client({ADDRESS!r}, key_file='/root/client.key').submit(pow, 2, 5).result(60))"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,  # most of a minute, and systemd is needed; other tests compare what is installed
    pytest.mark.timeout(300),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SystemdMachine]:
    reason = reason_not_to_run()
    if reason:
        pytest.skip(f"no systemd here: {reason}")
    built(WHEELS / ".built", "dist-wheels")
    download(tmp_path, WHEELS, "scaler-sdk[local]")
    with SystemdMachine(tmp_path) as made:
        yield made


def begin_with(machine: SystemdMachine, name: str) -> None:
    """What cloud-init does at the first start of a host."""
    data = yaml.safe_load((TREE / "packaging/cloud-init" / name).read_text())
    for file in data["write_files"]:
        machine.write(file["path"], file["content"].replace("tcp://scheduler.example.org:2345", ADDRESS))
        machine.run("chmod", file["permissions"], file["path"])
    for command in data["runcmd"]:
        machine.shell(PIP + shlex.join(command))


def test_hosts_of_user_data_become_a_cluster_when_a_key_is_handed_over(machine: SystemdMachine) -> None:
    begin_with(machine, "scheduler.yaml")
    begin_with(machine, "workers.yaml")
    assert machine.properties("scaler-scheduler", "ActiveState") == {"ActiveState": "active"}
    assert machine.properties("scaler-workers", "ActiveState") == {"ActiveState": "inactive"}, "it has no key yet"

    machine.shell("scaler-new-key worker --name node1 | scaler-accept-key")
    machine.shell("umask 077; scaler-new-key client --name alice > /root/client.key")

    answer = machine.run("/opt/scaler/bin/python", "-c", TASK)
    assert answer.stdout.split()[-1] == "32"
    wait_for(
        lambda: "with the key 'node1' (worker" in machine.log("--unit=scaler-scheduler"), "the log to name the key"
    )
    assert machine.run("stat", "-c", "%a %U", "/etc/scaler/worker.key").stdout.split() == ["600", "root"]
    assert "secret_key" not in machine.log()
    assert machine.failed_units() == []
