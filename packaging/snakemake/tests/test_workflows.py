"""Snakemake's own tests of executors, and more of ours, with real workflows on a real cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator, List, Optional

import pytest
from snakemake.common.tests import TestWorkflowsLocalStorageBase
from snakemake_executor_plugin_scaler import ExecutorSettings
from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase

from scaler import Client, SchedulerClusterCombo


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    cluster = SchedulerClusterCombo(n_workers=2, per_worker_capabilities={"cpu": 2})
    yield cluster.get_address()
    cluster.shutdown()


class TestWorkflows(TestWorkflowsLocalStorageBase):  # type: ignore[misc]  # it is untyped
    """The tests that Snakemake has for all executors."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def _address(self, address: str) -> None:
        self.address = address

    def get_executor(self) -> str:
        return "scaler"

    def get_executor_settings(self) -> Optional[ExecutorSettingsBase]:
        return ExecutorSettings(address=self.address)


def snakemake(folder: Path, workflow: str, address: str, *options: str) -> List[str]:
    """The command that runs a workflow in a folder."""
    (folder / "Snakefile").write_text(workflow)
    command = [sys.executable, "-m", "snakemake", "--executor", "scaler", "--scaler-address", address, "--jobs", "8"]
    return [*command, *options]


def run(folder: Path, workflow: str, address: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = snakemake(folder, workflow, address, *options)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


def tasks_of(address: str) -> int:
    with Client(address) as client:
        return client.info().tasks_running


def test_a_job_that_fails_is_reported_with_the_end_of_its_output(address: str, tmp_path: Path) -> None:
    workflow = """
rule all:
    output: "done"
    shell: "echo what went wrong; exit 3"
"""
    ran = run(tmp_path, workflow, address)
    assert ran.returncode == 1
    assert "what went wrong" in ran.stderr
    logs = list((tmp_path / ".snakemake/scaler_logs/rule_all").iterdir())
    assert "what went wrong" in logs[0].read_text() and str(logs[0]) in ran.stderr


def test_threads_are_counted_as_capabilities(address: str, tmp_path: Path) -> None:
    """Two slots offer four of `cpu`: jobs of three threads run one by one."""
    workflow = """
rule all:
    input: expand("{n}.out", n=range(3))

rule each:
    output: "{n}.out"
    threads: 3
    shell: "mkdir running && sleep 0.3 && rmdir running && touch {output}"
"""
    # A job that meets another one fails, since it cannot make the folder.
    ran = run(tmp_path, workflow, address, "--cores", "8", "--scaler-capabilities", "threads=cpu")
    assert ran.returncode == 0, ran.stderr


def test_limits_stop_jobs_if_that_is_wanted(address: str, tmp_path: Path) -> None:
    workflow = """
rule all:
    output: "done"
    resources: runtime=0.02
    shell: "sleep 600"
"""
    ran = run(tmp_path, workflow.replace("0.02", "'1s'"), address, "--scaler-enforce-limits")
    assert ran.returncode == 1 and "TaskTimeoutError" in ran.stderr, ran.stderr


def test_ctrl_c_stops_the_jobs_and_what_they_have_started(address: str, tmp_path: Path) -> None:
    workflow = """
rule all:
    output: "done"
    shell: "echo $$ > started; exec sleep 600"
"""
    with subprocess.Popen(snakemake(tmp_path, workflow, address), cwd=tmp_path, stderr=subprocess.DEVNULL) as program:
        started = tmp_path / "started"
        _until(lambda: started.exists() and started.read_text().strip() != "")
        program.send_signal(signal.SIGINT)
        assert program.wait(60) != 0
    _until(lambda: not os.path.exists(f"/proc/{started.read_text().strip()}"))
    _until(lambda: tasks_of(address) == 0)


def test_a_cluster_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    ran = run(tmp_path, "rule all:\n    output: 'done'\n    shell: 'touch done'\n", "tcp://127.0.0.1:9")
    assert ran.returncode == 1 and "nothing listens at tcp://127.0.0.1:9" in ran.stderr


def test_a_mapping_that_means_nothing_is_named(address: str, tmp_path: Path) -> None:
    workflow = "rule all:\n    output: 'done'\n    shell: 'touch done'\n"
    ran = run(tmp_path, workflow, address, "--scaler-capabilities", "threads=")
    assert ran.returncode == 1 and "'threads=' is not NAME or RESOURCE=CAPABILITY" in ran.stderr


def _until(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
