"""The units as a real systemd runs them, installed by the commands that their pages give.

The scheduler is the single file with PyPy, or what pip installs; workers and clients are what pip installs. The clients
run as root, with a key that the page's command makes.
"""

from __future__ import annotations

import re
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Iterator, List

import pytest
from packaged import TREE, WHEELS, built
from sdk_tasks import wait_for
from systemd_machine import SystemdMachine, download, reason_not_to_run
from upgrades.loading_client import LOAD, LoadingClient

PAGE = TREE / "packaging/systemd/README.md"
HOW_TO = TREE / "docs/how-to/run-as-a-service.md"
ADDRESS = "tcp://127.0.0.1:2345"
SCHEDULER, WORKERS, PROVISIONER = "scaler-scheduler", "scaler-workers", "scaler-provision"
STATE, RUN = "/var/lib/scaler", "/run/scaler"
PYTHON = "/opt/scaler/bin/python"
KEY = "/root/alice.key"
CONFIGURATION = "/etc/scaler/scaler.toml"
WATCHDOG_SECONDS = 4

LARGE_TASK = f"import scaler; print(len(scaler.Client({ADDRESS!r}).submit(bytes, 1000000).result()))".replace("'", '"')

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,  # a minute, and systemd is needed; the other tests play its notify socket
    pytest.mark.timeout(300),
]


def commands_of(page: Path, containing: str) -> str:
    """The commands for root in the block of a page that contains a text."""
    text = page.read_text(encoding="utf-8").replace("\n  ", "\n")
    blocks: List[str] = re.findall(r"```console\n(.*?)```", text, re.S)
    (block,) = [each for each in blocks if containing in each]
    return "cd /tree\n" + re.sub(r"^# ", "", block, flags=re.M)


INSTALL_PACKAGES = commands_of(HOW_TO, "python3 -m venv")
INSTALL_SERVICES = commands_of(PAGE, "install -m 755")
INSTALL_PROVISIONER = commands_of(PAGE, "provision.toml")
MAKE_KEY = commands_of(PAGE, "keys new --role client").replace("alice.key", KEY)


@pytest.fixture(scope="module")
def machine(one_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdMachine]:
    """One with both programs and units, as the pages install them."""
    reason = reason_not_to_run()
    if reason:
        pytest.skip(f"no systemd here: {reason}")
    built(WHEELS / ".built", "dist-wheels")
    packages = tmp_path_factory.mktemp("packages")
    download(packages, WHEELS, "scaler-sdk[local]")
    with SystemdMachine(packages) as made:
        made.add(one_file, "/tree/dist/pypy/scaler_scheduler")
        for path in (TREE / "packaging/systemd").iterdir():
            made.add(path, f"/tree/packaging/systemd/{path.name}")
        made.add(LOAD, "/tree/load.py")
        made.shell(f"export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_QUIET=1; \n{INSTALL_PACKAGES}")
        made.shell("rm /usr/local/bin/scaler_scheduler")  # pip's
        for unit in (SCHEDULER, WORKERS):  # so that tests need not wait for a minute
            made.write(
                f"/etc/systemd/system/{unit}.service.d/quick.conf", f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}\n"
            )
        made.write(CONFIGURATION, "[scheduler]\n")
        made.shell(INSTALL_SERVICES)
        made.write("/etc/scaler/scheduler.env", f"SCALER_SCHEDULER_OPTIONS=--config {CONFIGURATION}\n")
        made.run("systemctl", "restart", SCHEDULER)
        make_key(made)
        yield made


def make_key(machine: SystemdMachine) -> None:
    """As the page says, for a client of another user."""
    machine.shell(MAKE_KEY)
    wait_for(lambda: is_admitted(machine), "the scheduler to know the new key")


def is_admitted(machine: SystemdMachine) -> bool:
    return ping(machine).returncode == 0


def ping(machine: SystemdMachine) -> subprocess.CompletedProcess[str]:
    return machine.try_to_run("env", f"SCALER_KEY_FILE={KEY}", "scaler_scheduler", "ping", ADDRESS)


@pytest.fixture(autouse=True)
def running(machine: SystemdMachine) -> Iterator[None]:
    """Each test begins with both services, and ends without a unit that failed."""
    machine.run("systemctl", "reset-failed", SCHEDULER, WORKERS)  # it has counted the starts of other tests
    machine.run("systemctl", "start", SCHEDULER, WORKERS)
    yield
    assert machine.failed_units() == [], machine.log()


@pytest.fixture
def load(machine: SystemdMachine) -> Iterator[LoadingClient]:
    """A client whose tasks are under way."""
    once = machine.path(f"{STATE}/once-1")
    once.unlink(missing_ok=True)
    command = machine.command(PYTHON, "/tree/load.py", ADDRESS, STATE, "1", SCALER_KEY_FILE=KEY)
    client = LoadingClient(command, once)
    try:
        client.wait_for_rounds(1)
        yield client
    finally:
        client.kill()


class Service:
    """What systemd says of a unit now."""

    def __init__(self, machine: SystemdMachine, unit: str) -> None:
        found = machine.properties(unit, "MainPID", "NRestarts", "ActiveState", "SubState", "Result", "ExecMainStatus")
        self.process = int(found["MainPID"])  # as the machine counts them; 0: none
        self.restarts = int(found["NRestarts"])
        self.state = f"{found['ActiveState']}/{found['SubState']}"
        self.result = found["Result"]
        self.exit_code = int(found["ExecMainStatus"])


def wait_until_replaced(machine: SystemdMachine, unit: str, before: Service) -> Service:
    """Wait until systemd has started a unit again by itself."""

    def is_replaced() -> bool:
        now = Service(machine, unit)
        return now.state == "active/running" and now.process not in (0, before.process)

    wait_for(is_replaced, f"systemd to start {unit} again")
    return Service(machine, unit)


def wait_for_log(machine: SystemdMachine, pattern: str) -> None:
    """Wait until the journal has a line of the scheduler."""
    wait_for(lambda: re.search(pattern, machine.log(f"--unit={SCHEDULER}")), f"{pattern!r} in the journal")


def restarts_of(machine: SystemdMachine) -> int:
    """How many schedulers have made way for the next one."""
    return machine.log(f"--unit={SCHEDULER}").count("SIGUSR1; its peers wait for the next scheduler at this address")


def object_folders(machine: SystemdMachine, parent: str) -> List[str]:
    """Names of folders of object files in /dev/shm, or on disk."""
    return [path.name for path in machine.path(parent).glob("scaler-*")]


def test_start_returns_when_the_scheduler_listens(machine: SystemdMachine) -> None:
    connect = "import socket; socket.create_connection(('127.0.0.1', 2345)).close()"
    for _ in range(3):
        machine.run("systemctl", "stop", SCHEDULER)
        machine.shell(f'systemctl start {SCHEDULER}; python3 -c "{connect}"')
        status = machine.properties(SCHEDULER, "StatusText")["StatusText"]
        assert status == f"listening at {ADDRESS}"
    wait_for(
        lambda: machine.properties(WORKERS, "StatusText")["StatusText"] == f"connected to {ADDRESS}",
        "the workers to be back by themselves",
    )


def test_a_scheduler_whose_address_is_taken_is_tried_again(machine: SystemdMachine) -> None:
    listen = (
        "import socket, time; made = socket.create_server(('127.0.0.1', 2345)); print(1, flush=True); time.sleep(99)"
    )
    machine.run("systemctl", "stop", SCHEDULER)
    other = subprocess.Popen(machine.command("python3", "-c", listen), stdout=subprocess.PIPE)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == b"1\n"
        failed = machine.try_to_run("systemctl", "start", SCHEDULER)
        assert failed.returncode == 1 and "control process exited with error code" in failed.stderr
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    wait_for(lambda: Service(machine, SCHEDULER).state == "active/running", "the address to be free")
    wait_for_log(machine, "Address already in use")


def test_a_wrong_command_line_is_not_tried_again(machine: SystemdMachine) -> None:
    settings = machine.path("/etc/scaler/scheduler.env")
    right = settings.read_text()
    settings.write_text("SCALER_SCHEDULER_OPTIONS=--wrong\n")
    try:
        assert machine.try_to_run("systemctl", "restart", SCHEDULER).returncode == 1
        found = Service(machine, SCHEDULER)
        assert (found.state, found.exit_code, found.restarts) == ("failed/failed", 2, 0)
        wait_for_log(machine, "--wrong")
    finally:
        settings.write_text(right)
        machine.run("systemctl", "start", SCHEDULER)


def test_reload_reads_options_and_keys_and_no_task_is_lost(machine: SystemdMachine, load: LoadingClient) -> None:
    before = Service(machine, SCHEDULER)
    machine.write(CONFIGURATION, '[scheduler]\nobject_memory_limit = "1MiB"\n')
    machine.run("systemctl", "reload", SCHEDULER)
    wait_for_log(machine, "object_memory_limit")
    load.wait_for_rounds(3)
    assert object_folders(machine, STATE), "objects are on disk now, where workers can read them"
    assert load.check()["once"]

    allowed = machine.path(f"{STATE}/keys/authorized_keys")
    text = allowed.read_text()
    allowed.write_text("".join(line for line in text.splitlines(True) if "client-1" not in line))
    machine.run("systemctl", "reload", SCHEDULER)
    wait_for(lambda: not is_admitted(machine), "the key to be refused")
    allowed.write_text(text)
    machine.run("systemctl", "reload", SCHEDULER)
    wait_for(lambda: is_admitted(machine), "the key to be admitted again")
    after = Service(machine, SCHEDULER)
    assert (after.process, after.restarts, after.state) == (before.process, before.restarts, "active/running")


def test_reload_can_wait_until_the_options_are_read(machine: SystemdMachine, load: LoadingClient) -> None:
    """With the drop-in that the unit names."""
    version = int(machine.run("systemctl", "--version").stdout.split()[1])
    if version < 253:
        pytest.skip(f"systemd {version} has no Type=notify-reload (SCALER_TEST_ROOT names the root of a newer one)")
    folder = f"/etc/systemd/system/{SCHEDULER}.service.d"
    machine.write(f"{folder}/reload.conf", "[Service]\nType=notify-reload\nExecReload=\n")
    try:
        machine.shell(f"systemctl daemon-reload; systemctl restart {SCHEDULER}")
        for number in range(1000, 1005):
            machine.write(CONFIGURATION, f"[scheduler]\nmax_number_of_tasks_waiting = {number}\n")
            machine.run("systemctl", "reload", SCHEDULER)
            wait_for_log(machine, f"max_number_of_tasks_waiting.* {number}")
        load.wait_for_rounds(1)
        load.check()
    finally:
        machine.write(CONFIGURATION, "[scheduler]\n")
        machine.shell(f"rm {folder}/reload.conf; systemctl daemon-reload; systemctl restart {SCHEDULER}")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_scheduler_that_is_killed_or_hangs_is_replaced_and_no_future_is_lost(
    machine: SystemdMachine, load: LoadingClient, number: int
) -> None:
    before, workers = Service(machine, SCHEDULER), Service(machine, WORKERS)
    machine.shell(f"kill -{number:d} {before.process}")
    after = wait_until_replaced(machine, SCHEDULER, before)
    assert after.restarts == before.restarts + 1
    log = machine.log(f"--unit={SCHEDULER}", "--lines=30")
    assert ("Watchdog timeout" in log) == (number == signal.SIGSTOP), log
    load.wait_for_rounds(2)
    load.check()
    assert Service(machine, WORKERS).process == workers.process, "they have waited for it"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_workers_that_are_killed_or_hang_are_replaced_and_no_future_is_lost(
    machine: SystemdMachine, load: LoadingClient, number: int
) -> None:
    before = Service(machine, WORKERS)
    agent = machine.path(f"/proc/{before.process}/task/{before.process}/children").read_text().split()[0]
    target = before.process if number == signal.SIGKILL else agent
    machine.shell(f"kill -{number:d} {target}")
    wait_until_replaced(machine, WORKERS, before)
    load.wait_for_rounds(2)
    load.check()


def test_a_restart_under_load_loses_no_future(machine: SystemdMachine, load: LoadingClient) -> None:
    """Also if the program is replaced by another one, which is what an upgrade is."""
    workers = Service(machine, WORKERS)
    restarts = restarts_of(machine)
    file = "/tree/dist/pypy/scaler_scheduler"
    programs = ["/opt/scaler/bin/scaler_scheduler", file, file]
    for program in programs:
        before = Service(machine, SCHEDULER)
        machine.shell(f"cp {program} /usr/local/bin/new; mv /usr/local/bin/new /usr/local/bin/scaler_scheduler")
        machine.run("systemctl", "restart", SCHEDULER)
        after = Service(machine, SCHEDULER)
        assert after.process != before.process and after.state == "active/running"
        load.wait_for_rounds(2)
    assert load.check()["once"]
    assert Service(machine, WORKERS).process == workers.process, "they have waited for it"
    assert restarts_of(machine) == restarts + len(programs)


def test_restarts_of_workers_under_load_lose_no_future(machine: SystemdMachine, load: LoadingClient) -> None:
    for _ in range(2):
        machine.run("systemctl", "restart", WORKERS)
        assert Service(machine, WORKERS).result == "success"
        load.wait_for_rounds(2)
    load.check()


def test_a_stop_is_clean_and_leaves_no_files(machine: SystemdMachine) -> None:
    machine.shell(f"SCALER_KEY_FILE={KEY} {PYTHON} -c '{LARGE_TASK}'")
    assert object_folders(machine, "/dev/shm")
    machine.run("systemctl", "stop", WORKERS, SCHEDULER)
    for unit in (SCHEDULER, WORKERS):
        found = Service(machine, unit)
        assert (found.state, found.result, found.exit_code) == ("inactive/dead", "success", 0)
    assert object_folders(machine, "/dev/shm") == []
    assert not machine.path(RUN).exists()
    assert [path.name for path in machine.path(STATE).iterdir() if path.name != "once-1"] == ["keys"]
    for status in machine.path("/proc").glob("[0-9]*/status"):
        assert "\nName:\tscaler" not in f"\n{status.read_text()}", "a process is left"


def test_workers_prove_the_key_that_systemd_hands_to_them(machine: SystemdMachine) -> None:
    """By the lines that the page has for hosts of workers alone."""
    drop_ins: List[str] = re.findall(r"```ini\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    (drop_in,) = [each for each in drop_ins if "worker.key" in each]
    folder = f"/etc/systemd/system/{WORKERS}.service.d"
    machine.shell(MAKE_KEY.replace("client", "worker").replace(KEY, "/etc/scaler/worker.key"))
    machine.write(f"{folder}/override.conf", textwrap.dedent(drop_in))
    try:
        machine.shell(f"systemctl daemon-reload; systemctl restart {WORKERS}")
        wait_for_log(machine, "with the key 'worker-1'")
    finally:
        machine.shell(f"rm {folder}/override.conf; systemctl daemon-reload; systemctl restart {WORKERS}")


def test_a_provisioner_starts_workers_with_the_tasks_and_lets_them_end_when_it_is_stopped(
    machine: SystemdMachine,
) -> None:
    machine.run("systemctl", "stop", WORKERS)
    machine.shell(INSTALL_PROVISIONER)
    try:
        machine.shell(f"SCALER_KEY_FILE={KEY} {PYTHON} -c '{LARGE_TASK}'")
        log = machine.log(f"--unit={PROVISIONER}")
        assert "starts unit here-" in log and "Worker: connected as session" in log
    finally:
        machine.run("systemctl", "disable", "--now", PROVISIONER)
    found = Service(machine, PROVISIONER)
    assert (found.state, found.result, found.exit_code) == ("inactive/dead", "success", 0)
    assert "asked to stop by SIGTERM, leaving" in machine.log(f"--unit={PROVISIONER}")


def test_the_units_run_without_privileges(machine: SystemdMachine) -> None:
    owners = set()
    for unit in (SCHEDULER, WORKERS):
        process = Service(machine, unit).process
        status = dict(line.split(":\t", 1) for line in machine.path(f"/proc/{process}/status").read_text().splitlines())
        assert (status["NoNewPrivs"], status["CapEff"], status["CapBnd"]) == ("1", "0" * 16, "0" * 16), unit
        assert status["Seccomp"] == "2"
        owners.add(status["Uid"].split()[0])
    (owner,) = owners
    assert int(owner) >= 61184, "a user that exists while the services run"
    process = Service(machine, SCHEDULER).process
    seen = machine.run("nsenter", f"--target={process}", "--mount", "stat", "--format=%u", f"{STATE}/keys").stdout
    assert seen.strip() == owner, "as the service sees it: systemd may map the users of its folders"


def test_the_file_unpacks_itself_once_where_the_unit_says(machine: SystemdMachine) -> None:
    machine.run("systemctl", "restart", SCHEDULER)
    assert machine.path("/var/cache/private/scaler").is_dir()
    unpacked = re.findall(r"unpacking, this once, to (\S+)/", machine.log(f"--unit={SCHEDULER}"))
    assert unpacked == ["/var/cache/scaler"]


def test_the_journal_knows_the_level_of_each_line(machine: SystemdMachine) -> None:
    before = Service(machine, SCHEDULER)
    machine.shell(f"kill -KILL {before.process}")
    wait_until_replaced(machine, SCHEDULER, before)
    warnings = [f"--unit={WORKERS}", "--priority=warning"]
    wait_for(lambda: "the connection to the scheduler was lost" in machine.log(*warnings), "the workers' warning")
    for unit, usual in ((WORKERS, "Processor[0] started"), (SCHEDULER, f"listening at {ADDRESS}")):
        assert usual not in machine.log(f"--unit={unit}", "--priority=warning")
        assert usual in machine.log(f"--unit={unit}", "--priority=info")
        assert "[INFO]" not in machine.log(f"--unit={unit}") and "<6>" not in machine.log(f"--unit={unit}")


def test_the_journal_has_nothing_of_a_broken_restriction(machine: SystemdMachine) -> None:
    """What the tests before had it log."""
    log = machine.log(f"--unit={SCHEDULER}", f"--unit={WORKERS}")
    for text in ("Traceback", "Permission denied", "Operation not permitted", "Read-only file system"):
        assert text not in log


def test_the_monitor_and_the_self_test_work_on_the_machine(machine: SystemdMachine) -> None:
    machine.shell(MAKE_KEY.replace("client", "monitor").replace("alice", "monitor"))
    machine.shell("ln -sf /usr/local/bin/scaler_scheduler /usr/local/bin/scaler_top")
    watch = ["scaler_top", "--once", "--key-file", KEY.replace("alice", "monitor"), f"ipc://{RUN}/monitor"]
    wait_for(lambda: not machine.try_to_run(*watch).returncode, "the key to be admitted")
    frame = machine.run(*watch).stdout
    assert "machine-" in frame, "the worker is shown"
    assert machine.run("scaler_scheduler", "--self-test").stdout.endswith("\nok\n")
