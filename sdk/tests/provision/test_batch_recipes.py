"""The commands for other batch systems that the pages show, as they stand there, with real workers.

The programs of these systems are played by `fake_batch_systems`, as their documentation describes them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, Iterator, List

import pytest
from sdk_tasks import logged, wait_for

from scaler import Client, Scheduler
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.provision_options import pool_of, read_options
from scaler.provision.unit_adapters import CommandUnits, UnitError
from scaler.provision.unit_commands import digest_of
from scaler_protocol import messages as m

FAKES = Path(__file__).parent / "fake_batch_systems"
PAGES = Path(__file__).resolve().parents[3] / "docs/how-to"
PROGRAM = "from scaler.programs.provision_host import main; import sys; sys.exit(main())"
QUICK = ("--idle-seconds", "0.5", "--sustain-seconds", "0", "--list-interval-seconds", "0.2", "--slots", "2")
TIMEOUT_SECONDS = 60.0
RUNNING = ListedUnit(m.UnitState.STARTING)
_POOLS = re.compile(r"```toml\n((?:\[\[provision\]\].*?)+)```", re.DOTALL)


def recipes() -> Dict[str, str]:
    """The sections of the pages whose pools have commands, by name."""
    found: Dict[str, str] = {}
    for page in ("batch-systems-and-clouds.md", "workers-that-come-and-go.md"):
        for block in _POOLS.findall((PAGES / page).read_text(encoding="utf-8")):
            section = f"[[provision]]{block.split('[[provision]]')[1]}"
            found[re.findall(r'^name = "(\w+)"$', section, re.MULTILINE)[0]] = section
    return found


class System:
    """A batch system that is played, and a recipe for it.

    Attributes:
        name: of the recipe.
        file: with its pool, at the scheduler.
    """

    def __init__(self, name: str, folder: Path, address: str) -> None:
        self.name, self.folder, self.address = name, folder, address
        for each in ("jobs", "made"):
            (folder / each).mkdir()
        self.file = folder / "pools.toml"
        self.file.write_text(re.sub(r'^address = ".*"$', f'address = "{address}"', recipes()[name], flags=re.MULTILINE))

    def units(self) -> CommandUnits:
        (options,) = read_options(["--config", str(self.file), *QUICK])
        commands = (options.start_command, options.list_command, options.stop_command)
        return CommandUnits(pool_of(options), self.address, *commands, 20.0)

    def unit(self, number: int) -> str:
        return f"{self.name}-{digest_of(self.address)}0ff1ce-{number}"

    def calls(self) -> List[str]:
        file = self.folder / "calls"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def output(self, job: int = 1) -> str:
        return (self.folder / f"made/{job}/output").read_text()

    def has_ended(self, job: int = 1) -> bool:
        return (self.folder / f"made/{job}/code").exists()

    def end_all(self) -> None:
        for job in self.folder.glob("jobs/*"):
            if (job / "process").exists():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int((job / "process").read_text()), signal.SIGKILL)
            shutil.rmtree(job, ignore_errors=True)  # one that waits does not begin then


@pytest.fixture
def address() -> Iterator[str]:
    with Scheduler(logging_level="WARNING") as scheduler:
        yield scheduler.get_address()


@pytest.fixture(params=["lsf", "flux", "cpu"])
def system(
    request: pytest.FixtureRequest, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    programs = tmp_path / "bin"
    programs.mkdir()
    worker = programs / "scaler_cluster"
    worker.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m scaler.worker "$@"\n')
    worker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{FAKES}:{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("FAKE_BATCH", str(tmp_path))
    made = System(request.param, tmp_path, address)
    yield made
    made.end_all()


def work(seconds: float, notes: str) -> float:
    with open(notes, "a") as file:
        file.write("run\n")
    time.sleep(seconds)
    return seconds


def test_pages_have_these_recipes_and_their_commands_are_shell() -> None:
    assert recipes().keys() == {"lsf", "flux", "ec2", "oci", "cpu"}
    for name, section in recipes().items():
        commands = re.findall(r"^\w+_command = (?:'''\n(.*?)'''|'(.*?)')$", section, re.DOTALL | re.MULTILINE)
        assert len(commands) == 3, name
        for command in map("".join, commands):
            subprocess.run(["sh", "-n", "-c", command], check=True)


@pytest.mark.slow  # the whole program, and workers that start and leave: some seconds for each
def test_jobs_come_with_tasks_say_why_they_wait_and_go_without(system: System) -> None:
    (system.folder / "full").touch()
    words = [sys.executable, "-c", PROGRAM, "--config", str(system.file), *QUICK]
    program = subprocess.Popen([*words, "--maximum", "1", "--logging-paths", str(system.folder / "log")])
    try:
        with Client(system.address) as client:
            future = client.submit(pow, 2, 10)
            waits = {"lsf": "is pending (PEND)", "flux": "is pending (SCHED)", "cpu": "is starting"}[system.name]
            wait_for(lambda: waits in client.explain(future), "the reason to be told")
            (system.folder / "full").unlink()

            assert future.result(TIMEOUT_SECONDS) == 1024
            wait_for(lambda: system.has_ended() and system.units().list() == {}, "the job to end by itself")
            assert system.calls() == [], "nothing has to be stopped"
    finally:
        program.send_signal(signal.SIGTERM)
        assert program.wait(TIMEOUT_SECONDS) == 0
    assert "ERROR" not in logged(system.folder / "log")


@pytest.mark.slow  # a worker that starts, and drains
def test_what_runs_gets_one_sigterm_and_finishes_its_task(system: System) -> None:
    units, notes = system.units(), system.folder / "notes"
    units.start(system.unit(1))
    with Client(system.address) as client:
        future = client.submit(work, 1.0, str(notes))
        wait_for(notes.exists, "the task to run")
        assert units.list() == {system.unit(1): RUNNING}

        units.stop(system.unit(1))

        assert future.result(TIMEOUT_SECONDS) == 1.0
        wait_for(lambda: units.list() == {}, "the job to end")
    assert notes.read_text() == "run\n"
    wait_for(system.has_ended, "its exit code")
    assert (system.folder / "made/1/code").read_text() == "0\n"
    assert system.output().count("asked to stop by") == 1 and "asked to stop by SIGTERM" in system.output()
    assert len(system.calls()) == 1
    units.stop(system.unit(1))  # which is gone


def test_what_waits_is_cancelled_alone_and_jobs_of_others_are_left_alone(system: System) -> None:
    if system.name == "cpu":
        pytest.skip("on a host, nothing waits")
    (system.folder / "full").touch()
    subprocess.run([FAKES / "new_job", "database", "1", "true"], check=True, stdout=subprocess.DEVNULL)
    units = system.units()
    assert units.list() == {}
    units.start(system.unit(1))
    units.start(system.unit(2))
    waits = ListedUnit(m.UnitState.PENDING, "PEND" if system.name == "lsf" else "SCHED")
    assert units.list() == {system.unit(1): waits, system.unit(2): waits}

    units.stop(system.unit(2))

    assert units.list() == {system.unit(1): waits}
    assert (system.folder / "jobs/1").exists(), "it is no unit"


def test_a_list_command_that_fails_does_not_say_that_there_are_no_units(system: System) -> None:
    assert system.units().list() == {}
    (system.folder / "consistent").touch()
    assert system.units().list() == {}

    (system.folder / "down").touch()

    said = {"lsf": "Slave LIM", "flux": "broker socket not found", "cpu": "No route to host"}[system.name]
    with pytest.raises(UnitError, match=said):
        system.units().list()
