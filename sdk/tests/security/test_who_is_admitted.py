"""Clients and workers with keys that fit are served; all others are not, and are told why."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest
from sdk_tasks import wait_for, wait_until
from security.attackers.another_user import AnotherUser
from security.keyed_scheduler import TIMEOUT_SECONDS, KeyedScheduler, StartWorker

from scaler import Client
from scaler.cluster.appliance import scheduler_command
from scaler.exceptions import AuthenticationError, DisconnectedError, SchedulerRefusedError
from scaler_protocol.host.addresses import local_socket_name, parse_address, resolve
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_file import read_key_file, write_key_file
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError

Problem = Callable[[KeyedScheduler, Path], Tuple[Dict[str, str], str]]
"""Makes a peer's environment, and says what it is told."""


def no_key(scheduler: KeyedScheduler, folder: Path) -> Tuple[Dict[str, str], str]:
    return {}, "there is no key for the scheduler"


def insecure(scheduler: KeyedScheduler, folder: Path) -> Tuple[Dict[str, str], str]:
    return {"SCALER_INSECURE": "1"}, "requires keys"


def unknown(scheduler: KeyedScheduler, folder: Path) -> Tuple[Dict[str, str], str]:
    known = read_key_file(str(scheduler.new_key("client", f"unknown-{folder.name}")))
    path = folder / "unknown.key"
    write_key_file(str(path), known._replace(keys=load_sodium().new_keys()))
    return {"SCALER_KEY_FILE": str(path)}, "does not admit this key"


def of_another_scheduler(scheduler: KeyedScheduler, folder: Path) -> Tuple[Dict[str, str], str]:
    known = read_key_file(str(scheduler.admitted_key("owner", f"lost-{folder.name}")))
    path = folder / "other.key"
    write_key_file(str(path), known._replace(server_keys=(load_sodium().new_keys().public,)))
    return {"SCALER_KEY_FILE": str(path)}, "expects another key of this server"


def revoked(scheduler: KeyedScheduler, folder: Path) -> Tuple[Dict[str, str], str]:
    name = f"revoked-{folder.name}"
    path = scheduler.admitted_key("owner", name)
    scheduler.keys.revoke(name)
    scheduler.reload()
    return {"SCALER_KEY_FILE": str(path)}, "does not admit this key"


def expired(scheduler: KeyedScheduler, folder: Path) -> Tuple[Dict[str, str], str]:
    path = scheduler.admitted_key("owner", f"expired-{folder.name}", expires=time.time() - 1)
    return {"SCALER_KEY_FILE": str(path)}, "does not admit this key"


def readable_by_others(scheduler: KeyedScheduler, folder: Path) -> Tuple[Dict[str, str], str]:
    path = scheduler.admitted_key("owner", f"open-{folder.name}")
    path.chmod(0o644)
    return {"SCALER_KEY_FILE": str(path)}, "chmod 600"


MENDABLE = [no_key, readable_by_others]  # by the user, so the client tries again as long as it may
PROBLEMS = [no_key, insecure, unknown, of_another_scheduler, revoked, expired, readable_by_others]


def serves(scheduler: KeyedScheduler) -> bool:
    with scheduler.client(scheduler.admitted_key("client", f"honest-{time.monotonic_ns()}")) as client:
        client.info()
        return True


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda each: each.__name__)
def test_a_client_is_turned_away(
    scheduler: KeyedScheduler, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, why = problem(scheduler, tmp_path)
    monkeypatch.setenv("SCALER_KEY_DIRECTORY", str(tmp_path / "none"))
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "nothing-runs"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    sessions = scheduler.log.count("connected, session")
    with pytest.raises(AuthenticationError, match=why):
        Client(address=scheduler.address, connect_timeout_seconds=2 if problem in MENDABLE else TIMEOUT_SECONDS)
    assert scheduler.log.count("connected, session") == sessions
    assert serves(scheduler)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda each: each.__name__)
def test_a_worker_is_turned_away(scheduler: KeyedScheduler, problem: Problem, tmp_path: Path) -> None:
    environment, why = problem(scheduler, tmp_path)
    folders = {"SCALER_KEY_DIRECTORY": str(tmp_path / "none"), "SCALER_RUN_DIRECTORY": str(tmp_path / "nothing-runs")}
    log = tmp_path / "worker.log"
    sessions = scheduler.log.count("connected, session")
    worker = scheduler.worker("-lp", str(log), "-ds", "3", environment={**folders, **environment})
    assert worker.wait(TIMEOUT_SECONDS) != 0
    assert why in log.read_text()
    assert scheduler.log.count("connected, session") == sessions


@pytest.mark.parametrize(("role", "needed"), [(role, "client") for role in ("worker", "monitor")])
def test_a_client_with_the_key_of_another_role_is_refused(scheduler: KeyedScheduler, role: str, needed: str) -> None:
    key_file = scheduler.admitted_key(role, f"{role}-as-{needed}")
    with pytest.raises(SchedulerRefusedError, match=f"role {role} cannot be used by a {needed}"):
        scheduler.client(key_file)


@pytest.mark.parametrize("role", ["client", "monitor", "admin", "provisioner"])
def test_a_worker_with_the_key_of_another_role_is_refused(scheduler: KeyedScheduler, role: str, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    worker = scheduler.worker("-lp", str(log), key_file=scheduler.admitted_key(role, f"{role}-as-worker"))
    assert worker.wait(TIMEOUT_SECONDS) != 0
    assert f"role {role} cannot be used by a worker" in log.read_text()


def test_peers_with_keys_of_their_roles_work_together(scheduler: KeyedScheduler, workers: StartWorker) -> None:
    workers(key_file=scheduler.admitted_key("worker", "a-worker"))
    with scheduler.client(scheduler.admitted_key("client", "a-client")) as client:
        assert client.submit(pow, 2, 10).result(TIMEOUT_SECONDS) == 1024
        large = client.send_object(bytes(5_000_000))
        assert client.submit(len, large).result(TIMEOUT_SECONDS) == 5_000_000
        assert list(client.map(abs, range(-1000, 0))) == list(range(1000, 0, -1))


def test_a_client_whose_key_is_revoked_loses_its_session_at_once(scheduler: KeyedScheduler) -> None:
    key_file = scheduler.admitted_key("client", "fired")
    with scheduler.client(key_file, timeout_seconds=0.5) as client:
        future = client.submit(abs, -1)
        scheduler.keys.revoke("fired")
        scheduler.reload()
        scheduler.wait_for_log("its key was revoked, or has expired")
        with pytest.raises(DisconnectedError):
            future.result(TIMEOUT_SECONDS)


def test_a_key_that_expires_ends_its_session(scheduler: KeyedScheduler) -> None:
    with scheduler.client(scheduler.admitted_key("client", "brief"), timeout_seconds=0.5) as client:
        scheduler.expire(time.time() + 2, "brief")
        with pytest.raises(DisconnectedError):
            client.submit(abs, -1).result(TIMEOUT_SECONDS)


def test_tasks_of_a_worker_whose_key_is_revoked_run_elsewhere(
    scheduler: KeyedScheduler, workers: StartWorker, done_files: List[Path]
) -> None:
    running, go = done_files

    def task(running: Path, go: Path) -> str:
        running.write_text(os.environ["WHO"])
        wait_until(go)
        return os.environ["WHO"]

    workers(key_file=scheduler.admitted_key("worker", "leaves"), environment={"WHO": "leaves"})
    with scheduler.client(scheduler.admitted_key("client", "patient")) as client:
        future = client.submit(task, running, go)
        wait_for(lambda: running.exists() and running.read_text() == "leaves", "the task to run")
        workers(key_file=scheduler.admitted_key("worker", "stays"), environment={"WHO": "stays"})
        scheduler.keys.revoke("leaves")
        scheduler.reload()
        wait_for(lambda: running.read_text() == "stays", "the task to run elsewhere")
        go.touch()
        assert future.result(TIMEOUT_SECONDS) == "stays"


def test_a_malformed_list_changes_nothing(scheduler: KeyedScheduler) -> None:
    key_file = scheduler.admitted_key("client", "before")
    list_file = Path(scheduler.keys.path, "authorized_keys")
    before = list_file.read_text()
    list_file.write_text(before + "not a key\n")
    assert scheduler.process is not None
    scheduler.process.send_signal(1)
    scheduler.wait_for_log("those from before are still used")
    with scheduler.client(key_file) as client:
        client.info()
    list_file.write_text(before)
    scheduler.reload()


def test_a_rotated_scheduler_serves_old_and_new_keys(scheduler: KeyedScheduler) -> None:
    old = scheduler.admitted_key("client", "of-the-old-key")
    scheduler.keys.rotate(load_sodium())
    new = scheduler.admitted_key("client", "of-the-new-key")
    assert read_key_file(str(old)).server_keys[0] != read_key_file(str(new)).server_keys[0]
    for key_file in (old, new):
        with scheduler.client(key_file) as client:
            client.info()
    scheduler.keys.forget_old()
    scheduler.reload()
    with pytest.raises(AuthenticationError, match="expects another key"):
        scheduler.client(old)
    with scheduler.client(new) as client:
        client.info()


def test_a_scheduler_that_was_killed_and_starts_again_is_known_by_its_keys(tmp_path: Path) -> None:
    scheduler = KeyedScheduler(tmp_path)
    key_file = scheduler.admitted_key("owner", "stays")
    worker = scheduler.worker(key_file=key_file)
    try:
        with scheduler.client(key_file) as client:
            assert client.submit(abs, -1).result(TIMEOUT_SECONDS) == 1
            scheduler.kill()
            future = client.submit(abs, -2)
            scheduler.start()
            assert future.result(TIMEOUT_SECONDS) == 2
    finally:
        worker.terminate()
        worker.wait(TIMEOUT_SECONDS)
        scheduler.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("way", ["tcp", "local socket"])
def test_another_user_of_the_host_gets_nothing(way: str, tmp_path: Path, another_user: AnotherUser) -> None:
    """Tasks are code: without keys, any user of the host could run programs as the scheduler's user."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    address_file = folder / "address"
    command = [*scheduler_command(), "tcp://127.0.0.1:0", "--address-file", str(address_file)]
    process = subprocess.Popen([*command, "--keys", str(folder / "keys"), "-lp", str(folder / "log")])
    try:
        wait_for(lambda: address_file.exists() and address_file.read_text().count("\n") == 2, "the scheduler")
        address = parse_address(address_file.read_text().splitlines()[0])

        def attack() -> str:
            if way == "tcp":
                family, target = resolve(address)
                stream = socket.socket(family, socket.SOCK_STREAM)
                stream.connect(target)
            else:
                stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                stream.connect(local_socket_name(address) or "")
            protocol = Zmtp("DEALER", 1 << 20)
            stream.sendall(protocol.take_output())
            try:
                while not protocol.is_ready:
                    protocol.feed(stream.recv(4096))
            except ZmtpError as error:
                return str(error)
            return "let in"

        assert "requires keys" in another_user.runs(attack)
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
