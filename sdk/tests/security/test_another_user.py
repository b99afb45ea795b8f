"""Peers of another user of the host, with a key that is wrong, or is none, or is not for what they ask."""

from __future__ import annotations

import os
import time
from array import array
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import pytest
from security.attackers.another_user import AnotherUser
from security.attackers.doors import DOORS, Door
from security.keyed_peer import KeyedPeer, tenant_key, tenant_peer
from security.keyed_scheduler import KeyedScheduler
from security.test_attackers import Wire, sessions
from security.test_who_is_admitted import PROBLEMS, Problem, readable_by_others

from scaler import Client
from scaler.exceptions import AuthenticationError
from scaler_protocol import decode
from scaler_protocol import messages as m
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.key_file import KeyFile, read_key_file
from scaler_protocol.wire.secure_zmtp import ClientSecurity
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError

WRONG_ROLES = [
    *(("client", role) for role in ("worker", "monitor")),
    *(("worker", role) for role in ("client", "monitor", "admin", "provisioner")),
    *(("monitor", role) for role in ("client", "worker")),
]
HELLO_ROLES = {"client": m.Role.CLIENT, "worker": m.Role.WORKER}
ONE_TASK = m.Task(ids=array("Q", [1]), payload_sizes=array("I", [0]), function_name="f")
REFUSED_REQUESTS = [
    *(("client", each) for each in (m.Units(), m.ReleaseRequest())),
    *(
        (role, each)
        for role in ("admin", "provisioner")
        for each in (ONE_TASK, m.GraphTask(), m.ObjectInstruction(), m.ObjectRequest(), m.TaskCancel())
    ),
]
REFUSED_STOPS = [
    *(("client", each) for each in (m.WorkerShutdown(is_draining=True), m.WorkerShutdown(), m.ClientShutdown())),
    *(("provisioner", each) for each in (m.WorkerShutdown(), m.ClientShutdown())),
]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedScheduler]:
    """One that monitors reach by TCP, too."""
    started = KeyedScheduler(tmp_path_factory.mktemp("scheduler"), "-ma", "tcp://127.0.0.2:*")
    yield started
    started.stop()


class Watcher:
    """A monitor that has been told the status."""

    def __init__(self, scheduler: KeyedScheduler, key: KeyFile) -> None:
        door = Door("monitor")
        protocol = door.end(ClientSecurity(load_sodium(), key.keys, key.server_keys[0]))
        self._wire = Wire(scheduler, door)
        self._wire.shake_hands(protocol)
        self._wire.say_hello(protocol)
        topic, status = self._wire.wait_for_answer(protocol)
        assert topic == b"status"
        self.status = bytes(status)

    def is_closed(self) -> bool:
        return self._wire.is_closed()


def names_of(request: Tuple[str, Any]) -> str:
    role, message = request
    return f"{role}-{type(message).__name__}{'-drains' if getattr(message, 'is_draining', False) else ''}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user: attackers are of this user here")
def test_attackers_are_of_another_user_than_the_scheduler(scheduler: KeyedScheduler, another_user: AnotherUser) -> None:
    assert scheduler.process is not None
    (line,) = [
        each
        for each in Path(f"/proc/{scheduler.process.pid}/status").read_text().splitlines()
        if each.startswith("Uid:")
    ]
    assert set(line.split()[1:]) == {"0"}
    assert set(another_user.runs(os.getresuid)) == {another_user.user} != {0}
    with pytest.raises(AssertionError, match="PermissionError"):
        another_user.runs(lambda: os.kill(scheduler.process.pid, 0))  # type: ignore[union-attr]  # it runs
    with pytest.raises(AssertionError, match="PermissionError"):
        another_user.runs(lambda: os.listdir(scheduler.keys.path))


@pytest.mark.parametrize("door", DOORS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda each: each.__name__)
def test_a_peer_is_turned_away(
    scheduler: KeyedScheduler, another_user: AnotherUser, problem: Problem, door: Door, tmp_path: Path
) -> None:
    environment, why = problem(scheduler, tmp_path)
    file = environment.get("SCALER_KEY_FILE")
    key_file = another_user.copy_of(Path(file)) if file else None

    def attack() -> str:
        with Wire(scheduler, door) as wire:
            try:
                if key_file is None:
                    protocol = Zmtp("DEALER", 1 << 20)
                else:
                    key = read_key_file(str(key_file))
                    protocol = door.end(ClientSecurity(load_sodium(), key.keys, key.server_keys[0]))
                wire.shake_hands(protocol)
                wire.say_hello(protocol)
                return f"was let in, and told {wire.wait_for_answer(protocol)!r}"
            except (OSError, ZmtpError, KeyFileError) as error:
                assert b"Socket-Type" not in wire.heard
                return str(error)

    before = sessions(scheduler)
    said = another_user.runs(attack)
    assert "was let in" not in said
    assert why in said or problem is not readable_by_others
    assert sessions(scheduler) == before


@pytest.mark.parametrize(("door", "role"), WRONG_ROLES)
def test_a_key_of_another_role_opens_nothing(
    scheduler: KeyedScheduler, another_user: AnotherUser, door: str, role: str
) -> None:
    key = tenant_key(scheduler, role, "default")
    before = sessions(scheduler)
    if door == "monitor":
        with pytest.raises(AssertionError, match=r"closed the connection|does not admit this key"):
            with another_user.starts(Watcher, scheduler, key):
                pass
    else:
        with another_user.starts(KeyedPeer, scheduler.address, key, HELLO_ROLES[door]) as peer:
            assert f"role {role} cannot be used by a {door}" in peer.refusal
    assert sessions(scheduler) == before


@pytest.mark.parametrize(("role", "message"), REFUSED_REQUESTS, ids=map(names_of, REFUSED_REQUESTS))
def test_a_request_that_is_for_another_role_ends_the_session(
    scheduler: KeyedScheduler, another_user: AnotherUser, role: str, message: Any
) -> None:
    with another_user.starts(KeyedPeer, scheduler.address, tenant_key(scheduler, role, "default")) as peer:
        peer.send(message)
        refusal = peer.take(m.Refusal)[0]
    assert refusal.reason == m.RefusalReason.NOT_ALLOWED and f"role {role} cannot be used" in refusal.message


@pytest.mark.parametrize(("role", "message"), REFUSED_STOPS, ids=map(names_of, REFUSED_STOPS))
def test_only_who_may_stops_something(
    scheduler: KeyedScheduler, another_user: AnotherUser, role: str, message: Any
) -> None:
    key = tenant_key(scheduler, role, "default")
    with tenant_peer(scheduler, "worker", "default", name="stays") as worker:
        with another_user.starts(KeyedPeer, scheduler.address, key) as peer:
            if isinstance(message, m.WorkerShutdown):
                message = m.WorkerShutdown(session=worker.session, is_draining=message.is_draining)
            peer.send(message)
            response: Any = peer.take((m.WorkerShutdownResponse, m.ClientShutdownResponse))[0]
        assert not response.accepted and f"role {role} can" in response.message
        with tenant_peer(scheduler, "client", "default") as client:
            client.send(ONE_TASK)
            assert len(worker.take(m.Task)[0].ids) == 1, "the worker still gets tasks"


@pytest.mark.parametrize("door", DOORS, ids=str)
def test_a_session_ends_when_its_key_is_revoked(
    scheduler: KeyedScheduler, another_user: AnotherUser, door: Door
) -> None:
    name = f"soon-revoked-{door}"
    key = read_key_file(str(scheduler.admitted_key(door.role, name)))
    with ExitStack() as stack:
        peer = stack.enter_context(started(scheduler, another_user, key))
        scheduler.keys.revoke(name)
        scheduler.reload()
        assert peer.is_closed()


def test_sessions_end_when_their_keys_expire(scheduler: KeyedScheduler, another_user: AnotherUser) -> None:
    names = [f"expires-{door}" for door in DOORS]
    keys = [scheduler.new_key(door.role, name) for door, name in zip(DOORS, names)]
    scheduler.reload()
    with ExitStack() as stack:
        peers = [stack.enter_context(started(scheduler, another_user, read_key_file(str(key)))) for key in keys]
        expires = int(time.time()) + 2
        scheduler.expire(expires, *names)
        assert all(peer.is_closed() for peer in peers)
    assert time.time() >= expires


def started(scheduler: KeyedScheduler, another_user: AnotherUser, key: KeyFile) -> Any:
    """A peer of another user with a session."""
    if key.role == "monitor":
        return another_user.starts(Watcher, scheduler, key)
    return another_user.starts(KeyedPeer, scheduler.address, key)


def test_a_key_file_that_all_can_read_is_of_no_use_to_others_programs(
    scheduler: KeyedScheduler, another_user: AnotherUser
) -> None:
    """It is the file of this user, whose program refuses it, too: so it is noticed before it is read by others."""
    file = another_user.folder.parent / "open.key"
    file.write_bytes(scheduler.admitted_key("client", "open-to-all").read_bytes())
    file.chmod(0o644)

    def attack() -> str:
        assert file.read_bytes()
        try:
            with Client(address=scheduler.address, key_file=file, connect_timeout_seconds=2):
                return "was let in"
        except AuthenticationError as error:
            return str(error)

    assert "chmod 600" in another_user.runs(attack)
    assert "chmod 600" in attack()


@pytest.mark.parametrize("name", ["scheduler.key", "authorized_keys"])
def test_a_scheduler_does_not_use_keys_that_another_user_has_read_or_changed(
    another_user: AnotherUser, name: str
) -> None:
    folder = another_user.folder.parent / f"keys-{name}"
    directory = KeyDirectory(str(folder))
    directory.open_or_create(load_sodium())
    folder.chmod(0o755)
    (folder / name).chmod(0o644 if name == "scheduler.key" else 0o666)

    def attack() -> None:
        with open(folder / name, "r" if name == "scheduler.key" else "a") as file:
            assert file.read() if name == "scheduler.key" else file.write("\n")

    another_user.runs(attack)
    with pytest.raises(KeyFileError, match="chmod"):
        directory.open_or_create(load_sodium())


def test_a_monitor_sees_nothing_of_another_tenant(scheduler: KeyedScheduler, another_user: AnotherUser) -> None:
    seen: List[List[List[str]]] = []
    with tenant_peer(scheduler, "client", "erin", name="erin"), tenant_peer(scheduler, "client", "frank", name="frank"):
        with tenant_peer(scheduler, "worker", "frank", name="frank-node"):
            for tenant in ("erin", "frank", "grace"):
                key = tenant_key(scheduler, "monitor", tenant)
                with another_user.starts(Watcher, scheduler, key) as watcher:
                    status = decode(watcher.status)
                assert isinstance(status, m.SchedulerStatus)
                seen.append([[each.name for each in rows] for rows in (status.new_clients, status.new_workers)])
    assert seen == [[["erin"], []], [["frank"], ["frank-node"]], [[], []]]
