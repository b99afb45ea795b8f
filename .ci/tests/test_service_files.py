"""The service files for systemd, containers and Slurm.

Rules: the files are compared with the programs themselves: the program's own parser reads each command line, and each
exit code is one that the program uses. Checks that need an engine, such as systemd, are skipped with a message if it is
not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Tuple

import pytest

from scaler.provision.provision_options import PROVISION, fault_of_pools, read_options
from scaler.provision.provision_program import EXIT_USAGE
from scaler.provision.unit_adapters import STOP_SECONDS
from scaler.worker import exit_codes
from scaler.worker.worker_options import CLUSTER
from scaler_appliance.shell.scheduler_options import SCHEDULER
from scaler_appliance.ui.ui_options import UI

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
PROGRAMS = Path(sys.executable).parent
PARSERS: Dict[str, Callable[[], argparse.ArgumentParser]] = {
    "scaler_scheduler": SCHEDULER.parser,
    "scaler_cluster": CLUSTER.parser,
    "scaler_ui": UI.parser,
    "scaler_provision": PROVISION.parser,
}
DEADLINE_SECONDS = 30.0

Unit = Dict[str, List[str]]


def options_of(command: List[str]) -> argparse.Namespace:
    """The options that the program of a command reads from it."""
    return PARSERS[Path(command[0]).name]().parse_args(command[1:])


# systemd.

UNITS = {"scaler-scheduler.service": "scheduler.env", "scaler-workers.service": "workers.env"}
PROVISION_FILE = PACKAGING / "systemd/provision.toml"
SHARED_WITH_WORKERS = ("DynamicUser", "User", "StateDirectory", "LimitNOFILE", "NoNewPrivileges", "ProtectSystem")
"""What the program that starts workers on its host needs as they do."""


def read_unit(name: str) -> Unit:
    settings: Unit = {}
    for line in (PACKAGING / "systemd" / name).read_text().splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            settings.setdefault(key, []).append(value)
    return settings


def read_environment(lines: List[str]) -> Dict[str, str]:
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def command_of(unit: Unit, environment: Mapping[str, str]) -> List[str]:
    """As systemd reads it: `${NAME}` is one word, `$NAME` as many as it holds."""
    words: List[str] = []
    for word in unit["ExecStart"][0].split():
        if re.fullmatch(r"\$\w+", word):
            words += shlex.split(environment[word[1:]])
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda match: environment[match[1]], word))
    return words


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("has_environment_file", [True, False])
def test_a_unit_starts_a_program_as_it_wants_to_be_started(name: str, has_environment_file: bool) -> None:
    unit = read_unit(name)
    environment = read_environment(unit["Environment"])
    if has_environment_file:
        given = read_environment((PACKAGING / "systemd" / UNITS[name]).read_text().splitlines())
        assert set(given) <= set(environment), "a variable that the unit does not use"
        environment.update(given)

    assert options_of(command_of(unit, environment)).address == "tcp://127.0.0.1:2345"


def test_exit_codes_after_which_starting_again_is_of_no_use_are_those_of_the_programs() -> None:
    scheduler, workers = (read_unit(name)["RestartPreventExitStatus"][0].split() for name in UNITS)
    wrong = [str(PROGRAMS / "scaler_scheduler"), "no address"]

    assert scheduler == [str(subprocess.run(wrong, capture_output=True).returncode)]
    assert workers == [str(exit_codes.EXIT_USAGE), str(exit_codes.EXIT_REFUSED)]


def test_the_schedulers_unit_waits_for_its_word_and_lets_its_compiler_work() -> None:
    unit = read_unit("scaler-scheduler.service")
    assert unit["Type"] == ["notify"] and int(unit["WatchdogSec"][0]) >= 3
    assert unit["MemoryDenyWriteExecute"] == ["no"]


def test_a_restart_ends_the_scheduler_and_not_its_cluster_and_a_stop_ends_both() -> None:
    unit = read_unit("scaler-scheduler.service")
    assert unit["RestartKillSignal"] == ["SIGUSR1"] and unit["KillSignal"] == ["SIGTERM"]
    options = options_of(command_of(unit, {**read_environment(unit["Environment"]), "SCALER_SCHEDULER_OPTIONS": ""}))
    assert not hasattr(options, "expect_restart")


def test_the_workers_unit_accepts_what_their_agent_notifies() -> None:
    unit = read_unit("scaler-workers.service")
    assert unit["Type"] == ["notify"] and unit["NotifyAccess"] == ["all"]
    assert int(unit["WatchdogSec"][0]) >= 3 and unit["KillMode"] == ["mixed"]


def test_the_provisioners_unit_has_the_pools_of_its_file_and_stands_by_when_another_one_has_them() -> None:
    unit = read_unit("scaler-provision.service")
    config = options_of(command_of(unit, {})).config
    assert config == f"/etc/scaler/{PROVISION_FILE.name}"
    pools = read_options(["--config", str(PROVISION_FILE)])
    assert fault_of_pools(pools) == "" and pools[0].address == "tcp://127.0.0.1:2345"

    known = {
        name for program in (PROVISION, CLUSTER) for option in program.options for name in program.variables(option)
    }
    assert read_environment(unit["Environment"]).keys() <= known | {"SCALER_KEY_DIRECTORY"}
    assert unit["Restart"] == ["on-failure"] and unit["RestartPreventExitStatus"] == [str(EXIT_USAGE)]
    assert unit["StartLimitIntervalSec"] == ["0"], "however long another one has them"


def test_the_provisioners_unit_lets_workers_of_its_host_drain() -> None:
    unit = read_unit("scaler-provision.service")
    assert unit["KillMode"] == ["mixed"] and int(unit["TimeoutStopSec"][0]) > STOP_SECONDS
    workers = read_unit("scaler-workers.service")
    assert {key: unit[key] for key in SHARED_WITH_WORKERS} == {key: workers[key] for key in SHARED_WITH_WORKERS}


@pytest.mark.parametrize(
    ("name", "most_exposure"),
    [("scaler-scheduler.service", 2.0), ("scaler-workers.service", 5.0), ("scaler-provision.service", 5.0)],
)
def test_systemd_finds_the_units_sound_and_tight(name: str, most_exposure: float, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here (Debian: apt-get install systemd)")
    unit = tmp_path / name
    unit.write_text((PACKAGING / "systemd" / name).read_text().replace("/usr/local/bin", str(PROGRAMS)))
    threshold = ["--no-pager", "--offline=true", f"--threshold={most_exposure * 10:.0f}"]
    for arguments in (["verify", "--man=no"], ["security", *threshold]):
        found = subprocess.run(["systemd-analyze", *arguments, str(unit)], capture_output=True, text=True)
        if "unrecognized option" in found.stderr:
            pytest.skip("this systemd-analyze is too old")
        assert found.returncode == 0, found.stdout + found.stderr
        assert name not in found.stderr, found.stderr


# Containers.

CONTAINERS = {"scheduler": "scaler_scheduler", "workers": "scaler_cluster", "ui": "scaler_ui"}


def read_recipe(name: str) -> List[Tuple[str, str]]:
    lines = (PACKAGING / f"oci/Containerfile.{name}").read_text().splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", CONTAINERS)
def test_an_image_starts_its_program_without_privileges(name: str) -> None:
    recipe = read_recipe(name)
    last = dict(recipe)
    command = [*json.loads(last["ENTRYPOINT"]), *json.loads(last["CMD"])]

    assert Path(command[0]).name == CONTAINERS[name]
    options = options_of(command)
    assert options.monitor_address.endswith(":2346") if name == "ui" else options.address.endswith(":2345")
    assert last["USER"].split(":")[0] != "0" and last["STOPSIGNAL"] == "SIGTERM"
    copied = [words.split()[-2] for instruction, words in recipe if instruction == "COPY"]
    built = [path for path in copied if path != "packaging/oci/root"]
    assert built and all(path.startswith("dist/") for path in built), "an image is made of what `make dist` built"


def test_the_schedulers_image_makes_its_keys_in_a_volume_that_its_user_can_write() -> None:
    recipe = read_recipe("scheduler")
    variables = dict(words.split("=", 1) for instruction, words in recipe if instruction == "ENV")
    (volume,) = [words for instruction, words in recipe if instruction == "VOLUME"]
    (folders,) = [words for instruction, words in recipe if instruction == "COPY" and words.endswith(" /")]

    assert variables["SCALER_KEY_DIRECTORY"] == f"{volume}/keys" and variables["TMPDIR"] == volume
    assert folders.startswith(f"--chown={dict(recipe)['USER']} ")
    assert (PACKAGING.parent / folders.split()[1]).joinpath(volume.lstrip("/")).is_dir()


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Tuple[str, Path]]:
    """The address and the log of a scheduler."""
    address_file, log = tmp_path / "address", tmp_path / "log"
    options = ["--address-file", str(address_file), "-lp", str(log), "-ma", f"ipc://{tmp_path}/monitor"]
    process = subprocess.Popen([str(PROGRAMS / "scaler_scheduler"), "tcp://127.0.0.1:0", *options])
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (address_file.exists() and address_file.read_text().count("\n") == 2):
        assert process.poll() is None and time.monotonic() < deadline, "it does not listen"
        time.sleep(0.01)
    yield address_file.read_text().splitlines()[0], log
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_SECONDS) == 0


def test_the_images_health_check_is_answered_and_not_logged(scheduler: Tuple[str, Path]) -> None:
    address, log = scheduler
    port = address.rpartition(":")[2]
    question = json.loads(dict(read_recipe("scheduler"))["HEALTHCHECK"].partition("CMD ")[2])
    question[0] = str(PROGRAMS / Path(question[0]).name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused_port = str(free.getsockname()[1])

    from scaler import Client

    with Client(address=address):  # the scheduler has said by now that it has started
        pass
    before = log.read_text()

    assert subprocess.run([word.replace("2345", port) for word in question], capture_output=True).returncode == 0
    assert subprocess.run([word.replace("2345", unused_port) for word in question], capture_output=True).returncode != 0
    with Client(address=address):  # the scheduler has seen the question by now
        pass
    lines = log.read_text()[len(before) :].splitlines()
    assert [line for line in lines if "client" not in line] == []


def test_both_units_have_one_folder_of_keys_in_their_state() -> None:
    scheduler, workers = (read_environment(read_unit(name)["Environment"]) for name in UNITS)
    state = Path("/var/lib", read_unit("scaler-scheduler.service")["StateDirectory"][0])

    assert scheduler["SCALER_KEY_DIRECTORY"] == workers["SCALER_KEY_DIRECTORY"] == str(state / "keys")
    assert read_unit("scaler-workers.service")["StateDirectory"] == [state.name]
    assert read_unit("scaler-scheduler.service")["ExecReload"] == ["/bin/sh -c 'kill -HUP $MAINPID'"]


# Slurm.

SLURM_SCRIPT = PACKAGING / "slurm/scaler-workers.sbatch"
SRUN = '#!/bin/sh\nwhile case $1 in -*) true ;; *) false ;; esac; do shift; done\nexec "$@"\n'


def test_the_slurm_script_runs_workers_of_the_scheduler_that_it_is_given(
    scheduler: Tuple[str, Path], tmp_path: Path
) -> None:
    """With an `srun` that starts the command on this machine."""
    from scaler import Client

    srun = tmp_path / "bin/srun"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    environment = {**os.environ, "PATH": f"{srun.parent}:{PROGRAMS}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "3"}
    with open(tmp_path / "workers.log", "wb") as log:
        job = subprocess.Popen(
            ["bash", str(SLURM_SCRIPT), scheduler[0], "--worker-names", "slurm"], env=environment, stdout=log
        )
    try:
        with Client(address=scheduler[0]) as client:
            assert client.submit(pow, 2, 3).result(DEADLINE_SECONDS) == 8
        assert "starting 1 worker with 3 slots" in (tmp_path / "workers.log").read_text()
        job.send_signal(signal.SIGTERM)  # as Slurm does, before the time limit
        assert job.wait(DEADLINE_SECONDS) == 0
    finally:
        job.kill()
        job.wait()


def test_the_slurm_script_without_an_address_says_how_it_is_used() -> None:
    finished = subprocess.run(["bash", str(SLURM_SCRIPT)], capture_output=True, text=True)
    assert finished.returncode == 2
    assert "usage: sbatch" in finished.stderr


def test_what_slurm_reads_of_the_script_comes_before_its_commands() -> None:
    lines = SLURM_SCRIPT.read_text().splitlines()
    first_command = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert [line for line in lines[first_command:] if line.startswith("#SBATCH")] == []
