"""SIGHUP: which options a running scheduler reads again, and what it says of those that it cannot change."""

from __future__ import annotations

import argparse
import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from scheduler_harness import hello
from scheduler_process import SchedulerProcess, check_others_work

from scaler_appliance.core.option_changes import CHANGEABLE
from scaler_appliance.shell.option_reload import OptionReload
from scaler_appliance.shell.scheduler_options import SCHEDULER, changeable_settings
from scaler_protocol import messages as m
from scaler_protocol.programs.options import ConfigurationError, Program
from scaler_protocol.programs.options.reloading import changed_options

Start = Callable[..., SchedulerProcess]

RELOADABLE = [option for option in SCHEDULER.options if option.is_reloadable]
ELSEWHERE = {
    "maximum_peers": "maximum_peers",
    "object_memory_limit": "object_memory_limit_bytes",
    "logging_level": "",
    "tenant": "tenants",
}
"""Options whose setting has another name, or that are none of the core's."""
OTHER_VALUES: Dict[str, Any] = {"tenant": ["a:weight=2"], "logging_level": "DEBUG", "object_memory_limit": 12345}


@pytest.fixture(autouse=True)
def level() -> Any:
    """The logger's level is as it was."""
    logger = logging.getLogger("scaler")
    before = logger.level
    logger.setLevel(logging.INFO)
    yield logger
    logger.setLevel(before)


def settings_of(options: argparse.Namespace) -> Dict[str, Any]:
    others = {ELSEWHERE[name]: getattr(options, name) for name in ("maximum_peers", "object_memory_limit")}
    return {**changeable_settings(options), **others}


def options_with(path: Path, text: str, *arguments: str) -> argparse.Namespace:
    path.write_text(text)
    return SCHEDULER.read_again(["tcp://127.0.0.1:1", "--config", str(path), *arguments])


class Reloaded:
    """A scheduler's options, and the file that they are read from."""

    def __init__(self, path: Path, text: str, *arguments: str) -> None:
        self.path = path
        self.command = ["tcp://127.0.0.1:1", "--config", str(path), *arguments]
        path.write_text(text)
        self.options = OptionReload(self.read(), self.read, settings_of)

    def read(self) -> argparse.Namespace:
        return SCHEDULER.read_again(self.command)

    def write(self, text: str) -> Dict[str, Any]:
        self.path.write_text(text)
        return self.options.reload()


@pytest.mark.parametrize("key", [option.key for option in RELOADABLE])
def test_each_option_that_may_change_changes_what_follows_from_it_and_nothing_else(
    key: str, tmp_path: Path, level: logging.Logger
) -> None:
    option = SCHEDULER.option(key)
    assert option is not None
    value = OTHER_VALUES.get(key, 7)
    loaded = Reloaded(tmp_path / "scaler.toml", "[scheduler]\n")
    changes = loaded.write(f"[scheduler]\n{key} = {option.kind.to_toml(value)}\n")
    setting = ELSEWHERE.get(key, key)
    assert set(changes) == ({setting} if setting else set()) <= CHANGEABLE
    assert level.level == (logging.DEBUG if key == "logging_level" else logging.INFO)
    assert loaded.options.reload() == {}, "once"


def test_all_settings_of_the_core_that_may_change_follow_from_an_option_that_may() -> None:
    assert {ELSEWHERE.get(option.key, option.key) for option in RELOADABLE} - {""} == CHANGEABLE


def test_one_line_says_what_has_changed_from_what_to_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loaded = Reloaded(tmp_path / "scaler.toml", '[scheduler]\nmaximum_attempts = 2\ntenant = ["a:weight=1"]\n')
    caplog.clear()
    loaded.write('[scheduler]\nmaximum_attempts = 3\ntenant = ["a:weight=2"]\n')
    assert [record.getMessage() for record in caplog.records if record.levelname == "INFO"] == [
        'Scheduler: options have changed: maximum_attempts: 2 → 3; tenant: ["a:weight=1"] → ["a:weight=2"]'
    ]


def test_an_option_that_needs_a_new_start_is_named_and_keeps_its_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = Reloaded(tmp_path / "scaler.toml", "[scheduler]\n")
    caplog.clear()
    assert loaded.write("[scheduler]\nprotected = false\nmaximum_attempts = 9\n") == {"maximum_attempts": 9}
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["Scheduler: protected: true → false: takes effect at the next start"]
    assert loaded.options.reload() == {} and caplog.text.count("takes effect at the next start") == 2
    loaded.write("[scheduler]\nmaximum_attempts = 9\n")
    assert caplog.text.count("takes effect at the next start") == 2, "it is what it was"


def test_what_the_command_line_and_the_environment_say_stays_whatever_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALER_SCHEDULER_MAXIMUM_PEERS", "40")
    loaded = Reloaded(tmp_path / "scaler.toml", "[scheduler]\n", "--maximum-attempts", "2")
    assert loaded.write("[scheduler]\nmaximum_attempts = 3\nmaximum_peers = 5\n") == {}


FAULTS = {
    "a syntax error": ("[scheduler]\nmaximum_attempts = = 3\n", "invalid TOML: Invalid value (at line 2, column 20)"),
    "a value": (
        "[top]\n\n[scheduler]\nmaximum-attempts = 3\nmaximum_peers = -1\n",
        ", line 5: [scheduler] maximum_peers",
    ),
    "a name": (
        "[scheduler]\n\nmaximum_attemps = 3\n",
        ", line 3: [scheduler] has no key 'maximum_attemps'; did you mean",
    ),
    "two tenants": ('[scheduler]\ntenant = ["a:weight=1", "a:weight=2"]\n', "--tenant: a is given twice"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_invalid_file_changes_nothing_and_one_line_says_where_it_is_invalid_and_why(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text, expected = FAULTS[fault]
    loaded = Reloaded(tmp_path / "scaler.toml", "[scheduler]\n")
    caplog.clear()
    assert loaded.write(text) == {}
    (record,) = caplog.records
    assert record.levelname == "ERROR" and expected in record.getMessage()
    assert str(loaded.path) in record.getMessage()
    assert loaded.write("[scheduler]\nmaximum_attempts = 3\n") == {"maximum_attempts": 3}


def test_a_missing_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loaded = Reloaded(tmp_path / "scaler.toml", "[scheduler]\nmaximum_attempts = 3\n")
    loaded.path.unlink()
    assert loaded.options.reload() == {}
    assert f"{loaded.path}: No such file or directory" in caplog.text


def test_no_other_program_says_that_it_reloads_options() -> None:
    from scaler_appliance.top.top_options import TOP
    from scaler_appliance.ui.ui_options import UI

    programs: List[Program] = [TOP, UI]
    for program in programs:
        assert not any(option.is_reloadable for option in program.options)


def test_what_is_the_same_has_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "scaler.toml"
    one, same = (options_with(path, "[scheduler]\nmaximum_attempts = 3\n") for _ in range(2))
    assert changed_options(SCHEDULER, one, same) == ([], [])
    with pytest.raises(ConfigurationError):
        options_with(path, "[scheduler]\nmaximum_attempts = 0\n")


# A real one ----------------------------------------------------------------------------------------------------------


def test_a_running_scheduler_takes_over_what_its_file_says(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "scaler.toml"
    path.write_text('[scheduler]\nlogging_level = "INFO"\nmax_number_of_tasks_waiting = 2\n')
    scheduler = start("--config", str(path))
    client = scheduler.client()
    client.submit(1, 2)
    path.write_text('[scheduler]\nlogging_level = "WARNING"\nmax_number_of_tasks_waiting = 4\nprotected = false\n')
    scheduler.process.send_signal(signal.SIGHUP)
    scheduler.wait_for_output("options have changed: max_number_of_tasks_waiting: 2 → 4; logging_level: ")
    scheduler.wait_for_output("protected: true → false: takes effect at the next start")
    client.submit(3, 4)
    worker = scheduler.worker(slots=4)
    taken: List[int] = []
    while len(taken) < 4:
        taken += worker.take_task_ids()
    path.write_text("[scheduler]\nmaximum_attempts = none\n")
    scheduler.process.send_signal(signal.SIGHUP)
    scheduler.wait_for_output(f"{path}: invalid TOML: Invalid value (at line 2, column 20)")
    check_others_work(scheduler)
    assert "connected" not in scheduler.output().split("options have changed")[1], "INFO is not logged any more"


@pytest.mark.exhaustive_on_pypy
def test_a_lower_number_of_peers_holds_for_those_that_come_later(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "scaler.toml"
    path.write_text("[scheduler]\nmaximum_peers = 3\n")
    scheduler = start("--config", str(path))
    clients = [scheduler.client() for _ in range(2)]
    path.write_text("[scheduler]\nmaximum_peers = 1\n")
    scheduler.process.send_signal(signal.SIGHUP)
    scheduler.wait_for_output("maximum_peers: 3 → 1")
    late = scheduler.peer()
    late.send(hello(m.Role.CLIENT))
    assert "serves 2 peers already" in late.take_refusal(m.RefusalReason.LIMIT_EXCEEDED)
    worker_is_refused = scheduler.peer()
    worker_is_refused.send(hello(m.Role.WORKER, slots=1))
    worker_is_refused.take_refusal(m.RefusalReason.LIMIT_EXCEEDED)
    for client in clients:
        client.send(m.DisconnectRequest())
        client.take(m.DisconnectResponse)


@pytest.mark.exhaustive_on_pypy
def test_a_recording_contains_what_has_changed_and_can_be_replayed(start: Start, tmp_path: Path) -> None:
    path, recording = tmp_path / "scaler.toml", tmp_path / "recording"
    path.write_text("[scheduler]\n")
    scheduler = start("--config", str(path), "--record", str(recording))
    client = scheduler.client()
    client.submit(1, 2)
    path.write_text('[scheduler]\nmax_number_of_tasks_waiting = 2\ntenant = ["a:weight=2,maximum-running=3"]\n')
    scheduler.process.send_signal(signal.SIGHUP)
    scheduler.wait_for_output("options have changed")
    client.submit(3, 4)
    assert len(client.take(m.TaskResult)[0].ids) == 2, "they are rejected"
    scheduler.process.send_signal(signal.SIGTERM)
    assert scheduler.wait_for_end() == 0
    command = [sys.executable, "-m", "scaler_appliance", "replay", "--check", str(recording)]
    replayed = subprocess.run(command, capture_output=True, text=True)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    listed = subprocess.run([*command[:4], "--list", str(recording)], capture_output=True, text=True).stdout
    assert "OPTIONS_CHANGED" in listed and "maximum" not in listed.split("OPTIONS_CHANGED")[0]


@pytest.mark.exhaustive_on_pypy
def test_without_a_file_sighup_changes_no_option(start: Start) -> None:
    scheduler = start()
    scheduler.process.send_signal(signal.SIGHUP)
    scheduler.wait_for_output("the keys were loaded again")
    assert "options" not in scheduler.output()
    check_others_work(scheduler)
