"""Units as jobs of Slurm, without Slurm: arguments, scripts, and what `squeue` of Slurm 22.05 has printed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Dict

import pytest

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.provision_options import pool_of, read_options
from scaler.provision.provision_program import main, slurm_settings
from scaler.provision.slurm_listing import jobs_of
from scaler.provision.slurm_script import (
    SlurmSettings,
    capabilities_of_gres,
    fault_of_options,
    job_name_of,
    lifetime_of,
    sbatch_command,
    unit_of,
    worker_script,
)
from scaler_protocol import messages as m
from scaler_protocol.programs.options import ConfigurationError

ADDRESS = "tcp://10.0.0.1:2345"
POOL = PoolSettings("gpu", slots=4, capabilities={"gpu": 2.0})
UNIT = "gpu-ab12cd-7"
RUNNING = ListedUnit(m.UnitState.STARTING)


def settings(**fields: Any) -> SlurmSettings:
    return SlurmSettings(ADDRESS, ["scaler_cluster"], **fields)


def name(unit: str, address: str = ADDRESS) -> str:
    return job_name_of(unit, address)


def test_a_job_is_one_worker_on_one_node_with_what_its_pool_says() -> None:
    given = settings(partition="a100", account="physics", gres="gpu:2", time_limit_seconds=90.0, options=["--mem=4G"])
    command = sbatch_command(given, POOL, [UNIT])

    assert command[:2] == ["sbatch", "--parsable"] and command[-2:] == ["--no-requeue", "--mem=4G"]
    assert {
        *("--partition=a100", "--account=physics", "--gres=gpu:2", "--time=2", "--nodes=1", "--ntasks=1"),
        *("--cpus-per-task=4", f"--job-name={name(UNIT)}"),
    } <= set(command)


def test_units_that_are_submitted_together_are_an_array_with_the_name_of_the_first() -> None:
    units = [f"gpu-ab12cd-{number}" for number in range(7, 207)]
    command = sbatch_command(settings(), POOL, units)
    assert {"--array=0-199", f"--job-name={name(UNIT)}"} <= set(command)
    alone = sbatch_command(settings(), POOL, [UNIT])
    assert [word for word in command if word != "--array=0-199"] == alone


@pytest.mark.parametrize(("index", "unit"), [("", "gpu-ab12cd-7"), ("0", "gpu-ab12cd-7"), ("8", "gpu-ab12cd-15")])
def test_an_element_of_an_array_is_the_unit_with_its_number(index: str, unit: str) -> None:
    given = SlurmSettings(ADDRESS, ["echo"])
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": "5"}
    if index:
        environment.update(SLURM_ARRAY_JOB_ID="1", SLURM_ARRAY_TASK_ID=index)
    script = worker_script(given, POOL, UNIT)
    shown = subprocess.run(["bash"], input=script, env=environment, text=True, capture_output=True)
    assert f"--unit {unit} " in shown.stdout and shown.stderr == ""


def test_what_a_pool_does_not_say_is_left_to_slurm() -> None:
    command = " ".join(sbatch_command(settings(), POOL, [UNIT]))
    assert not any(f"--{each}" in command for each in ("partition", "account", "gres", "time"))


def test_a_script_becomes_the_worker_of_its_unit() -> None:
    given = settings(setup="module load python", worker_key_file="/me/w.key")
    script = worker_script(given, POOL, UNIT)
    assert script.splitlines()[-3:] == [
        "module load python",
        "unit=gpu-ab12cd-$((7 + ${SLURM_ARRAY_TASK_ID:-0}))",
        f'exec scaler_cluster {ADDRESS} --num-of-workers 4 --unit "$unit" --capabilities gpu=2 --key-file /me/w.key',
    ]
    assert script.startswith("#!/bin/bash\n") and "#SBATCH" not in script
    assert worker_script(settings(insecure=True), PoolSettings("p"), "p-a-1").endswith('--unit "$unit" --insecure\n')


@pytest.mark.parametrize(
    ("said", "limit_seconds", "environment", "end"),
    [
        ("1795752330", 600.0, {}, "1795752330"),
        ("NONE", 0.0, {}, ""),  # of a job without a limit
        ("", 0.0, {}, ""),
        ("2026-11-27T03:55:45", 600.0, {}, "601"),
        ("", 600.0, {}, "601"),
        ("5", 600.0, {"SLURM_JOB_END_TIME": "1795752999"}, "1795752999"),
    ],
)
def test_a_job_finds_out_when_it_ends_where_slurm_does_not_say_it(
    said: str, limit_seconds: float, environment: Dict[str, str], end: str, tmp_path: Path
) -> None:
    for program, line in (("squeue", f"echo '{said}'"), ("date", "echo 1")):
        (tmp_path / program).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / program).chmod(0o755)
    given = SlurmSettings(ADDRESS, ["sh", "-c", 'echo "$SLURM_JOB_END_TIME"'], time_limit_seconds=limit_seconds)
    path = f"{tmp_path}:/usr/bin:/bin"
    shown = subprocess.run(
        ["bash"],
        input=worker_script(given, POOL, UNIT),
        env={"PATH": path, "SLURM_JOB_ID": "1", **environment},
        text=True,
        capture_output=True,
    )
    assert (shown.stdout.strip(), shown.stderr) == (end, "")


def test_jobs_are_told_apart_by_their_names() -> None:
    assert unit_of(name(UNIT), 0, "gpu", ADDRESS) == UNIT
    for other in (name(UNIT, "tcp://10.0.0.2:2345"), UNIT, "gpu", "", name("gpu-big-ab12cd-7"), name("xgpu-ab12cd-7")):
        assert unit_of(other, 0, "gpu", ADDRESS) is None
    assert unit_of(name("a.b-ab12cd-1"), 0, "a.b", ADDRESS) and not unit_of(name("axb-ab12cd-1"), 0, "a.b", ADDRESS)
    assert unit_of(name("gpu-ab12cd-7"), 5, "gpu", ADDRESS) == "gpu-ab12cd-12"


def test_a_listing_has_the_units_of_the_pool_and_passes_over_what_others_run() -> None:
    lines = [
        f"1|CANCELLED|{name('gpu-ab12cd-1')}|None",
        f"5|PENDING|{name('gpu-ab12cd-2')}|Resources",
        f"6|PENDING|{name('gpu-ab12cd-3')}|ReqNodeNotAvail, UnavailableNodes:n[1|2]",
        f"3|RUNNING|{name('gpu-ab12cd-4')}|None",
        f"7|COMPLETING|{name('gpu-ab12cd-5')}|None",
        f"8|COMPLETED|{name('gpu-ab12cd-6')}|None",
        f"9|TIMEOUT|{name('gpu-ab12cd-7')}|TimeLimit",
        f"10|NODE_FAIL|{name('gpu-ab12cd-8')}|None",
        f"11|PREEMPTED|{name('gpu-ab12cd-9')}|None",
        f"12|FAILED|{name('gpu-ab12cd-10')}|NonZeroExitCode",
        f"13|CONFIGURING|{name('gpu-ab12cd-11')}|None",
        f"14|SUSPENDED|{name('gpu-ab12cd-12')}|None",
        f"15|A_NEW_STATE|{name('gpu-ab12cd-13')}|None",
        f"16|REQUEUE_HOLD|{name('gpu-ab12cd-14')}|None",
        f"17|RUNNING|{name('gpu-big-ab12cd-1')}|None",
        f"18|RUNNING|{name('gpu-ab12cd-1', 'tcp://elsewhere:1')}|None",
        "20|PENDING|hold.sh|Resources",
        "2|CANCELLED|no | limit|None",
        f"21_0|RUNNING|{name('gpu-ab12cd-20')}|None",
        f"21|CANCELLED|{name('gpu-ab12cd-20')}|None",  # those of its elements that waited
        f"21_11|PENDING|{name('gpu-ab12cd-20')}|Priority",
        f"22|CANCELLED|{name('gpu-ab12cd-40')}|None",
        f"22_0|RUNNING|{name('gpu-ab12cd-40')}|None",
        f"23_[4-6]|PENDING|{name('gpu-ab12cd-50')}|None",
        "CLUSTER: try",
        "",
    ]
    jobs = jobs_of("\n".join(lines), "gpu", ADDRESS)
    assert jobs["gpu-ab12cd-31"].job == "21_11" and jobs["gpu-ab12cd-4"].job == "3"
    assert {unit: job.listed for unit, job in jobs.items()} == {
        "gpu-ab12cd-1": ListedUnit(m.UnitState.FAILED, "Slurm job 1: it was cancelled (CANCELLED)"),
        "gpu-ab12cd-2": ListedUnit(m.UnitState.PENDING, "Resources"),
        "gpu-ab12cd-3": ListedUnit(m.UnitState.PENDING, "ReqNodeNotAvail, UnavailableNodes:n[1|2]"),
        "gpu-ab12cd-4": RUNNING,
        "gpu-ab12cd-5": ListedUnit(m.UnitState.STARTING, "COMPLETING"),
        "gpu-ab12cd-7": ListedUnit(m.UnitState.FAILED, "Slurm job 9: its time limit is over (TIMEOUT, TimeLimit)"),
        "gpu-ab12cd-8": ListedUnit(m.UnitState.FAILED, "Slurm job 10: its node has failed (NODE_FAIL)"),
        "gpu-ab12cd-9": ListedUnit(m.UnitState.FAILED, "Slurm job 11: it was preempted (PREEMPTED)"),
        "gpu-ab12cd-10": ListedUnit(m.UnitState.FAILED, "Slurm job 12: it has failed (FAILED, NonZeroExitCode)"),
        "gpu-ab12cd-11": RUNNING,
        "gpu-ab12cd-12": ListedUnit(m.UnitState.STARTING, "SUSPENDED"),
        "gpu-ab12cd-13": ListedUnit(m.UnitState.STARTING, "A_NEW_STATE"),
        "gpu-ab12cd-14": ListedUnit(m.UnitState.PENDING, "REQUEUE_HOLD"),
        "gpu-ab12cd-20": RUNNING,
        "gpu-ab12cd-31": ListedUnit(m.UnitState.PENDING, "Priority"),
        "gpu-ab12cd-40": RUNNING,
    }


def test_generic_resources_are_capabilities() -> None:
    assert capabilities_of_gres("gpu:a100:2, fpga,shard:8") == {"gpu": 2.0, "fpga": 1.0, "shard": 8.0}
    assert capabilities_of_gres("") == {}


def test_the_last_minute_of_a_job_is_for_no_task() -> None:
    assert lifetime_of(3600.0) == 3540.0 and lifetime_of(60.0) == 30.0 and lifetime_of(0.0) == 0.0


@pytest.mark.parametrize("word", ["-N2", "--nodes=2", "--array=1-4", "-J x", "--time=1", "-t 5", "--wrap=true", "-M a"])
def test_options_that_would_make_something_else_than_one_worker_are_refused(word: str) -> None:
    assert "cannot be used" in fault_of_options(f"--mem=4G {word}")


def test_options_in_words_of_a_shell_are_passed_on() -> None:
    assert fault_of_options("--mem=4G --qos 'a b' -x node7 --nodelist=n1") == ""
    assert "cannot be read" in fault_of_options("--qos 'a")


def test_pools_of_a_file_are_jobs(tmp_path: Path) -> None:
    file = tmp_path / "scaler.toml"
    file.write_text(
        f'[[provision]]\naddress = "{ADDRESS}"\nname = "gpu"\nadapter = "slurm"\nslots = 4\nlifetime_seconds = "8h"\n'
        'partition = "a100"\ngres = "gpu:2"\ncapabilities = { fast = true }\nsbatch_options = "--mem=4G --qos=long"\n'
        'worker_command = "scaler_cluster --trim 1"\n'
    )
    (options,) = read_options(["--config", str(file)])
    assert slurm_settings(options) == SlurmSettings(
        *(ADDRESS, ["scaler_cluster", "--trim", "1"], "a100", "", "gpu:2", 28800.0, ["--mem=4G", "--qos=long"])
    )
    pool = pool_of(options)
    assert pool.lifetime_seconds == 28740.0 and pool.capabilities["gpu"] == 2.0 and "fast" in pool.capabilities


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--partition", "a"], "--partition is for --adapter slurm"),
        (["--adapter", "slurm", "--list-command", "a"], "--list-command is for --adapter exec"),
        (["--adapter", "slurm", "--sbatch-options=-N2"], "--sbatch-options: -N cannot be used: each unit"),
    ],
)
def test_options_that_do_not_fit_are_named(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((SystemExit, ConfigurationError)):
        main([ADDRESS, *arguments])
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            ["--adapter", "slurm", "--partition", "a"],
            ["# start: sbatch", "--array=0-2", "--partition=a", "# SCRIPT:\n#!/bin/bash\n"],
        ),
        (["--slots", "3"], ["# start:", "-m scaler.worker", "--num-of-workers 3"]),
        (
            ["--adapter", "exec", "--start-command", "a", "--list-command", "b", "--stop-command", "c"],
            ["# start: a", "# list: b", "# stop: c", f"# UNIT_ADDRESS={ADDRESS}"],
        ),
    ],
)
def test_a_dry_run_shows_what_would_run_and_runs_nothing(
    arguments: list[str], shown: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main([ADDRESS, *arguments, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# Pool workers\n") and all(each in printed for each in shown)
