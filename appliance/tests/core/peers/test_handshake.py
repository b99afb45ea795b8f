"""How peers join, stay and leave."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping

import pytest
from scheduler_harness import Harness, Peer, hello, task

from scaler_appliance.core.effects import MAXIMUM_ERROR_TEXT, PeerError, Stop
from scaler_appliance.core.peers.handshake import (
    HEARTBEATS_PER_TIMEOUT,
    PEERS_PER_SECOND,
    SELDOMEST_SECONDS,
    heartbeat_interval_seconds,
)
from scaler_appliance.core.state import Settings
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX
from scaler_protocol import messages as m

Reason = m.RefusalReason


@pytest.mark.parametrize("role", [m.Role.CLIENT, m.Role.WORKER])
def test_welcome_tells_all_a_peer_needs(role: m.Role) -> None:
    harness = Harness(
        scheduler_id=b"s" * 16, object_directory="/there", object_directory_token=b"t", monitor_address="mon"
    )
    welcome = harness.unregistered_peer().greet(hello(role, slots=1))
    assert (welcome.major, welcome.minor) == (PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX)
    assert (welcome.scheduler_id, welcome.session) == (b"s" * 16, 1)
    assert (welcome.object_directory, welcome.object_directory_token, welcome.monitor_address) == (
        "/there",
        b"t",
        "mon",
    )
    assert welcome.heartbeat_interval_milliseconds == 2000
    assert welcome.timeout_milliseconds == (60_000 if role == m.Role.WORKER else 300_000)
    assert welcome.protected
    assert welcome.limits.chunk_bytes and welcome.limits.maximum_message_bytes and welcome.limits.inline_bytes
    harness.nothing_else_was_sent()


BAD_HELLOS: Dict[str, Any] = {
    "newer major": (hello(m.Role.CLIENT, major=PROTOCOL_MAJOR + 1), Reason.VERSION_MISMATCH),
    "older major": (hello(m.Role.CLIENT, major=PROTOCOL_MAJOR - 1), Reason.VERSION_MISMATCH),
    "newer minors only": (
        hello(m.Role.CLIENT, minor_min=PROTOCOL_MINOR_MAX + 1, minor_max=PROTOCOL_MINOR_MAX + 9),
        Reason.VERSION_MISMATCH,
    ),
    "a scheduler": (hello(m.Role.SCHEDULER), Reason.ROLE_NOT_SERVED),
    "a monitor": (hello(m.Role.MONITOR), Reason.ROLE_NOT_SERVED),
    "a role of the future": (hello(99), Reason.ROLE_NOT_SERVED),  # type: ignore[arg-type]  # wrong on purpose
    "a worker without slots": (hello(m.Role.WORKER, slots=0), Reason.PROTOCOL_VIOLATION),
    "capability that is no number": (
        hello(m.Role.WORKER, slots=1, capabilities=[m.Capability(name="gpu", amount=float("nan"))]),
        Reason.MALFORMED,
    ),
}


@pytest.mark.parametrize("fields", [{"major": 99}, {}], ids=["version", "capability"])
def test_what_an_invalid_hello_names_fills_neither_the_log_nor_the_answer(
    harness: Harness, fields: Mapping[str, Any]
) -> None:
    long = "x" * 20_000
    offered = [m.Capability(name=long, amount=-1.0)]
    speaks = m.Implementation(name=long, version=long)
    message = hello(m.Role.WORKER, slots=1, capabilities=offered, implementation=speaks, **fields)
    peer = harness.unregistered_peer()
    peer.send(message)
    assert 256 < len(peer.take(m.Refusal).message) <= MAXIMUM_ERROR_TEXT
    assert all(len(line) < 2000 for line in harness.logs)


def test_what_an_invalid_task_names_fills_neither_the_log_nor_the_answer(harness: Harness) -> None:
    client = harness.client()
    client.send(*task([0], options=m.TaskOptions(capabilities=[m.Capability(name="x" * 1_000_000, amount=-1.0)])))
    text = client.take_refusal(Reason.MALFORMED)
    assert text.endswith(": the amount must be finite and >= 0, got -1.0") and 256 < len(text) < 400
    assert harness.logs and all(len(line) < 2000 for line in harness.logs)


def test_an_error_has_a_bounded_text() -> None:
    error = PeerError(Reason.MALFORMED, "x" * (MAXIMUM_ERROR_TEXT + 1))
    assert error.text == str(error) == f"{'x' * MAXIMUM_ERROR_TEXT}…"


@pytest.mark.parametrize("name", BAD_HELLOS)
def test_a_hello_that_cannot_be_served_is_refused(harness: Harness, name: str) -> None:
    message, reason = BAD_HELLOS[name]
    peer = harness.unregistered_peer()
    peer.send(message)
    assert peer.take_refusal(reason)
    assert not harness.state.sessions
    harness.nothing_else_was_sent()


def test_a_version_refusal_names_both_sides(harness: Harness) -> None:
    peer = harness.unregistered_peer()
    peer.send(hello(m.Role.CLIENT, major=9, implementation=m.Implementation(name="theirs", version="9.1")))
    text = peer.take_refusal(Reason.VERSION_MISMATCH)
    assert "theirs 9.1" in text and f"{PROTOCOL_MAJOR}." in text and "install" in text


@pytest.mark.parametrize("message", [m.Heartbeat(), m.Task(), m.TaskResult(), m.ObjectInstruction()])
def test_a_peer_without_a_hello_is_asked_for_one(harness: Harness, message: m.Member) -> None:
    peer = harness.unregistered_peer()
    peer.send(message)
    assert "Hello" in peer.take_refusal(Reason.NOT_GREETED)
    harness.nothing_else_was_sent()


def test_last_words_of_peers_without_session_are_answered_or_heard(harness: Harness) -> None:
    peer = harness.unregistered_peer()
    peer.send(m.DisconnectRequest())
    peer.take(m.DisconnectResponse)
    for answer in (m.DisconnectResponse(), m.HeartbeatEcho(), m.BalanceResponse(), m.TaskCancelConfirm()):
        peer.send(answer)
    harness.nothing_else_was_sent()


@pytest.mark.parametrize(
    ("role", "message"),
    [
        (m.Role.CLIENT, m.TaskResult()),
        (m.Role.CLIENT, m.TaskCancelConfirm()),
        (m.Role.CLIENT, m.Welcome()),
        (m.Role.WORKER, m.Task()),
        (m.Role.WORKER, m.ClientShutdown()),
        (m.Role.WORKER, m.SchedulerStatus()),
    ],
)
def test_a_message_of_another_role_costs_the_session(harness: Harness, role: m.Role, message: m.Member) -> None:
    peer = harness.unregistered_peer()
    peer.greet(hello(role, slots=1))
    peer.send(message)
    assert type(message).__name__ in peer.take_refusal(Reason.PROTOCOL_VIOLATION)
    assert not harness.state.sessions
    harness.nothing_else_was_sent()


def test_a_message_of_a_newer_minor_version_is_passed_over(harness: Harness) -> None:
    client = harness.client()
    harness.core.on_message(harness.now, client.name, m.UnknownMessage(999))
    harness.tick()
    assert client.session in harness.state.clients
    harness.nothing_else_was_sent()


def test_a_second_hello_starts_a_new_session_and_ends_the_old_ones_tasks(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    instances = worker.take_tasks()
    before = client.session
    client.greet(hello(m.Role.CLIENT))
    assert client.session > before
    cancel = worker.take(m.TaskCancel)
    assert (list(cancel.ids), cancel.force) == (instances, True)
    harness.nothing_else_was_sent()


def test_malformed_bytes_end_only_their_senders_session(harness: Harness) -> None:
    client, other = harness.client(), harness.client()
    harness.core.on_peer_error(harness.now, client.name, PeerError(Reason.MALFORMED, "junk"))
    harness.tick()
    assert client.take_refusal(Reason.MALFORMED) == "junk"
    assert list(harness.state.clients) == [other.session]
    harness.nothing_else_was_sent()


def test_heartbeats_are_echoed_with_what_the_cluster_has(harness: Harness) -> None:
    client = harness.client()
    client.submit(range(5))
    worker = harness.worker(slots=2)
    worker.take_tasks()
    client.send(m.Heartbeat(sequence=42))
    echo = client.take(m.HeartbeatEcho)
    assert (echo.sequence, echo.slots, echo.tasks_waiting) == (42, 2, 1)
    harness.nothing_else_was_sent()


def test_peers_that_miss_a_heartbeat_are_asked_and_those_that_stay_silent_are_removed() -> None:
    harness = Harness(client_timeout_seconds=60.0, worker_timeout_seconds=60.0)
    client, worker = harness.client(), harness.worker()
    harness.wait(3.5)
    client.take(m.Heartbeat)
    worker.take(m.Heartbeat)
    worker.send(m.HeartbeatEcho())
    harness.wait(57)
    client.take_refusal(Reason.NOT_GREETED)
    worker.take(m.Heartbeat)
    assert list(harness.state.sessions) == [worker.name]
    harness.wait(61)
    worker.take_refusal(Reason.NOT_GREETED)
    assert not harness.state.sessions
    harness.nothing_else_was_sent()


def test_a_peer_with_a_long_interval_of_its_own_is_not_asked_before(harness: Harness) -> None:
    peer = harness.unregistered_peer()
    peer.greet(hello(m.Role.CLIENT, heartbeat_interval_milliseconds=10_000))
    harness.wait(12)
    harness.nothing_else_was_sent()
    harness.wait(4)
    peer.take(m.Heartbeat)
    harness.nothing_else_was_sent()


def test_a_client_is_waited_for_longer_than_a_worker_but_for_one_beside_a_worker() -> None:
    harness = Harness(client_timeout_seconds=300.0, worker_timeout_seconds=60.0)

    def told_seconds(role: m.Role, host: str) -> float:
        slots = 1 if role == m.Role.WORKER else 0
        return harness.unregistered_peer().greet(hello(role, host=host, slots=slots)).timeout_milliseconds / 1000

    assert told_seconds(m.Role.CLIENT, "laptop") == 300.0
    assert told_seconds(m.Role.WORKER, "node-1") == 60.0
    assert told_seconds(m.Role.CLIENT, "node-1") == 60.0, "it may be in a task of that worker"
    assert told_seconds(m.Role.CLIENT, "laptop") == 300.0
    harness.nothing_else_was_sent()


def test_a_host_whose_workers_have_left_is_a_host_like_others() -> None:
    harness = Harness(client_timeout_seconds=300.0, worker_timeout_seconds=60.0)
    workers = [harness.unregistered_peer() for _ in range(2)]
    for worker in workers:
        worker.greet(hello(m.Role.WORKER, host="node-1", slots=1))
    told_seconds = []
    for worker in workers:
        worker.vanish()
        client = harness.unregistered_peer()
        told_seconds.append(client.greet(hello(m.Role.CLIENT, host="node-1")).timeout_milliseconds / 1000)
    assert told_seconds == [60.0, 300.0]


def test_the_more_peers_there_are_the_more_seldom_they_send_heartbeats() -> None:
    settings = Settings(heartbeat_interval_seconds=2.0)
    intervals = [heartbeat_interval_seconds(settings, peers, timeout_seconds=60.0) for peers in range(10_000)]
    assert intervals[0] == intervals[2 * PEERS_PER_SECOND] == 2.0
    assert intervals[6 * PEERS_PER_SECOND] == 6.0
    assert max(intervals) == 60.0 / HEARTBEATS_PER_TIMEOUT
    assert heartbeat_interval_seconds(settings, 10_000, timeout_seconds=20.0) == 20.0 / HEARTBEATS_PER_TIMEOUT
    assert heartbeat_interval_seconds(settings, 10_000, timeout_seconds=3600.0) == SELDOMEST_SECONDS
    assert sum(1 / seconds for seconds in intervals) < 1000, "heartbeats a second, of all"


def test_a_peer_is_told_what_the_number_of_others_makes_of_it() -> None:
    harness = Harness(heartbeat_interval_seconds=0.01)
    told = [harness.unregistered_peer().greet(hello(m.Role.CLIENT)) for _ in range(11)]
    assert [welcome.heartbeat_interval_milliseconds for welcome in told] == [10, 10, 13, 20, 26, 33, 40, 46, 53, 60, 66]


def test_a_peer_that_was_told_a_long_interval_is_not_asked_before(harness: Harness) -> None:
    peer = harness.unregistered_peer()
    peer.greet(hello(m.Role.CLIENT, heartbeat_interval_milliseconds=2000))
    harness.state.sessions[peer.name].heartbeat_interval_seconds = 10.0
    harness.wait(12)
    harness.nothing_else_was_sent()
    harness.wait(4)
    peer.take(m.Heartbeat)
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("make", ["client", "worker"])
def test_a_peer_that_leaves_is_answered(harness: Harness, make: str) -> None:
    peer = getattr(harness, make)()
    peer.send(m.DisconnectRequest(reason=m.DisconnectReason.LEAVING))
    peer.take(m.DisconnectResponse)
    assert not harness.state.sessions
    harness.nothing_else_was_sent()


def test_a_protected_scheduler_is_not_stopped_by_a_client(harness: Harness) -> None:
    client = harness.client()
    client.send(m.ClientShutdown())
    response = client.take(m.ClientShutdownResponse)
    assert not response.accepted and "--no-protected" in response.message
    assert client.session in harness.state.clients
    harness.nothing_else_was_sent()


def test_an_unprotected_scheduler_stops_when_all_have_left() -> None:
    harness = Harness(protected=False)
    client, other, worker = harness.client(), harness.client(), harness.worker()
    client.send(m.ClientShutdown())
    assert client.take(m.ClientShutdownResponse).accepted
    for peer in (client, other, worker):
        assert peer.take(m.DisconnectRequest).reason == m.DisconnectReason.SHUTDOWN
    late = harness.unregistered_peer()
    late.send(hello(m.Role.WORKER, slots=1))
    late.take_refusal(Reason.SHUTTING_DOWN)
    worker.send(m.DisconnectResponse())
    assert isinstance(harness.take_effect(), Stop)
    harness.wait(10)
    harness.nothing_else_was_sent()


def test_a_shutdown_without_workers_notifies_all_clients_before_it_stops_and_accepts_no_peers(harness: Harness) -> None:
    clients, late = [harness.client(), harness.client()], harness.unregistered_peer()
    harness.core.shut_down(harness.now, "signal")
    late.send(hello(m.Role.CLIENT))
    harness.core.shut_down(harness.now, "another")
    late.take_refusal(Reason.SHUTTING_DOWN)
    for client in clients:
        assert client.take(m.DisconnectRequest).reason == m.DisconnectReason.SHUTDOWN
    assert isinstance(harness.take_effect(), Stop)
    harness.nothing_else_was_sent()


def test_a_shutdown_asks_some_peers_at_a_time_and_accepts_none_meanwhile() -> None:
    harness = Harness(work_per_call=160)
    peers: List[Peer] = [*[harness.client() for _ in range(20)], *[harness.worker() for _ in range(20)]]
    late = harness.unregistered_peer()
    harness.core.shut_down(harness.now, "signal")
    late.post(hello(m.Role.CLIENT))
    asked = [0]
    while asked[-1] < len(peers):
        harness.step()
        asked.append(sum(bool(peer.inbox) for peer in peers))
        assert not harness.effects, "workers have not left"
    assert len(asked) > 10 and max(after - before for before, after in zip(asked, asked[1:])) <= 4
    late.take_refusal(Reason.SHUTTING_DOWN)
    for peer in peers:
        assert peer.take(m.DisconnectRequest).reason == m.DisconnectReason.SHUTDOWN
    for peer in peers[20:]:
        peer.send(m.DisconnectResponse())
    assert isinstance(harness.take_effect(), Stop)
    harness.nothing_else_was_sent()


def test_silent_peers_are_probed_and_removed_some_at_a_time() -> None:
    harness = Harness(work_per_call=160, client_timeout_seconds=60.0)
    peers = [harness.client() for _ in range(40)]

    def most_at_once(done: Callable[[], int]) -> int:
        counts = [0]
        while counts[-1] < len(peers):
            harness.step()
            counts.append(done())
        return max(after - before for before, after in zip(counts, counts[1:]))

    harness.now += 5
    assert most_at_once(lambda: sum(bool(peer.inbox) for peer in peers)) <= 3
    for peer in peers:
        peer.take(m.Heartbeat)
    harness.now += 60
    assert most_at_once(lambda: len(peers) - len(harness.state.sessions)) <= 3
    for peer in peers:
        peer.take_refusal(Reason.NOT_GREETED)
    harness.nothing_else_was_sent()


def test_a_task_of_a_worker_that_is_removed_late_in_a_look_at_all_peers_goes_elsewhere_at_once() -> None:
    harness = Harness(work_per_call=160)
    others = [harness.client() for _ in range(40)]
    client, silent = others[0], harness.worker()
    client.submit([0])
    silent.take_tasks()
    harness.now += 30
    for peer in others:
        peer.post(m.HeartbeatEcho())
    worker = harness.worker()
    harness.now += 31
    worker.post(m.HeartbeatEcho())
    before = len(harness.state.sessions)
    while len(harness.state.sessions) == before:
        harness.step()
    assert len(worker.take_tasks()) == 1, "before the next second"


def test_a_shutdown_does_not_wait_for_ever(harness: Harness) -> None:
    worker = harness.worker()
    harness.core.shut_down(harness.now, "signal")
    harness.core.shut_down(harness.now, "another")
    harness.tick()
    worker.take(m.DisconnectRequest)
    harness.wait(4)
    worker.take(m.Heartbeat)
    harness.wait(2)
    worker.take(m.Heartbeat)
    assert isinstance(harness.take_effect(), Stop)
    harness.nothing_else_was_sent()


def test_a_shutdown_cancels_tasks_at_the_workers(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([0, 1, 2])
    instances = worker.take_tasks()
    harness.core.shut_down(harness.now, "signal")
    harness.tick()
    client.take(m.DisconnectRequest)
    worker.take(m.DisconnectRequest)
    assert list(worker.take(m.TaskCancel).ids) == instances
    client.send(*task([3]))
    client.take_refusal(Reason.NOT_GREETED)
    harness.nothing_else_was_sent()
