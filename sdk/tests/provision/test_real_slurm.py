"""`scaler_provision` with a real Slurm on this host: jobs come with tasks, leave well, and no task is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Iterator, List

import pytest
from provision.slurm_cluster import CPUS, KILL_WAIT_SECONDS, NODES, SlurmCluster, reason_not_to_run, slurm_cluster
from sdk_tasks import logged, wait_for, wait_for_file

from scaler import Client, ScalerFuture, Scheduler
from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.slurm_script import SlurmSettings
from scaler.provision.slurm_units import SlurmRefusedError, SlurmUnits
from scaler_protocol import messages as m

PROGRAM = "from scaler.programs.provision_host import main; import sys; sys.exit(main())"
QUICK = ("--idle-seconds", "1", "--sustain-seconds", "0", "--list-interval-seconds", "0.5")
DRAIN_SECONDS = 8.0  # less than Slurm waits before it kills
TIMEOUT_SECONDS = 90.0
MAXIMUM = 3
SCRIPT = Path(__file__).resolve().parents[3] / "packaging/slurm/scaler-workers.sbatch"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,  # minutes, and Slurm is needed; the other tests play its commands
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(reason_not_to_run()), reason=f"no Slurm here: {reason_not_to_run()}"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as started:
        yield started


@pytest.fixture
def slurm(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A Slurm in which nothing runs yet."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SCALER_CLUSTER_DRAIN_TIMEOUT_SECONDS", f"{DRAIN_SECONDS:g}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    yield cluster
    cluster.call("scancel", f"--user={os.getuid()}")
    wait_for(lambda: cluster.jobs() == [], "all jobs to end")


@pytest.fixture
def address() -> Iterator[str]:
    with Scheduler(logging_level="WARNING") as scheduler:
        yield scheduler.get_address()


class Program:
    """`scaler_provision` with a pool of jobs."""

    def __init__(self, address: str, folder: Path, *options: str) -> None:
        self.log = folder / f"log-{len(list(folder.glob('log-*')))}"
        words = ["--adapter", "slurm", "--name", "jobs", "--slots", str(CPUS), f"--sbatch-options=-o {folder}/%j.out"]
        command = [sys.executable, "-c", PROGRAM, address, *words, *QUICK, *options, "--logging-paths", str(self.log)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def stop(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(TIMEOUT_SECONDS)


@pytest.fixture
def start(slurm: SlurmCluster, address: str, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    started: List[Program] = []

    def start_it(*options: str) -> Program:
        started.append(Program(address, tmp_path, *options))
        return started[-1]

    yield start_it
    for each in started:
        each.stop()


class Watch:
    """How many jobs there were at a time, at most.

    Attributes:
        looks: so often they were counted.
    """

    def __init__(self, slurm: SlurmCluster) -> None:
        self.most = self.looks = 0
        self._slurm = slurm
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(0.1):
            self.most = max(self.most, len(self._slurm.jobs()))
            self.looks += 1


def work(number: int, seconds: float, notes: str) -> int:
    """Note that it runs, and for how long it should."""
    with open(notes, "a") as file:
        file.write(f"{number}\n")
    time.sleep(seconds)
    return number


def work_with(_earlier: int, seconds: float, number: int, notes: str) -> int:
    """Work that needs a result."""
    return work(number, seconds, notes)


def work_after(go: str, number: int, notes: str) -> int:
    """Work that lasts until a file exists."""
    work(number, 0.0, notes)
    wait_for_file(go, seconds=TIMEOUT_SECONDS)
    return number


def runs(notes: Path) -> List[int]:
    return sorted(int(line) for line in notes.read_text().split()) if notes.exists() else []


def running(slurm: SlurmCluster) -> List[str]:
    return [job for job, state, _ in slurm.jobs() if state == "RUNNING"]


def test_jobs_come_in_stages_up_to_the_maximum_say_why_they_wait_and_go(
    slurm: SlurmCluster, address: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    program = start("--maximum", str(MAXIMUM))

    go = tmp_path / "go"
    with Client(address) as client, Watch(slurm) as watch:
        futures = [client.submit(work_after, str(go), number, str(notes)) for number in range(40)]
        pending = "1 unit of the pool jobs is pending (Resources)"  # there are two nodes
        wait_for(lambda: pending in client.explain(futures[-1]), "a waiting task to say why")
        go.touch()
        assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(40))
        wait_for(lambda: client.info().worker_count == 0 and slurm.jobs() == [], "all jobs to end")
        futures = [client.submit(work, number, 0.5, str(notes)) for number in range(40)]
        assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(40))
        wait_for(lambda: slurm.jobs() == [], "all jobs to end")

        assert watch.most == MAXIMUM
    assert runs(notes) == sorted(2 * list(range(40))), "a task ran twice"
    assert "ERROR" not in logged(program.log)
    states = [state for _, state, name in slurm.jobs("--states=all") if name.startswith("jobs-")]
    withdrawn = logged(program.log).count("is withdrawn")  # of which Slurm keeps nothing, if it was in an array
    assert states.count("CANCELLED") <= withdrawn, "what waits without tasks, and no other"
    assert set(states) <= {"COMPLETED", "CANCELLED"}


def test_a_job_that_waits_is_cancelled_when_its_tasks_have_gone(
    slurm: SlurmCluster, address: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    go, notes = tmp_path / "go", tmp_path / "notes"
    program = start("--maximum", str(MAXIMUM))
    with Client(address) as client:
        futures = [client.submit(work_after, str(go), number, str(notes)) for number in range(40)]
        pending = "1 unit of the pool jobs is pending (Resources)"  # there are two nodes
        wait_for(lambda: pending in client.explain(futures[-1]), "a job to wait")
        wait_for(lambda: len(runs(notes)) == CPUS * len(NODES), "all slots to be in use")
        (waiting,) = [job for job, state, _ in slurm.jobs() if state == "PENDING"]
        kept = [futures[number] for number in runs(notes)]
        for each in futures:
            if each not in kept:
                each.cancel()

        wait_for(lambda: waiting not in [job for job, _, _ in slurm.jobs()], "it to be cancelled")
        assert len(running(slurm)) == len(NODES)
        go.touch()
        assert [each.result(TIMEOUT_SECONDS) for each in kept] == runs(notes)
    assert "is withdrawn" in logged(program.log) and "ERROR" not in logged(program.log)


def test_a_job_that_is_cancelled_loses_nothing_and_runs_nothing_twice(
    slurm: SlurmCluster, address: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    start("--maximum", "1")
    with Client(address) as client:
        futures = [client.submit(work, number, 3.0, str(notes)) for number in range(3 * CPUS)]
        wait_for(lambda: len(runs(notes)) == CPUS, "the first tasks to run")
        (job,) = running(slurm)
        slurm.call("scancel", job)

        assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(3 * CPUS))
    assert runs(notes) == list(range(3 * CPUS))
    assert slurm.state_of(job) == "CANCELLED"


@pytest.mark.parametrize("partition", ["cpu", "abrupt", "requeued"])
def test_a_job_that_is_preempted_loses_nothing_and_runs_nothing_twice(
    slurm: SlurmCluster, address: str, start: Callable[..., Program], tmp_path: Path, partition: str
) -> None:
    """With a GraceTime, without one, and where Slurm would queue jobs again that let it."""
    notes = tmp_path / "notes"
    program = start("--maximum", str(len(NODES)), "--partition", partition)
    futures: List[ScalerFuture] = []
    with Client(address) as client:

        def submit() -> None:
            numbers = range(len(futures), len(futures) + CPUS * len(NODES))
            futures.extend([client.submit(work, number, 3.0, str(notes)) for number in numbers])

        submit()
        submit()
        wait_for(lambda: client.info().worker_count == len(NODES), "both nodes to be in use")
        jobs = running(slurm)
        urgent = ["--partition=urgent", "--nodes=1", "--exclusive", "--parsable", f"--output={tmp_path}/urgent"]
        urgent_job = slurm.call("sbatch", *urgent, "--wrap=exec sleep 1000")
        while urgent_job not in running(slurm):  # Slurm looks for jobs whose grace is over twice a minute
            submit()
            futures[-2 * CPUS * len(NODES)].result(TIMEOUT_SECONDS)
        (preempted,) = [job for job in jobs if job not in running(slurm)]

        assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(len(futures)))
    assert runs(notes) == list(range(len(futures))), "a task ran twice"
    assert (
        "asked to stop by SIGTERM: finishing what runs" in (tmp_path / f"{slurm.own_id_of(preempted)}.out").read_text()
    )
    assert slurm.state_of(preempted) == "PREEMPTED"
    assert "ERROR" not in logged(program.log)


def test_no_job_is_submitted_for_tasks_that_wait_for_others_or_that_no_pool_can_run(
    slurm: SlurmCluster, address: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    go, notes = tmp_path / "go", tmp_path / "notes"
    program = start("--maximum", str(MAXIMUM))
    with Client(address) as client:
        impossible = [client.options(capabilities={"gpu": 1}).submit(work, each, 0.0, str(notes)) for each in range(40)]
        first = client.submit(work_after, str(go), 100, str(notes))
        blocked = [client.submit(work_with, first, 1.0, number, str(notes)) for number in range(40)]
        wait_for(lambda: runs(notes) == [100], "the first task to run")
        with Watch(slurm) as watch:
            wait_for(lambda: watch.looks > 50, "several looks at what is wanted, of which there is one a second")
            assert "no pool has units for tasks that need gpu=1" in client.explain(impossible[0])
        assert watch.most == 1
        go.touch()
        assert [each.result(TIMEOUT_SECONDS) for each in blocked] == list(range(40))
        for each in impossible:
            each.cancel()
        wait_for(lambda: slurm.jobs() == [], "the job to end")
    log = logged(program.log)
    assert "no pool has units for tasks that need gpu=1" in log
    assert log.count("starts unit") <= MAXIMUM, "as many as the tasks that waited can use"


def test_a_worker_leaves_before_the_time_limit_of_its_job(
    slurm: SlurmCluster, address: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    start("--maximum", "1", "--lifetime-seconds", "60")
    jobs: List[str] = []
    with Client(address) as client:
        count = 0
        while len(jobs) < 2:  # until another one has come in the place of the first
            futures = [client.submit(work, count + each, 2.0, str(notes)) for each in range(CPUS)]
            count += CPUS
            assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(count - CPUS, count))
            jobs += [job for job in running(slurm) if job not in jobs]
    assert runs(notes) == list(range(count))
    wait_for(lambda: slurm.state_of(jobs[0]) == "COMPLETED", "the first job to have ended by itself")


def test_the_packaged_script_runs_workers_on_each_node_which_leave_at_a_signal_of_slurm(
    slurm: SlurmCluster, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    notes, go = tmp_path / "notes", tmp_path / "go"
    options = [f"--nodes={len(NODES)}", f"--cpus-per-task={CPUS}", f"--output={tmp_path}/script.out", "--parsable"]
    job = slurm.call("sbatch", *options, str(SCRIPT), address, "--drain-signal", "SIGUSR1")
    with Client(address) as client:
        futures = [client.submit(work_after, str(go), number, str(notes)) for number in range(CPUS * len(NODES))]
        wait_for(lambda: len(runs(notes)) == len(futures), "a task in each slot of each node")
        assert [each.slots for each in client.info().workers] == [CPUS] * len(NODES)

        slurm.call("scancel", "--signal=USR1", job)  # to all processes of its steps
        is_told = "notice by SIGUSR1 (drain_signal): finishing what runs"
        wait_for(lambda: (tmp_path / "script.out").read_text().count(is_told) == len(NODES), "each to be told")
        go.touch()
        assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(len(futures)))
        wait_for(lambda: slurm.state_of(job) == "COMPLETED", "the job to have ended as it should")
    assert runs(notes) == list(range(len(futures))), "a task ran twice"


def test_jobs_know_how_many_cpus_they_have(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Nothing here enforces it: each process may use all CPUs of the host."""
    program = f"{sys.executable} -c 'from scaler.cpus import usable_cpus; print(usable_cpus())'"
    for number, (cpus, command) in enumerate([(1, program), (2, program), (2, f"srun --ntasks=2 -c1 {program}")]):
        output = tmp_path / f"cpus-{number}"
        slurm.call("sbatch", "--wait", "--nodes=1", f"--ntasks={cpus}", f"--output={output}", f"--wrap={command}")
    assert [(tmp_path / f"cpus-{number}").read_text().split() for number in range(3)] == [["1"], ["2"], ["1", "1"]]


def test_a_controller_that_hangs_stops_nothing_but_starts(
    slurm: SlurmCluster, address: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    slurm.hang()
    try:
        start("--command-timeout-seconds", "1")
        with Client(address) as client:
            future = client.submit(work, 1, 0.0, str(notes))
            text = "the pool jobs starts none while its units cannot be listed: squeue has not ended within 1 s"
            wait_for(lambda: text in client.explain(future), "the reason to be told")
            slurm.go_on()
            assert future.result(TIMEOUT_SECONDS) == 1
    finally:
        slurm.go_on()


def test_another_run_of_the_program_finds_its_jobs(
    slurm: SlurmCluster, address: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    notes, go = tmp_path / "notes", tmp_path / "go"
    first = start("--maximum", str(MAXIMUM))
    with Client(address) as client, Watch(slurm) as watch:
        futures = [client.submit(work_after, str(go), number, str(notes)) for number in range(20 * CPUS)]
        wait_for(lambda: len(slurm.jobs()) == MAXIMUM, "all jobs")
        assert first.stop() == 0
        second = start("--maximum", str(MAXIMUM))
        wait_for(lambda: "connected to the scheduler" in logged(second.log), "the second program")
        go.touch()

        assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(20 * CPUS))
        wait_for(lambda: slurm.jobs() == [], "all jobs to end")
        assert watch.most == MAXIMUM
    assert runs(notes) == list(range(20 * CPUS))


def test_a_stop_cancels_what_waits_at_once_and_drains_what_runs(
    slurm: SlurmCluster, address: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    options = ["-o", f"{tmp_path}/%j.out", "--exclusive"]
    settings = SlurmSettings(address, [sys.executable, "-m", "scaler.worker"], options=options)
    units = SlurmUnits(PoolSettings("own", slots=CPUS), settings, 30.0)
    names = [f"own-ab-{number}" for number in range(len(NODES) + 1)]
    for each in names:
        units.start(each)
    with Client(address) as client:
        futures = [client.submit(work, number, 3.0, str(notes)) for number in range(CPUS * len(NODES))]
        wait_for(lambda: len(runs(notes)) == len(futures), "all tasks to run")
        (waiting,) = [name for name, each in units.list().items() if each.state == m.UnitState.PENDING]
        units.stop(waiting)
        assert units.list()[waiting].state == m.UnitState.FAILED

        for each in names:
            units.stop(each)

        assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(len(futures)))
    assert runs(notes) == list(range(len(futures)))
    wait_for(lambda: units.list().keys() == {waiting}, "the others to have ended as they should")


def test_units_that_start_together_are_one_array_which_another_run_finds_and_of_which_one_ends_alone(
    slurm: SlurmCluster, address: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    options = ("--minimum", str(MAXIMUM), "--maximum", str(MAXIMUM), "--idle-seconds", "5")
    first = start(*options)
    with Client(address) as client, Watch(slurm) as watch:
        futures = [client.submit(work, number, 3.0, str(notes)) for number in range(8 * CPUS)]
        wait_for(lambda: len(running(slurm)) == len(NODES), "the jobs for which there are nodes")
        jobs = [job for job, _, _ in slurm.jobs()]
        array = jobs[0].partition("_")[0]
        assert sorted(jobs) == [f"{array}_{index}" for index in range(MAXIMUM)]
        wait_for(lambda: len(runs(notes)) >= CPUS * len(NODES), "tasks in all slots")
        assert first.stop() == 0
        second = start(*options)
        pending = "1 unit of the pool jobs is pending (Resources)"
        wait_for(lambda: pending in client.explain(futures[-1]), "the other run to find the one that waits")
        assert sorted(job for job, _, _ in slurm.jobs()) == sorted(jobs)
        cancelled, other = running(slurm)
        slurm.call("scancel", cancelled)

        assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(8 * CPUS))
        assert slurm.state_of(cancelled) == "CANCELLED" and slurm.state_of(other) == "RUNNING"
        assert watch.most == MAXIMUM
        assert "ERROR" not in logged(second.log)
    assert runs(notes) == list(range(8 * CPUS)), "a task ran twice"


def test_an_element_of_an_array_is_stopped_alone(slurm: SlurmCluster, address: str, tmp_path: Path) -> None:
    options = ["-o", f"{tmp_path}/%j.out", "--exclusive"]
    settings = SlurmSettings(address, [sys.executable, "-m", "scaler.worker"], options=options)
    names = [f"own-ab-{number}" for number in range(9, 9 + len(NODES) + 3)]
    assert SlurmUnits(PoolSettings("own", slots=CPUS), settings, 30.0).start_together(names) == len(names)
    units = SlurmUnits(PoolSettings("own", slots=CPUS), settings, 30.0)

    def named(state: m.UnitState) -> List[str]:
        return [name for name in names if units.list().get(name, ListedUnit(m.UnitState.STOPPING)).state == state]

    with Client(address) as client:
        wait_for(lambda: client.info().worker_count == len(NODES), "the workers to come")
        assert named(m.UnitState.PENDING) == names[len(NODES) :] and named(m.UnitState.STARTING) == names[: len(NODES)]

        units.stop(names[-2])  # which waits, and has others around it that do
        assert units.list().keys() == set(names) - {names[-2]}
        assert named(m.UnitState.PENDING) == [names[-3], names[-1]]

        element = running(slurm)[0]
        output = tmp_path / f"{slurm.own_id_of(element)}.out"
        units.stop(names[0])  # which runs
        wait_for(lambda: slurm.state_of(element) == "COMPLETED", "it to end as it should, and not cancelled")
        assert names[1] in named(m.UnitState.STARTING)
        assert output.read_text().count("asked to stop by SIGTERM") == 1
        assert output.read_text().count("asked to stop by") == 1
        wait_for(lambda: named(m.UnitState.PENDING) == [names[-1]], "the next one to begin")
        units.stop(names[1])
        wait_for(lambda: named(m.UnitState.PENDING) == [], "the last one to begin, which has the id of the array")
        # A job that is stopped while it is launched has failed, for Slurm; not for a pool that has asked it to leave.
        wait_for(lambda: client.info().worker_count == len(NODES), "its worker to come")
        units.stop(names[-1])
        wait_for(lambda: units.list().keys() == {names[-3]}, "it to end alone")


def test_an_element_that_is_stopped_has_time_for_its_tasks_beyond_killwait_while_others_wait(
    slurm: SlurmCluster, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALER_CLUSTER_DRAIN_TIMEOUT_SECONDS", f"{2 * KILL_WAIT_SECONDS}")
    notes = tmp_path / "notes"
    options = ["-o", f"{tmp_path}/%j.out", "--exclusive"]
    settings = SlurmSettings(address, [sys.executable, "-m", "scaler.worker"], options=options)
    names = [f"own-ab-{number}" for number in range(len(NODES) + 1)]
    units = SlurmUnits(PoolSettings("own", slots=CPUS), settings, 30.0)
    assert units.start_together(names) == len(names)
    with Client(address) as client:
        seconds = KILL_WAIT_SECONDS + 5.0
        futures = [client.submit(work, number, seconds, str(notes)) for number in range(CPUS * len(NODES))]
        wait_for(lambda: len(runs(notes)) == len(futures), "all tasks to run")
        element = running(slurm)[0]

        units.stop(names[0])

        assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(len(futures)))
    assert runs(notes) == list(range(len(futures))), "a task ran twice"
    wait_for(lambda: slurm.state_of(element) == "COMPLETED", "it to end as it should")


def test_each_element_of_an_array_knows_its_own_end(slurm: SlurmCluster, address: str, tmp_path: Path) -> None:
    write = f'echo "$SLURM_JOB_END_TIME" > {tmp_path}/new-$5; mv {tmp_path}/new-$5 {tmp_path}/$5; exec sleep 1000'
    settings = SlurmSettings(address, ["bash", "-c", write, "worker"], options=["--time=5", "-o", "/dev/null"])
    names = ["own-ab-1", "own-ab-2"]
    earliest = time.time() + 300
    assert SlurmUnits(PoolSettings("own", slots=CPUS), settings, 30.0).start_together(names) == 2

    wait_for(lambda: all((tmp_path / name).exists() for name in names), "both to run")
    for name in names:
        assert earliest - 1 <= int((tmp_path / name).read_text()) <= time.time() + 300


def test_an_array_beyond_the_limit_of_this_slurm_is_submitted_in_parts_and_a_refused_one_not_at_all(
    slurm: SlurmCluster, address: str
) -> None:
    def units(*options: str) -> SlurmUnits:
        return SlurmUnits(PoolSettings("own"), SlurmSettings(address, ["true"], options=options), 30.0)

    names = [f"own-ab-{number}" for number in range(1, SlurmUnits.most_together + 3)]  # one more than MaxArraySize
    with pytest.raises(SlurmRefusedError, match="sinfo -s lists the partitions"):
        units("--partition=nope").start_together(names[:3])
    assert units().list() == {}

    count = units("--hold").start_together(names)

    assert count == len(names) // 2
    found = units().list()
    assert found.keys() == set(names[:count]) and {each.reason for each in found.values()} == {"JobHeldUser"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--partition", "nope"], "sinfo -s lists the partitions (--partition)"),
        (["--gres", "gpu:1"], "(--gres)"),
        (["--sbatch-options=--mem=4T"], "no node has so much memory (--sbatch-options)"),
    ],
)
def test_what_slurm_refuses_is_told_to_those_who_wait(
    options: List[str], text: str, address: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    start(*options)
    with Client(address) as client:
        future = client.submit(work, 1, 0.0, str(tmp_path / "notes"))
        wait_for(lambda: "is paused" in client.explain(future), "the pool to be paused")
        assert text in client.explain(future)
        future.cancel()


def test_a_node_that_fails_loses_no_task(
    slurm: SlurmCluster, address: str, start: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    with slurm_cluster() as failing:  # one of its own: the node does not come back
        for name, value in failing.environment.items():
            monkeypatch.setenv(name, value)
        program = start("--maximum", "2")
        with Client(address) as client:
            futures = [client.submit(work, number, 2.0, str(notes)) for number in range(8 * CPUS)]
            wait_for(lambda: len(runs(notes)) > CPUS, "the tasks of two jobs to run")
            job = running(failing)[0]
            failing.fail(failing.node_of(job))

            assert [each.result(TIMEOUT_SECONDS) for each in futures] == list(range(8 * CPUS))
        wait_for(lambda: failing.state_of(job) == "NODE_FAIL", "Slurm to note it")
        program.stop()
    assert set(runs(notes)) == set(range(8 * CPUS))
