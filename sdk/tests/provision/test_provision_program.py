"""`scaler_provision` itself, with a real scheduler: from no worker to some, and back to none."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator, List, Mapping, Optional

import pytest
from sdk_tasks import identity, logged, wait_for, wait_for_file, wait_until

from scaler import Client, Scheduler
from scaler.provision import provision_program, provisioner
from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ProvisionCore
from scaler.provision.provision_options import fault_of_pools, read_options
from scaler.provision.provisioner import CALLS_AT_ONCE, Provisioner
from scaler.provision.unit_adapters import LocalUnits
from scaler_protocol.keys.credentials import Credentials

PROGRAM = "from scaler.programs.provision_host import main; import sys; sys.exit(main())"
WORKER = "from scaler.programs.worker_host import main; import sys; sys.exit(main())"
QUICK = ("--idle-seconds", "1", "--sustain-seconds", "0", "--list-interval-seconds", "0.5")
TIMEOUT_SECONDS = 60.0
INTERVALS = (("near", 2.0), ("far", 60.0))

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def address() -> Iterator[str]:
    with Scheduler(logging_level="WARNING") as scheduler:
        yield scheduler.get_address()


@pytest.fixture
def start(address: str, tmp_path: Path) -> Iterator[Start]:
    started: List[subprocess.Popen[bytes]] = []

    def start_it(*options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAM, address, *options, "--logging-paths", str(tmp_path / "log")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment))
        return started[-1]

    yield start_it
    for each in started:
        if each.poll() is None:
            each.send_signal(signal.SIGTERM)
            each.wait(TIMEOUT_SECONDS)


def workers(client: Client) -> int:
    return client.info().worker_count


def test_a_program_whose_scheduler_is_not_there_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    program = Provisioner(Credentials(address), ProvisionCore([], "run"), {}, {})
    attempts: List[str] = []
    monkeypatch.setattr(
        program._session, "on_connect_failed", counted(program._session.on_connect_failed, attempts, program.stop)
    )

    assert program.run() == ""

    (said,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "nothing listens at" in said and said.endswith("(Connection refused): trying again")


def counted(report: Callable[[float, str], None], attempts: List[str], stop: Callable[[], None]) -> Any:
    """Reports an attempt to connect that failed, and stops after the second one."""

    def report_it(now: float, reason: str) -> None:
        attempts.append(reason)
        if len(attempts) == 2:
            stop()
        report(now, reason)

    return report_it


@pytest.mark.slow  # the only test of the whole program: two starts of Python, and seconds of waiting
def test_workers_of_this_host_come_with_tasks_and_go_without(
    address: str, start: Start, tmp_path: Path, done_files: List[Path]
) -> None:
    running, go = done_files
    program = start("--maximum", "2", "--slots", "1", *QUICK)
    with Client(address) as client:
        futures = [client.submit(identity, number) for number in range(3)]
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == [0, 1, 2]
        last = client.submit(wait_for_file, str(go), str(running), TIMEOUT_SECONDS)
        wait_until(running)  # so one of them is not idle
        assert 1 <= workers(client) <= 2
        go.touch()
        last.result(TIMEOUT_SECONDS)
        wait_for(lambda: workers(client) == 0, "idle workers to leave")
        log = tmp_path / "log"
        wait_for(lambda: "is idle and leaves" in logged(log), "the program to note what its workers are told, too")
        assert "starts unit workers-" in logged(log) and "ERROR" not in logged(log)

        client.submit(identity, 4).result(TIMEOUT_SECONDS)
        program.send_signal(signal.SIGTERM)

        assert program.wait(TIMEOUT_SECONDS) == 0
        wait_for(lambda: workers(client) == 0, "workers to end with the program")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_units_are_what_three_commands_say(address: str, start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "units"
    folder.mkdir()
    variables = f'PYTHONPATH="{os.pathsep.join(sys.path)}"'
    worker = f"{variables} {sys.executable} -c '{WORKER}' \"$UNIT_ADDRESS\" -n $UNIT_SLOTS --unit $UNIT_ID"
    begin = f'({worker} >/dev/null 2>&1 & echo $! > "{folder}/$UNIT_ID")'
    listing = (
        f'cd "{folder}"; for u in *; do [ -f "$u" ] && kill -0 $(cat "$u") 2>/dev/null && echo "$u running"; done; true'
    )
    start(
        *("--adapter", "exec", "--name", "jobs", "--maximum", "3", *QUICK),
        *("--start-command", begin, "--list-command", listing),
        *("--stop-command", f'kill $(cat "{folder}/$UNIT_ID")'),
    )
    with Client(address) as client:
        assert client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1
        wait_for(lambda: workers(client) == 0, "the idle unit to leave")
    assert [each.name.split("-")[0] for each in folder.iterdir()] == ["jobs"]


@pytest.mark.slow
def test_units_that_wait_for_their_turn_are_not_started_once_it_is_to_end(
    address: str, start: Start, tmp_path: Path
) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    begun.touch()
    begin = f'echo "$UNIT_ID" >> "{begun}"; while [ ! -e "{go}" ]; do sleep 0.05; done'
    with Client(address) as client:
        program = start(
            *("--adapter", "exec", "--minimum", "30", "--maximum", "30", *QUICK),
            *("--start-command", begin, "--list-command", "true", "--stop-command", "true"),
            *("--command-timeout-seconds", f"{TIMEOUT_SECONDS:g}"),
        )
        wait_for(lambda: len(begun.read_text().splitlines()) == CALLS_AT_ONCE, "the first units to be started")
        program.send_signal(signal.SIGTERM)
        wait_for(lambda: client.info().clients == 1, "the program to leave the scheduler")
        go.touch()

        assert program.wait(TIMEOUT_SECONDS) == 0
    assert len(begun.read_text().splitlines()) == CALLS_AT_ONCE


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Slurm whose jobs wait."""
    folder = tmp_path / "slurm"
    (folder / "jobs").mkdir(parents=True)
    for name in ("others", "full", "calls"):
        (folder / name).touch()
    monkeypatch.setenv("PATH", f"{Path(__file__).parent / 'fake_slurm'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    return folder


@pytest.mark.slow
def test_units_that_start_together_are_one_submission_and_another_run_finds_them(
    address: str, start: Start, fake_slurm: Path
) -> None:
    options = ("--adapter", "slurm", "--minimum", "5", "--maximum", "5", *QUICK)
    first = start(*options)
    with Client(address) as client:
        future = client.submit(identity, 1)
        pending = "5 units of the pool workers are pending (Resources)"
        wait_for(lambda: pending in client.explain(future), "all units to wait")
        first.send_signal(signal.SIGTERM)
        assert first.wait(TIMEOUT_SECONDS) == 0
        wait_for(lambda: pending not in client.explain(future), "the scheduler to forget them")
        start(*options)
        wait_for(lambda: pending in client.explain(future), "another run to find them")
    submitted = [call for call in (fake_slurm / "calls").read_text().splitlines() if call.startswith("sbatch")]
    assert len(submitted) == 1 and " --array=0-4 " in submitted[0]


@pytest.mark.slow
def test_units_beyond_a_limit_fail_and_the_others_of_the_same_start_do_not(
    address: str, start: Start, fake_slurm: Path, tmp_path: Path
) -> None:
    (fake_slurm / "limit").write_text("3")
    start("--adapter", "slurm", "--minimum", "5", "--maximum", "5", *QUICK)
    with Client(address) as client:
        future = client.submit(identity, 1)
        pending = "3 units of the pool workers are pending (Resources)"
        wait_for(lambda: pending in client.explain(future), "the others to wait")

        def failed() -> List[str]:
            return [line for line in logged(tmp_path / "log").splitlines() if "has failed: " in line]

        wait_for(lambda: len(failed()) >= 2, "two units to fail")  # the scheduler may hear of the others before
    found = [re.findall(r"unit workers-[0-9a-f]+-(\d+) has failed: .*MaxSubmitJobs", line) for line in failed()[:2]]
    assert found == [["4"], ["5"]]


def test_one_ctrl_c_that_arrives_twice_is_one_request_and_a_later_one_hurries(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    hurried: List[float] = []

    class Recorded(LocalUnits):
        def hurry(self) -> None:
            hurried.append(now[0])

    credentials = Credentials("tcp://127.0.0.1:9", None, True, "provisioner")
    core = ProvisionCore([PoolSettings("p")], "run")
    monkeypatch.setattr("scaler.provision.provisioner.time.monotonic", lambda: now[0])
    program = Provisioner(credentials, core, {"p": Recorded(["true"])}, {"p": 1.0})
    for now[0] in (10.0, 10.01, 10.0 + 2 * provisioner.ONE_REQUEST_SECONDS):
        program.stop()

    assert hurried == [10.0 + 2 * provisioner.ONE_REQUEST_SECONDS]
    program.run()


def test_each_pool_is_listed_in_its_own_interval(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: List[Mapping[str, float]] = []

    class Recorded(Provisioner):
        def __init__(self, *arguments: Any) -> None:
            made.append(arguments[-1])
            raise OSError("it is not needed")

    monkeypatch.setattr(provision_program, "Provisioner", Recorded)
    monkeypatch.setattr(provision_program, "setup_logging", lambda *_: None)  # it would stay for later tests
    config = tmp_path / "scaler.toml"
    pools = [f'[[provision]]\nname = "{name}"\nlist_interval_seconds = {seconds}\n' for name, seconds in INTERVALS]
    config.write_text("\n".join(pools))

    provision_program.main(["tcp://127.0.0.1:2345", "--insecure", "--config", str(config)])

    assert made == [dict(INTERVALS)]


def test_pools_with_different_keys_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "scaler.toml"
    config.write_text('[[provision]]\nname = "near"\ninsecure = true\n\n[[provision]]\nname = "far"\n')

    assert provision_program.main(["tcp://127.0.0.1:2345", "--config", str(config)]) == provision_program.EXIT_USAGE
    assert "same key_file" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "fault"), [(None, "No such file or directory"), ("[", "invalid TOML")])
def test_a_file_that_cannot_be_read_is_an_error_of_the_command_line(
    text: Optional[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "scaler.toml"
    if text is not None:
        config.write_text(text)

    with pytest.raises(SystemExit) as ended:
        provision_program.main(["--config", str(config)])

    assert ended.value.code == provision_program.EXIT_USAGE
    assert f"{config}: {fault}" in capsys.readouterr().err


def test_pools_with_different_logs_are_refused_with_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "scaler.toml"
    config.write_text('[[provision]]\nname = "near"\n\n[[provision]]\nname = "far"\nlogging_level = "DEBUG"\n')

    assert provision_program.main(["tcp://127.0.0.1:2345", "--config", str(config)]) == provision_program.EXIT_USAGE
    text = capsys.readouterr().err
    assert "all pools need the same logging_level" in text and "near has INFO, and far has DEBUG" in text
    assert "once by --logging-level or SCALER_PROVISION_LOGGING_LEVEL" in text

    for words in (["--logging-level", "WARNING"], []):
        values = "" if words else 'logging_level = "DEBUG"\n'
        config.write_text(f'[[provision]]\nname = "near"\n{values}\n[[provision]]\nname = "far"\n{values}')
        assert fault_of_pools(read_options(["tcp://127.0.0.1:2345", "--config", str(config), *words])) == ""


def jobs(start_command: str, list_command: str, stop_command: str = "true") -> List[str]:
    """The options of a pool of the name `jobs` that starts a unit in any case."""
    commands = ("--start-command", start_command, "--list-command", list_command, "--stop-command", stop_command)
    return ["--adapter", "exec", "--name", "jobs", "--minimum", "1", *QUICK, *commands]


@pytest.mark.slow  # two programs, which wait for their first listings
def test_a_second_program_with_the_same_pool_is_refused_with_the_name_of_the_first(
    address: str, start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Units are lines of a file, which both of them list."""
    units = tmp_path / "units"
    units.touch()
    stop = f'echo "$UNIT_ID" >> "{tmp_path / "stopped"}"'
    options = jobs(f'echo "$UNIT_ID pending" >> "{units}"', f'cat "{units}"', stop)
    first = start(*options)
    wait_for(lambda: units.read_text() != "", "the first program to start its unit")

    second = start(*options)

    assert second.wait(TIMEOUT_SECONDS) == 1
    text = capfd.readouterr().err
    assert "of the pool 'jobs' belongs to client scaler_provision" in text and f"process {first.pid})" in text
    assert "two provisioners cannot have the same pool" in text
    assert first.poll() is None and len(units.read_text().splitlines()) == 1 and not (tmp_path / "stopped").exists()


@pytest.mark.slow  # two programs
def test_of_two_programs_with_one_pool_one_is_refused_before_it_has_started_anything(
    address: str, start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither lists what the other one has started, so that the units cannot tell."""
    units = tmp_path / "units"
    units.touch()
    options = jobs(f'echo "$UNIT_ID" >> "{units}"', "true")
    programs = [start(*options), start(*options)]

    wait_for(lambda: any(each.poll() is not None for each in programs), "one program to end")
    refused, kept = sorted(programs, key=lambda each: each.poll() is None)
    wait_for(lambda: units.read_text() != "", "the other program to start a unit")

    assert refused.wait(TIMEOUT_SECONDS) == 1 and kept.poll() is None
    text = capfd.readouterr().err
    assert "two provisioners cannot have the same pool" in text and f"process {kept.pid})" in text
    assert "stop one of them, or give its pool another name" in text
    # Each program has an instance of its own in the ids of its units.
    assert len({line.rpartition("-")[0] for line in units.read_text().splitlines()}) == 1


@pytest.mark.slow
def test_programs_on_other_machines_may_have_pools_of_one_name(address: str, start: Start, tmp_path: Path) -> None:
    units = tmp_path / "units"
    units.touch()
    for place in ("near", "far"):
        start(*jobs(f'echo "$UNIT_ID {place}" >> "{units}"', f"true {place}"))

    wait_for(lambda: {line.split()[1] for line in units.read_text().splitlines()} == {"near", "far"}, "both to start")


@pytest.mark.slow
def test_a_pool_whose_starts_fail_says_why_to_those_who_wait(address: str, start: Start) -> None:
    fails = "echo no quota left >&2; exit 3"
    start(
        *("--adapter", "exec", *QUICK),
        *("--start-command", fails, "--list-command", "true", "--stop-command", "true"),
    )
    with Client(address) as client:
        future = client.submit(identity, 1)

        wait_for(lambda: "the pool workers is paused" in client.explain(future), "the pool to be paused")
        text = client.explain(future)
        assert "after 3 failed starts" in text and "no quota left" in text
        future.cancel()
