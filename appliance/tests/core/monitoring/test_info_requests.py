"""Information about the cluster for clients."""

from __future__ import annotations

import pytest
from scheduler_harness import Client, Harness

from scaler_appliance.core.monitoring import info_requests
from scaler_protocol import messages as m


def ask(client: Client, maximum_workers: int = 10) -> m.Info:
    client.send(m.InfoRequest(request_id=3, maximum_workers=maximum_workers))
    info = client.take(m.Info)
    assert info.request_id == 3
    return info


def test_a_scheduler_alone(harness: Harness) -> None:
    client = harness.client()
    info = ask(client)
    assert (info.clients, info.worker_count, info.slots, info.slots_free) == (1, 0, 0, 0)
    assert (info.tasks_waiting, info.tasks_running) == (0, 0)
    assert info.implementation.name == harness.core.state.settings.implementation.name
    harness.nothing_else_was_sent()


def test_the_time_since_its_start(harness: Harness) -> None:
    client = harness.client()
    before = ask(client).uptime_milliseconds
    harness.wait(1)
    assert ask(client).uptime_milliseconds == before + 1000


def test_workers_and_their_tasks(harness: Harness) -> None:
    client = harness.client()
    worker = harness.worker(slots=2)
    info = ask(client)
    assert (info.worker_count, info.slots, info.slots_free) == (1, 2, 2)
    client.submit([0, 1, 2])
    info = ask(client)
    held = worker.take_all_tasks()
    assert info.tasks_running + info.tasks_waiting == 3
    assert info.tasks_running >= 2 and info.slots_free == 0
    (told,) = info.workers
    assert (told.slots, told.tasks) == (2, info.tasks_running)
    assert held
    worker.vanish()
    info = ask(client)
    assert (info.worker_count, info.slots, info.tasks_waiting, info.tasks_running) == (0, 0, 3, 0)


def test_workers_may_claim_more_slots_than_a_message_can_say(harness: Harness) -> None:
    client = harness.client()
    most = (1 << 32) - 1
    workers = [harness.worker(slots=most) for _ in range(2)]
    info = ask(client)
    assert (info.slots, info.slots_free) == (most, most)
    for peer in (client, *workers):
        peer.send(m.Heartbeat(sequence=1))
        assert peer.take(m.HeartbeatEcho).slots == most
    harness.nothing_else_was_sent()


def test_no_more_workers_are_listed_than_asked_for_and_all_are_counted(harness: Harness) -> None:
    client = harness.client()
    for _ in range(3):
        harness.worker(slots=2)
    info = ask(client, maximum_workers=2)
    assert (len(info.workers), info.worker_count, info.slots) == (2, 3, 6)
    assert ask(client, maximum_workers=0).workers == []


def test_an_answer_is_bounded_whatever_is_asked_for(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info_requests, "MAXIMUM_WORKERS", 2)
    client = harness.client()
    for _ in range(3):
        harness.worker()
    info = ask(client, maximum_workers=(1 << 32) - 1)
    assert (len(info.workers), info.worker_count) == (2, 3)


def test_a_worker_with_a_long_name_makes_no_answer_long(harness: Harness) -> None:
    client = harness.client()
    harness.worker(name="n" * 60_000)
    (told,) = ask(client).workers
    assert told.name == "n" * 256


def test_workers_do_not_ask(harness: Harness) -> None:
    worker = harness.worker()
    worker.send(m.InfoRequest(request_id=1))
    assert worker.take(m.Refusal).reason == m.RefusalReason.PROTOCOL_VIOLATION
