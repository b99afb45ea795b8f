"""The program `scaler_scheduler`: its options, its log, how it starts and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Callable, Optional

import pytest
from scheduler_process import INTERPRETERS, SchedulerProcess, check_others_work

from scaler_appliance.__main__ import NURSERY_SIZE, NURSERY_VARIABLE
from scaler_appliance.core.placement.tenant_shares import TenantLimits, limits_of
from scaler_appliance.shell import scheduler_program
from scaler_appliance.shell.memory_use import MemoryUse
from scaler_appliance.shell.publishing.monitor_address import monitor_address_of
from scaler_appliance.shell.publishing.status_publisher import MAXIMUM_WAITING_BYTES
from scaler_appliance.shell.scheduler_options import SCHEDULER, tenant_settings
from scaler_appliance.shell.scheduler_program import main
from scaler_protocol import messages as m
from scaler_protocol.host.segments import ObjectDirectory

Start = Callable[..., SchedulerProcess]


def test_sigterm_lets_peers_leave_and_ends_with_zero(scheduler: SchedulerProcess) -> None:
    worker, client = scheduler.worker(), scheduler.client()
    scheduler.process.send_signal(signal.SIGTERM)
    for peer in (worker, client):
        assert peer.take(m.DisconnectRequest)[0].reason == m.DisconnectReason.SHUTDOWN
    worker.send(m.DisconnectResponse())
    assert scheduler.wait_for_end() == 0
    assert "stopped: all peers have left" in scheduler.output()


def test_it_ends_as_it_should_as_soon_as_it_says_where_it_listens(start: Start) -> None:
    scheduler = start(wait=False)
    scheduler.wait_for_output("Scheduler: listening at")
    scheduler.process.send_signal(signal.SIGTERM)
    assert scheduler.wait_for_end() == 0
    assert "Scheduler: stopped" in scheduler.output()


def test_a_second_sigterm_ends_it_at_once(scheduler: SchedulerProcess) -> None:
    worker = scheduler.worker()
    scheduler.process.send_signal(signal.SIGTERM)
    worker.take(m.DisconnectRequest)
    scheduler.process.send_signal(signal.SIGTERM)
    assert scheduler.wait_for_end() == 0
    assert "second SIGTERM" in scheduler.output()


def test_it_ends_with_the_process_that_holds_its_standard_input(start: Start) -> None:
    scheduler = start("--exit-when-stdin-closes")
    assert scheduler.process.stdin is not None
    scheduler.process.stdin.write(b"this ends nothing\n")
    scheduler.process.stdin.flush()
    check_others_work(scheduler)
    scheduler.process.stdin.close()
    assert scheduler.wait_for_end() == 0


def test_nothing_stays_behind(scheduler: SchedulerProcess) -> None:
    client = scheduler.client()
    directory, monitor = client.welcome.object_directory, scheduler.monitor_address.replace("ipc://", "")
    assert os.path.isdir(directory) and os.path.exists(monitor)
    scheduler.process.send_signal(signal.SIGINT)
    assert scheduler.wait_for_end() == 0
    assert not os.path.exists(directory) and not os.path.exists(monitor)


def test_an_unprotected_scheduler_is_stopped_by_a_client(start: Start) -> None:
    scheduler = start("--no-protected")
    client = scheduler.client()
    client.send(m.ClientShutdown())
    assert client.take(m.ClientShutdownResponse)[0].accepted
    assert scheduler.wait_for_end() == 0


def test_an_address_in_use_is_said_and_ends_it_with_one(start: Start) -> None:
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        occupant.listen()
        address = f"tcp://127.0.0.1:{occupant.getsockname()[1]}"
        scheduler = start(address=address, wait=False)
        assert scheduler.wait_for_end() == 1
    told = f"scaler_scheduler: cannot listen at {address}: Address already in use; use another port"
    assert told in scheduler.output()
    assert "Traceback" not in scheduler.output()


@pytest.mark.parametrize("option", ["--object-directory", "--object-spill-directory", "--address-file"])
def test_a_path_that_cannot_be_written_is_told_with_its_option(option: str, start: Start, tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "file"
    scheduler = start(option, str(missing), wait=False)
    assert scheduler.wait_for_end() == 1
    assert f"scaler_scheduler: {option} {missing}: No such file or directory" in scheduler.output()


def test_an_unusable_monitor_address_is_reported_with_its_option(start: Start, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/missing/m"
    scheduler = start("--monitor-address", address, wait=False)
    assert scheduler.wait_for_end() == 1
    told = f"scaler_scheduler: cannot listen at {address}: No such file or directory; choose another --monitor-address"
    assert told in scheduler.output()


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tcp://127.0.0.1:0", "-lp", str(tmp_path / "missing" / "log")])
    assert end.value.code == 2
    assert "error: logging cannot be set up: " in capsys.readouterr().err


def test_an_address_is_not_taken_for_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    address = "tcp://127.0.0.1:0"
    with pytest.raises(SystemExit):
        main(["-lp", "log", address])
    assert f"--logging-paths: {address} is an address, not a file: write it before" in capsys.readouterr().err
    assert SCHEDULER.read(["-lp", "log", "--", address]).address == address


@pytest.mark.parametrize(
    "address", ["localhost", "udp://1.2.3.4:5", "tcp://127.0.0.1", "tcp://h:99999", "ipc://" + "x" * 200]
)
def test_a_bad_address_is_a_wrong_command_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([address])
    assert end.value.code == 2
    assert address[:20] in capsys.readouterr().err


def test_log_lines_are_those_that_users_know(scheduler: SchedulerProcess) -> None:
    scheduler.wait_for_output("StatusReporter: started")  # the last of them, which comes after the address
    line = re.compile(r"\[INFO\]\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4}: (.*)")
    lines = scheduler.output().splitlines()
    texts = [match[1] for match in map(line.fullmatch, lines) if match]
    assert len(texts) == len(lines)
    assert "logging to ('/dev/stdout',)" in texts
    assert f"Scheduler: monitor address is {scheduler.monitor_address}" in texts
    assert f"Scheduler: listening at {scheduler.address}" in texts
    host, port = scheduler.address[len("tcp://") :].split(":")
    assert scheduler.monitor_address == f"ipc:///tmp/{host}_{port}_monitor"


def test_every_option_does_what_it_says(start: Start, tmp_path: Path) -> None:
    log, objects, monitor = tmp_path / "log", tmp_path / "objects", f"ipc://{tmp_path}/m"
    objects.mkdir()
    scheduler = start(
        *("-mt", "0", "-qs", "3", "--maximum-attempts", "1"),
        *("-ct", "40", "-wt", "50", "-hi", "1.5", "--no-protected"),
        *("--object-directory", str(objects), "--maximum-object-bytes", "1000"),
        *("--object-memory-limit", "1000", "--object-spill-directory", str(tmp_path)),
        *("-ma", monitor, "--maximum-message-bytes", "1000000", "-e", "builtin"),
        *("-ll", "WARNING", "-lp", str(log)),
    )
    client, worker = scheduler.client().welcome, scheduler.worker()
    assert (client.timeout_milliseconds, worker.welcome.timeout_milliseconds) == (40_000, 50_000)
    assert client.heartbeat_interval_milliseconds == 1500
    assert Path(client.object_directory).parent == objects
    assert (Path(client.object_directory) / "spill").resolve().parent == tmp_path, "the limit has tests of its own"
    assert (client.limits.maximum_object_bytes, client.limits.maximum_message_bytes) == (1000, 1_000_000)
    assert client.monitor_address == monitor and not client.protected
    submitter = scheduler.client()
    submitter.submit(1, 2)
    assert submitter.take_result_ids() == [2], "one slot, and none may wait"
    worker.take_task_ids()
    worker.send_frames(b"junk")
    worker.take_refusal(m.RefusalReason.MALFORMED)
    assert submitter.take_result_ids() == [1], "lost with the only attempt"
    scheduler.process.send_signal(signal.SIGTERM)
    assert scheduler.wait_for_end() == 0
    assert "broke the protocol" in log.read_text() and "[INFO]" not in log.read_text()
    assert scheduler.output() == ""


@pytest.mark.parametrize("limit", ["1GiB", "0"])
def test_what_waits_for_monitors_follows_the_memory_limit(tmp_path: Path, limit: str) -> None:
    options = SCHEDULER.read(["tcp://127.0.0.1:0", "--memory-limit", limit])
    directory = ObjectDirectory(str(tmp_path))
    memory = MemoryUse()
    bounds = scheduler_program._bounds(options, memory, directory)
    memory.close()
    directory.remove()
    if limit == "0":
        assert bounds.publications == MAXIMUM_WAITING_BYTES
    else:  # this process may need more than the limit, which is raised then
        assert bounds.memory >= 1 << 30
        assert bounds.publications == min(MAXIMUM_WAITING_BYTES, bounds.memory // 16)


def test_a_logging_config_file_decides_about_logging(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "logging.conf"
    config.write_text(
        "[loggers]\nkeys=root\n[handlers]\nkeys=h\n[formatters]\nkeys=f\n"
        "[logger_root]\nlevel=INFO\nhandlers=h\n"
        "[handler_h]\nclass=StreamHandler\nformatter=f\nargs=(sys.stdout,)\n"
        "[formatter_f]\nformat=MINE %(message)s\n"
    )
    scheduler = start("-lc", str(config))
    scheduler.wait_for_output(f"MINE Scheduler: listening at {scheduler.address}")


def test_help_shows_each_option_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["-h"])
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for option in SCHEDULER.options:
        assert option.label.split("/")[-1] in text
        if option.default not in (None, False):
            assert f"(default: {option.kind.show(option.default)}" in text, option
        for variable in SCHEDULER.variables(option):
            assert f"env: {variable})" in text


@pytest.mark.parametrize(
    "arguments", [["-qs", "0"], ["-ct", "-1"], ["-ll", "LOUD"], ["--maximum-peers", "x"], ["-e", "z"]]
)
def test_a_wrong_value_is_a_wrong_command_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tcp://127.0.0.1:0", *arguments])
    assert end.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_the_version_names_all_that_matters(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    interpreter = r"(CPython [\d.]+|PyPy [\d.]+ \(Python [\d.]+\))"
    line = rf"scaler_scheduler \S+, protocol [\d.]+-[\d.]+, {interpreter}, libzmq [\d.]+\n"
    assert re.fullmatch(line, capsys.readouterr().out)


def test_a_system_without_descriptors_for_an_event_loop_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(kind: str) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(scheduler_program, "make_event_loop", fail)
    monkeypatch.setattr(scheduler_program, "setup_logging", lambda *_: None)
    assert main(["tcp://127.0.0.1:0"]) == 1
    assert capsys.readouterr().err == "scaler_scheduler: too many open files\n"


@pytest.mark.parametrize("start", ["cpython"], indirect=True)
def test_uvloop_serves_as_well(start: Start) -> None:
    pytest.importorskip("uvloop")
    scheduler = start("--event-loop", "uvloop")
    assert "use event loop: uvloop" in scheduler.output()
    check_others_work(scheduler)
    scheduler.process.send_signal(signal.SIGTERM)
    assert scheduler.wait_for_end() == 0


@pytest.mark.parametrize("start", ["pypy"], indirect=True)
@pytest.mark.parametrize("given", [None, "8M"])
def test_on_pypy_the_young_generation_is_large_unless_the_user_sets_its_size(
    start: Start, monkeypatch: pytest.MonkeyPatch, given: Optional[str]
) -> None:
    monkeypatch.delenv(NURSERY_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(NURSERY_VARIABLE, given)
    scheduler = start()
    environment = Path(f"/proc/{scheduler.process.pid}/environ").read_bytes().split(b"\0")
    assert f"{NURSERY_VARIABLE}={given or NURSERY_SIZE}".encode() in environment


@pytest.mark.parametrize("start", ["pypy"], indirect=True)
def test_on_pypy_it_compiles_once_it_serves(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYPYLOG", f"jit-summary:{tmp_path}/summary")
    monkeypatch.setenv(NURSERY_VARIABLE, NURSERY_SIZE)  # PyPy hides the other variable from what it executes
    scheduler = start()
    client, worker = scheduler.client(), scheduler.worker(slots=100)
    for first in range(1, 1000, 100):
        client.submit(*range(first, first + 100))
        worker.finish(worker.take_task_ids())
        client.take_result_ids()
    scheduler.process.send_signal(signal.SIGTERM)
    worker.take(m.DisconnectRequest)
    scheduler.process.send_signal(signal.SIGTERM)
    assert scheduler.wait_for_end() == 0
    subprocess.run(
        [INTERPRETERS["pypy"], "-m", "scaler_appliance", "--version"],
        env={**os.environ, "PYPYLOG": f"jit-summary:{tmp_path}/start"},
        check=True,
    )
    assert compiled_loops(tmp_path / "summary") > compiled_loops(tmp_path / "start")


def compiled_loops(summary: Path) -> int:
    """Of a program on PyPy."""
    found = re.search(r"Total # of loops:\s*(\d+)", summary.read_text())
    return int(found[1]) if found else 0


def test_an_ipc_address_serves_as_well(start: Start, tmp_path: Path) -> None:
    scheduler = start(address=f"ipc://{tmp_path}/s")
    assert scheduler.monitor_address == f"ipc://{tmp_path}/s_monitor"
    check_others_work(scheduler)


def test_the_monitor_has_an_address_of_its_own() -> None:
    assert monitor_address_of("tcp://127.0.0.1:80") == "ipc:///tmp/127.0.0.1_80_monitor"
    assert monitor_address_of("tcp://[::1]:80") == "ipc:///tmp/..1_80_monitor"
    assert monitor_address_of("ipc:///tmp/x") == "ipc:///tmp/x_monitor"


def test_limits_of_tenants_are_read(tmp_path: Path) -> None:
    texts = ["research:weight=3,maximum-objects=10GiB", "bob:maximum-waiting=100,maximum-running=4"]
    given = [word for text in texts for word in ("--tenant", text)]
    options = SCHEDULER.read(["tcp://127.0.0.1:0", *given])
    file = tmp_path / "config.toml"
    file.write_text(f"[scheduler]\naddress = 'tcp://127.0.0.1:0'\ntenant = {texts}\n")
    from_file = SCHEDULER.read(["-c", str(file)])
    assert limits_of(tenant_settings(options.tenant)) == {
        "research": TenantLimits(weight=3, maximum_object_bytes=10 << 30),
        "bob": TenantLimits(maximum_waiting=100, maximum_running=4),
    }
    assert options.tenant == from_file.tenant == texts


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["research"], "expected NAME:OPTION=VALUE"),
        (["research:"], "got the option ''"),
        (["research:weight=0"], "weight of the tenant research: expected a number, above 0"),
        (["research:weight=-1"], "above 0"),
        (["research:weight=nan"], "above 0"),
        (["research:maximum-running=0"], "maximum-running of the tenant research: expected a whole number, 1 or more"),
        (["research:maximum-objects=1G"], "maximum-objects of the tenant research: expected a size"),
        (["research:wait=1"], "the options weight, maximum-waiting, maximum-running, maximum-objects"),
        (["research:weight=1,weight=2"], "weight is given twice"),
        (["*:weight=2"], "expected NAME"),
        (["a b:weight=2"], "the tenant must have"),
        (["a:weight=2", "b:weight=1", "a:maximum-waiting=2"], "a is given twice"),
    ],
)
def test_a_wrong_limit_of_a_tenant_is_explained(given: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        SCHEDULER.read(["tcp://127.0.0.1:0", *[word for text in given for word in ("--tenant", text)]])
    assert end.value.code == 2
    assert why in capsys.readouterr().err
