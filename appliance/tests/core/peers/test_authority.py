"""What peers may do, by the roles of their keys."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_harness import Client, Harness, Peer, Worker, hello, task

from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import usual_tenant

NOT_ALLOWED = m.RefusalReason.NOT_ALLOWED
HELLOS = {"client": hello(m.Role.CLIENT), "worker": hello(m.Role.WORKER, slots=1)}
SERVED = {
    "owner": {"client", "worker"},
    "client": {"client"},
    "admin": {"client"},
    "provisioner": {"client"},
    "worker": {"worker"},
}
ROLES = ("owner", "client", "worker", "admin", "monitor", "provisioner", "king", "")


def harness_with_keys(**settings: Any) -> Harness:
    return Harness(requires_grants=True, **settings)


def authenticate(harness: Harness, peer: Peer, role: str, name: str = "alice") -> None:
    harness.core.on_authenticated(harness.now, peer.name, role, usual_tenant(role), name)


def client_with(harness: Harness, role: str) -> Client:
    client = Client(harness, f"peer {len(harness.peers)}".encode())
    harness.peers[client.name] = client
    authenticate(harness, client, role)
    client.greet(hello(m.Role.CLIENT))
    return client


def worker_with(harness: Harness, role: str) -> Worker:
    worker = Worker(harness, f"peer {len(harness.peers)}".encode())
    harness.peers[worker.name] = worker
    authenticate(harness, worker, role)
    worker.greet(hello(m.Role.WORKER, slots=1, queue_size=10))
    return worker


@pytest.mark.parametrize("said", HELLOS)
@pytest.mark.parametrize("role", ROLES)
def test_a_key_serves_the_peers_of_its_role_only(role: str, said: str) -> None:
    harness = harness_with_keys()
    peer = harness.unregistered_peer()
    authenticate(harness, peer, role)
    if said in SERVED.get(role, ()):
        assert peer.greet(HELLOS[said]).session
    else:
        peer.send(HELLOS[said])
        text = peer.take_refusal(NOT_ALLOWED)
        assert f"a key with the role {role} cannot be used by a {said}" in text
        assert not harness.state.sessions
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("said", HELLOS)
def test_a_peer_of_which_nothing_is_known_gets_no_session(said: str) -> None:
    harness = harness_with_keys()
    peer = harness.unregistered_peer()
    peer.send(HELLOS[said])
    assert "not authenticated" in peer.take_refusal(NOT_ALLOWED)
    assert not harness.state.sessions
    harness.nothing_else_was_sent()


def test_what_is_known_of_a_peer_ends_with_its_connection() -> None:
    harness = harness_with_keys()
    peer = harness.unregistered_peer()
    authenticate(harness, peer, "client")
    peer.greet(hello(m.Role.CLIENT))
    peer.vanish()
    assert not harness.state.grants
    peer.send(hello(m.Role.CLIENT))
    peer.take_refusal(NOT_ALLOWED)


def test_the_log_says_which_key_a_peer_has() -> None:
    harness = harness_with_keys()
    client_with(harness, "client")
    assert "with the key 'alice' (client, tenant default)" in harness.logs[-1]


def test_a_client_s_tasks_run_at_a_worker_with_a_key() -> None:
    harness = harness_with_keys()
    client, worker = client_with(harness, "client"), worker_with(harness, "worker")
    client.send(*task([1]))
    assert len(worker.take(m.Task).ids) == 1


@pytest.mark.parametrize(
    "message",
    [task([1])[0], m.TaskCancel(), m.ObjectInstruction(), m.ObjectRequest(), m.GraphTask(), m.ObjectResponse()],
    ids=lambda message: type(message).__name__,
)
@pytest.mark.parametrize("role", ["admin", "provisioner"])
def test_who_administers_submits_no_work(role: str, message: m.Member) -> None:
    harness = harness_with_keys()
    admin, other = client_with(harness, role), client_with(harness, "client")
    admin.send(message)
    assert f"role {role} cannot be used for tasks and objects" in admin.take_refusal(NOT_ALLOWED)
    assert list(harness.state.clients) == [other.session]
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("role", ["admin", "provisioner"])
def test_who_administers_asks_for_figures_and_not_why_tasks_wait(role: str) -> None:
    harness = harness_with_keys()
    peer = client_with(harness, role)
    peer.send(m.InfoRequest(request_id=7))
    assert peer.take(m.Info).request_id == 7
    peer.send(m.ExplanationRequest(request_id=8, task_id=1))
    assert f"role {role} cannot be used to ask why tasks wait" in peer.take_refusal(NOT_ALLOWED)


@pytest.mark.parametrize("is_protected", [True, False])
def test_a_provisioner_drains_workers_and_stops_nothing(is_protected: bool) -> None:
    harness = harness_with_keys(protected=is_protected)
    peer, worker = client_with(harness, "provisioner"), worker_with(harness, "worker")
    peer.send(m.WorkerShutdown(request_id=1, session=worker.session))
    answer = peer.take(m.WorkerShutdownResponse)
    assert not answer.accepted and "can drain workers, and not stop them" in answer.message
    peer.send(m.ClientShutdown())
    assert not peer.take(m.ClientShutdownResponse).accepted
    harness.nothing_else_was_sent()
    peer.send(m.WorkerShutdown(request_id=2, session=worker.session, is_draining=True))
    assert peer.take(m.WorkerShutdownResponse).accepted
    assert worker.take(m.DisconnectRequest).reason == m.DisconnectReason.DRAINING


@pytest.mark.parametrize("is_protected", [True, False])
@pytest.mark.parametrize(("role", "stops"), [("client", ()), ("owner", (False,)), ("admin", (True, False))])
def test_who_stops_workers_and_the_scheduler(role: str, stops: Any, is_protected: bool) -> None:
    harness = harness_with_keys(protected=is_protected)
    peer, worker = client_with(harness, role), worker_with(harness, "worker")
    may_stop = is_protected in stops
    for is_draining, may in ((True, bool(stops)), (False, may_stop)):
        peer.send(m.WorkerShutdown(request_id=1, session=worker.session, is_draining=is_draining))
        assert peer.take(m.WorkerShutdownResponse).accepted is may
        if may:
            worker.take(m.DisconnectRequest)
    peer.send(m.ClientShutdown())
    answer = peer.take(m.ClientShutdownResponse)
    assert answer.accepted is may_stop
    if not may_stop:
        advice = "--no-protected" if role == "owner" else "use one with the role admin"
        assert advice in answer.message
        harness.nothing_else_was_sent()


def test_the_welcome_says_who_may_not_stop_the_scheduler() -> None:
    harness = harness_with_keys(protected=False)
    welcomes = {}
    for role in ("owner", "admin", "client"):
        peer = harness.unregistered_peer()
        authenticate(harness, peer, role)
        welcomes[role] = peer.greet(hello(m.Role.CLIENT)).protected
    assert welcomes == {"owner": False, "admin": False, "client": True}
