"""Monitors on the network need keys that may read the status; others are told nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator, Tuple

import pytest
from security.attackers.another_user import AnotherUser
from security.attackers.doors import Door
from security.keyed_scheduler import TIMEOUT_SECONDS, KeyedScheduler
from security.test_attackers import Wire
from security.test_who_is_admitted import PROBLEMS, Problem

from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_file import read_key_file
from scaler_protocol.wire.secure_zmtp import ClientSecurity
from scaler_protocol.wire.zmtp import greeting

MONITOR = Door("monitor")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedScheduler]:
    started = KeyedScheduler(tmp_path_factory.mktemp("watched"), "-ma", "tcp://127.0.0.2:*")
    yield started
    started.stop()


def look(watched: KeyedScheduler, *options: str, **environment: str) -> Tuple[int, str]:
    """What scaler_top prints, and its exit code."""
    command = [sys.executable, "-m", "scaler_appliance.top", watched.monitor_address, "--once", "--timeout", "4"]
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("role", ["monitor", "admin", "provisioner", "owner"])
def test_a_key_that_may_read_the_status_shows_it(watched: KeyedScheduler, role: str) -> None:
    code, text = look(watched, "--key-file", str(watched.admitted_key(role, f"{role}-watches")))
    assert code == 0 and "scheduler" in text, text


@pytest.mark.parametrize("role", ["client", "worker"])
def test_a_key_of_another_role_shows_nothing(watched: KeyedScheduler, role: str) -> None:
    code, text = look(watched, "--key-file", str(watched.admitted_key(role, f"{role}-pries")))
    assert code == 1 and "does not admit the one given" in text, text
    assert f"role {role} cannot be used by a monitor" in watched.log


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda each: each.__name__)
def test_a_monitor_is_turned_away(watched: KeyedScheduler, problem: Problem, tmp_path: Path) -> None:
    environment, _ = problem(watched, tmp_path)
    nothing = {"SCALER_KEY_DIRECTORY": str(tmp_path / "none"), "SCALER_RUN_DIRECTORY": str(tmp_path / "nothing-runs")}
    code, text = look(watched, "--timeout", "1", **nothing, **environment)
    assert code == 1 and "key" in text, text
    assert watched.keys.path not in text, "no figures are shown"


def connected_monitor(watched: KeyedScheduler, wire: Wire, key_file: Path) -> None:
    key = read_key_file(str(key_file))
    protocol = MONITOR.end(ClientSecurity(load_sodium(), key.keys, key.server_keys[0]))
    wire.shake_hands(protocol)
    wire.say_hello(protocol)
    wire.wait_for_answer(protocol)


def test_a_monitor_whose_key_is_revoked_loses_its_connection_at_once(watched: KeyedScheduler) -> None:
    key_file = watched.admitted_key("monitor", "former-monitor")
    with Wire(watched, MONITOR) as wire:
        connected_monitor(watched, wire, key_file)
        watched.keys.revoke("former-monitor")
        watched.reload()
        assert wire.is_closed()


def test_a_monitor_s_key_that_expires_ends_its_connection(watched: KeyedScheduler) -> None:
    key_file = watched.admitted_key("monitor", "short-lived-monitor")
    with Wire(watched, MONITOR) as wire:
        connected_monitor(watched, wire, key_file)
        watched.expire(time.time() + 2, "short-lived-monitor")
        assert wire.is_closed()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_host_sees_no_status(tmp_path: Path, another_user: AnotherUser) -> None:
    """At the usual address, which is a socket in a folder that all users share."""
    scheduler = KeyedScheduler(tmp_path)
    path = scheduler.monitor_address.partition("://")[2]
    try:

        def attack() -> str:
            stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                stream.connect(path)
            except PermissionError:
                return "no way in"
            stream.sendall(greeting(b"NULL"))
            return repr(stream.recv(4096))

        assert another_user.runs(attack) == "no way in"
    finally:
        scheduler.stop()


def test_programs_of_the_scheduler_s_user_need_nothing(watched: KeyedScheduler) -> None:
    code, text = look(watched)
    assert code == 0, text


def test_a_monitor_without_a_key_is_told_how_to_get_one(watched: KeyedScheduler, tmp_path: Path) -> None:
    nothing = {"SCALER_KEY_DIRECTORY": str(tmp_path / "none"), "SCALER_RUN_DIRECTORY": str(tmp_path / "nothing-runs")}
    code, text = look(watched, **nothing)
    assert code == 1 and "there is no key for the scheduler" in text
    code, text = look(watched, "--insecure", **nothing)
    assert code == 1 and "requires a key" in text
