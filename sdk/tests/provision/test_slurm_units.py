"""Units as jobs of Slurm, whose commands are played by `fake_slurm`: real processes, and no Slurm."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Iterator, List

import pytest
from sdk_tasks import wait_for

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.slurm_script import SlurmSettings, job_name_of
from scaler.provision.slurm_units import (
    STOP_SECONDS,
    SlurmLimitError,
    SlurmMissingError,
    SlurmRefusedError,
    SlurmUnavailableError,
    SlurmUnits,
)
from scaler.provision.unit_adapters import UnitError
from scaler_protocol import messages as m

FAKES = Path(__file__).parent / "fake_slurm"
ADDRESS = "tcp://127.0.0.1:2345"
RUNNING = ListedUnit(m.UnitState.STARTING)
WORKER = 'trap "echo drained; exit 0" TERM; echo "$@"; touch ready; while :; do sleep 0.01; done'
FAILED = "sbatch: error: Batch job submission failed: "
STUBBORN = 'trap "" TERM; echo "$@"; touch ready; while :; do sleep 0.01; done'


class FakeSlurm:
    """The folder of the played commands, and an adapter that calls them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        (folder / "jobs").mkdir()
        (folder / "others").touch()
        (folder / "end").write_text("4102444800\n")

    def units(self, worker: str = WORKER, seconds: float = 20.0) -> SlurmUnits:
        settings = SlurmSettings(ADDRESS, ["sh", "-c", worker, "worker"], partition="cpu")
        return SlurmUnits(PoolSettings("p", slots=2), settings, seconds, lambda: self.now)

    def calls(self) -> List[str]:
        return (self.folder / "calls").read_text().splitlines()

    def ready(self) -> bool:
        return (self.folder / "ready").exists()

    def output(self, job: str = "1") -> str:
        return (self.folder / f"jobs/{job}/output").read_text()

    def submissions(self) -> List[str]:
        """The arrays that were asked for; empty for a job without one."""
        calls = [call for call in self.calls() if call.startswith("sbatch")]
        return ["".join(re.findall(r"--array=(\S+)", call)) for call in calls]

    def end_all(self) -> None:
        for each in self.folder.glob("jobs/*/process"):
            os.system(f"kill -s KILL {each.read_text().strip()} 2>/dev/null")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    monkeypatch.setenv("PATH", f"{FAKES}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(tmp_path))
    fake = FakeSlurm(tmp_path)
    yield fake
    fake.end_all()


def test_a_unit_is_a_job_that_runs_a_worker_and_drains_when_it_is_stopped(slurm: FakeSlurm) -> None:
    units = slurm.units()
    assert units.list() == {}
    units.start("p-ab-1")
    wait_for(slurm.ready, "the worker to start")
    assert units.list() == {"p-ab-1": RUNNING}
    assert slurm.output().startswith(f"{ADDRESS} --num-of-workers 2 --unit p-ab-1")

    units.stop("p-ab-1")

    wait_for(lambda: units.list() == {}, "the job to end")
    assert slurm.output().endswith("drained\n")


def test_a_worker_is_signalled_once_and_its_job_is_cancelled_when_its_time_is_over(slurm: FakeSlurm) -> None:
    units = slurm.units(STUBBORN)
    units.start("p-ab-1")
    wait_for(slurm.ready, "the worker to start")

    units.stop("p-ab-1")
    slurm.now += STOP_SECONDS - 1.0
    units.stop("p-ab-1")
    assert units.list() == {"p-ab-1": RUNNING}
    assert sum("--signal=TERM" in call for call in slurm.calls()) == 1
    slurm.now += 1.0
    units.list()

    assert slurm.calls()[-1].startswith("scancel") and "--state" not in slurm.calls()[-1]
    listed = units.list()["p-ab-1"]
    assert listed.state == m.UnitState.FAILED and "CANCELLED" in listed.reason


def test_a_unit_that_waits_is_cancelled_and_not_signalled(slurm: FakeSlurm) -> None:
    (slurm.folder / "full").touch()
    units = slurm.units()
    units.start("p-ab-1")
    assert units.list() == {"p-ab-1": ListedUnit(m.UnitState.PENDING, "Resources")}

    units.stop("p-ab-1")

    assert units.list()["p-ab-1"].state == m.UnitState.FAILED
    assert [call for call in slurm.calls() if call.startswith("scancel")] == ["scancel 1"]


def test_units_of_an_earlier_run_are_found_and_those_of_others_are_left_alone(slurm: FakeSlurm) -> None:
    (slurm.folder / "others").write_text("99|RUNNING|p-ab-1|None\n98|PENDING|mine|Priority\n")
    slurm.units().start("p-ab-1")

    assert slurm.units().list().keys() == {"p-ab-1"}
    slurm.units().stop("p-zz-9")
    assert slurm.units().list()["p-ab-1"] == RUNNING


def test_units_that_start_together_are_one_array_and_each_has_its_own_id_state_and_end(slurm: FakeSlurm) -> None:
    names = ["p-ab-9", "p-ab-10", "p-ab-11"]
    units = slurm.units('[ "$5" = p-ab-10 ] && exit 4; ' + WORKER)  # of its arguments, the unit

    assert units.start_together(names) == 3

    wait_for(lambda: units.list()["p-ab-10"].state == m.UnitState.FAILED, "one to fail")
    assert slurm.submissions() == ["0-2"]
    failed = ListedUnit(m.UnitState.FAILED, "Slurm job 1_1: it has failed (FAILED, NonZeroExitCode)")
    assert units.list() == {"p-ab-9": RUNNING, "p-ab-10": failed, "p-ab-11": RUNNING}
    wait_for(lambda: all("--unit" in slurm.output(job) for job in ("1_0", "1_2")), "the other workers to start")
    assert f"--unit {names[0]}\n" in slurm.output("1_0") and f"--unit {names[2]}\n" in slurm.output("1_2")
    assert "squeue --noheader --jobs=1_2 --format=%e" in slurm.calls(), "each asks for its own end"


def test_an_element_is_stopped_alone_and_another_run_of_the_program_can_do_it(slurm: FakeSlurm) -> None:
    names = [f"p-ab-{number}" for number in range(3)]
    slurm.units().start_together(names)
    units = slurm.units()
    wait_for(lambda: all("--unit" in slurm.output(f"1_{each}") for each in range(3)), "the workers to start")
    assert units.list().keys() == set(names)

    units.stop(names[1])
    units.stop(names[1])

    wait_for(lambda: units.list() == {names[0]: RUNNING, names[2]: RUNNING}, "its job to end as it should")
    assert slurm.output("1_1").endswith("drained\n")
    assert not any("drained" in slurm.output(job) for job in ("1_0", "1_2"))
    drain = "scancel --state=RUNNING --batch --signal=TERM 1_1"
    assert [call for call in slurm.calls() if call.startswith("scancel")] == [drain]


def test_an_element_is_signalled_once_while_others_wait_and_cancelled_when_its_time_is_over(slurm: FakeSlurm) -> None:
    names = ["p-ab-1", "p-ab-2"]
    units = slurm.units('trap "echo told" TERM; echo "$@"; while :; do sleep 0.01; done')
    units.start_together(names)
    wait_for(lambda: all("--unit" in slurm.output(job) for job in ("1_0", "1_1")), "the workers to start")
    (slurm.folder / "full").touch()  # Slurm would send a signal again and again

    units.stop(names[0])

    wait_for(lambda: "told" in slurm.output("1_0"), "its worker to be told")
    assert units.list() == {names[0]: RUNNING, names[1]: RUNNING}
    slurm.now += STOP_SECONDS
    units.list()
    assert slurm.calls()[-1] == "scancel 1_0"
    assert "told" not in slurm.output("1_1")


def test_an_element_that_waits_is_cancelled_alone(slurm: FakeSlurm) -> None:
    (slurm.folder / "full").touch()
    units = slurm.units()
    units.start_together(["p-ab-1", "p-ab-2", "p-ab-3"])
    waits = ListedUnit(m.UnitState.PENDING, "Resources")
    assert units.list() == {"p-ab-1": waits, "p-ab-2": waits, "p-ab-3": waits}

    units.stop("p-ab-2")

    assert units.list() == {"p-ab-1": waits, "p-ab-3": waits}
    assert [call for call in slurm.calls() if call.startswith("scancel")] == ["scancel 1_1"]


def test_jobs_of_a_version_without_arrays_are_units_as_before(slurm: FakeSlurm) -> None:
    units = slurm.units()
    name = job_name_of("p-ab-7", ADDRESS)
    (slurm.folder / "others").write_text(f"99|RUNNING|{name}|None\n")
    units.start_together(["p-ab-8", "p-ab-9"])

    assert units.list() == {"p-ab-7": RUNNING, "p-ab-8": RUNNING, "p-ab-9": RUNNING}
    units.stop("p-ab-7")

    assert slurm.calls()[-1] == "scancel --state=RUNNING --batch --signal=TERM 99"


def test_a_refusal_is_that_of_all_units_of_the_array(slurm: FakeSlurm) -> None:
    (slurm.folder / "refusal").write_text(f"{FAILED}Invalid partition name specified\n")
    with pytest.raises(SlurmRefusedError, match="Invalid partition name specified"):
        slurm.units().start_together(["p-ab-1", "p-ab-2"])
    assert slurm.submissions() == ["0-1"], "one by one they would be refused as well"


def test_an_array_beyond_a_limit_is_submitted_up_to_the_limit(slurm: FakeSlurm) -> None:
    (slurm.folder / "full").touch()
    (slurm.folder / "limit").write_text("5")
    names = [f"p-ab-{number}" for number in range(1, 9)]
    units = slurm.units()

    assert units.start_together(names) == 4
    assert units.start_together(names[4:]) == 1
    with pytest.raises(SlurmLimitError, match=r"accounting/QOS policy .*; a limit such as MaxSubmitJobs: sacctmgr"):
        units.start_together(names[5:])

    assert units.list().keys() == set(names[:5])
    assert slurm.submissions() == ["0-7", "0-3", "0-3", "0-1", "", "0-2", ""]


def test_an_array_that_is_too_large_for_this_slurm_is_submitted_in_parts(slurm: FakeSlurm) -> None:
    (slurm.folder / "full").touch()
    (slurm.folder / "largest").write_text("1")  # it has no arrays
    units = slurm.units()

    assert units.start_together(["p-ab-1", "p-ab-2", "p-ab-3"]) == 1

    assert units.list().keys() == {"p-ab-1"} and slurm.submissions() == ["0-2", ""]


def test_only_units_with_consecutive_numbers_are_one_array(slurm: FakeSlurm) -> None:
    (slurm.folder / "full").touch()
    units = slurm.units()
    assert units.start_together(["p-ab-1", "p-ab-2", "p-ab-4"]) == 2
    assert units.list().keys() == {"p-ab-1", "p-ab-2"}


def test_a_variable_that_makes_arrays_does_not_reach_sbatch(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_ARRAY_INX", "0-9")
    units = slurm.units('echo "<$SBATCH_ARRAY_INX>"')
    units.start("p-ab-1")
    wait_for(lambda: units.list() == {}, "the job to end")
    assert slurm.output() == "<>\n"


def test_a_worker_that_fails_says_so(slurm: FakeSlurm) -> None:
    units = slurm.units("exit 4")
    units.start("p-ab-1")
    wait_for(lambda: units.list()["p-ab-1"].state == m.UnitState.FAILED, "the job to fail")
    assert units.list()["p-ab-1"].reason == "Slurm job 1: it has failed (FAILED, NonZeroExitCode)"


def test_variables_of_the_job_that_the_program_runs_in_are_not_the_new_jobs(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_END_TIME", "SLURM_CONF", "SQUEUE_PARTITION"):
        monkeypatch.setenv(name, "1")
    units = slurm.units('echo "$SLURM_JOB_END_TIME $SLURM_CONF"')
    units.start("p-ab-1")
    wait_for(lambda: units.list() == {}, "the job to end")
    assert slurm.output() == "4102444800 1\n"


@pytest.mark.parametrize(
    ("said", "kind", "advice"),
    [
        (
            f"sbatch: error: invalid partition specified: nope\n{FAILED}Invalid partition name specified\n",
            SlurmRefusedError,
            "(exit code 1): Invalid partition name specified; sinfo -s lists the partitions (--partition)",
        ),
        (
            f"sbatch: error: Memory specification can not be satisfied\n{FAILED}Requested node configuration\n",
            SlurmRefusedError,
            "no node has so much memory (--sbatch-options)",
        ),
        ("sbatch: error: Invalid generic resource (gres) specification\n", SlurmRefusedError, "(--gres)"),
        (
            "sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information\n",
            SlurmRefusedError,
            "(exit code 1): unrecognized option '--bogus'; man sbatch",
        ),
        (
            f"{FAILED}Unable to contact slurm controller (connect failure)\n",
            SlurmUnavailableError,
            "see whether it is up: scontrol ping",
        ),
        ("sbatch: error: something else\n", SlurmRefusedError, "(exit code 1): something else"),
    ],
)
def test_what_slurm_refuses_is_a_named_error_that_says_what_to_do(
    slurm: FakeSlurm, said: str, kind: type[UnitError], advice: str
) -> None:
    (slurm.folder / "refusal").write_text(said)
    with pytest.raises(kind) as caught:
        slurm.units().start("p-ab-1")
    assert advice in str(caught.value) and str(caught.value).startswith("sbatch (exit code 1): ")


def test_a_command_that_hangs_is_given_up(slurm: FakeSlurm) -> None:
    (slurm.folder / "silence").touch()
    with pytest.raises(SlurmUnavailableError, match=r"squeue has not ended within 0\.05 s \(command_timeout_seconds\)"):
        slurm.units(seconds=0.05).list()


def test_a_host_without_slurm_is_named(monkeypatch: pytest.MonkeyPatch, slurm: FakeSlurm) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SlurmMissingError, match="sbatch is not on the PATH: run scaler_provision where"):
        slurm.units().start("p-ab-1")
