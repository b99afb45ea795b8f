"""`scaler keys` with a scheduler that runs: what it makes is admitted at once, and what it revokes ends at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sdk_tasks import wait_for
from security.keyed_scheduler import TIMEOUT_SECONDS, KeyedScheduler

from scaler.cluster.appliance import scheduler_command
from scaler.exceptions import AuthenticationError, DisconnectedError, SchedulerRefusedError
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.key_file import read_key_file
from scaler_protocol.keys.key_text import encode_key

LOADED = "the keys were loaded again"  # in the scheduler's log


def run_keys(scheduler: KeyedScheduler, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scaler.programs", "keys", *arguments, "--directory", scheduler.keys.path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert f"Told the scheduler at {scheduler.address} to read its keys again." in done.stderr
    return done


def run_keys_and_wait(scheduler: KeyedScheduler, *arguments: str) -> None:
    """Run a command, and wait for the scheduler to know its result."""
    before = scheduler.log.count(LOADED)
    run_keys(scheduler, *arguments)
    wait_for(lambda: scheduler.log.count(LOADED) > before, "the keys to be loaded")


def new_key(scheduler: KeyedScheduler, role: str, path: Path) -> Path:
    run_keys_and_wait(scheduler, "new", "--role", role, "--name", path.stem, "--output", str(path))
    return path


def test_a_new_key_is_admitted_and_a_revoked_one_ends_its_session(scheduler: KeyedScheduler, tmp_path: Path) -> None:
    path = new_key(scheduler, "client", tmp_path / "laptop.key")
    client = scheduler.client(path, timeout_seconds=5)
    assert client.info().worker_count == 0

    run_keys(scheduler, "revoke", "laptop")
    with pytest.raises((AuthenticationError, DisconnectedError)):
        client.info()
    with pytest.raises(AuthenticationError, match="does not admit this key"):
        scheduler.client(path)


def test_a_key_allows_what_its_role_says(scheduler: KeyedScheduler, tmp_path: Path) -> None:
    path = new_key(scheduler, "worker", tmp_path / "node.key")

    with pytest.raises(SchedulerRefusedError, match="scaler keys new --role client"):
        scheduler.client(path)


def test_key_files_stay_valid_until_the_old_server_key_is_forgotten(scheduler: KeyedScheduler, tmp_path: Path) -> None:
    old = new_key(scheduler, "client", tmp_path / "old.key")
    run_keys(scheduler, "rotate")
    new = new_key(scheduler, "client", tmp_path / "new.key")
    assert read_key_file(str(new)).server_keys[0] != read_key_file(str(old)).server_keys[0]
    for path in (old, new):
        with scheduler.client(path) as client:
            client.info()

    run_keys_and_wait(scheduler, "rotate", "--forget-old")
    with scheduler.client(new) as client:
        client.info()
    with pytest.raises(AuthenticationError, match="expects another key"):
        scheduler.client(old)


@pytest.mark.parametrize("name", ["scheduler.key", "authorized_keys"])
def test_a_scheduler_does_not_start_with_keys_that_others_can_change_or_read(tmp_path: Path, name: str) -> None:
    directory = KeyDirectory(str(tmp_path / "keys"))
    directory.open_or_create(load_sodium())
    (tmp_path / "keys" / name).chmod(0o644 if name == "scheduler.key" else 0o666)
    command = [*scheduler_command(), "tcp://127.0.0.2:0", "--keys", directory.path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode != 0 and "chmod" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_no_secret_is_in_what_a_scheduler_says_of_itself(scheduler: KeyedScheduler, tmp_path: Path) -> None:
    path = new_key(scheduler, "client", tmp_path / "quiet.key")
    scheduler.client(path).disconnect()
    secrets = [pair.secret for pair in scheduler.keys.server_key_pairs()]
    secrets += [scheduler.keys.owner().keys.secret, read_key_file(str(path)).keys.secret]
    printed = subprocess.run(
        [sys.executable, "-m", "scaler_appliance", "--keys", scheduler.keys.path, "--print-config"],
        env={**os.environ, "SCALER_KEY_FILE": str(path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert printed.returncode == 0 and "keys = " in printed.stdout
    said = scheduler.log + printed.stdout + printed.stderr
    assert "quiet" in said, "the log names the key"
    for secret in secrets:
        for text in (encode_key(secret), secret.hex(), repr(secret)):
            assert text not in said
