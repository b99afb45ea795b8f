"""Options that change while the scheduler runs: no task is lost by it, and what it means for those that are there."""

from __future__ import annotations

from typing import Any, List

import pytest
from scheduler_harness import Client, Harness, Worker, given

from scaler_appliance.core.option_changes import CHANGEABLE
from scaler_appliance.core.state import Settings
from scaler_protocol import messages as m


def change(harness: Harness, **changes: Any) -> None:
    harness.core.on_options_changed(harness.now, changes)
    harness.tick()


def limits(tenant: str = "a", weight: float = 1.0, waiting: int = -1, running: int = -1, size: int = -1) -> Any:
    return [[tenant, weight, waiting, running, size]]


def finish_all(client: Client, worker: Worker) -> List[int]:
    """A worker finishes all that it is given; the ids of the results that the client gets, in order."""
    results: List[int] = []
    while True:
        instances = given(worker)
        if instances:
            worker.finish(instances)
        while client.inbox:
            message, _ = client.inbox.popleft()
            if isinstance(message, m.TaskResult):
                assert not message.statuses
                results += message.ids
        if not instances:
            return sorted(results)


def test_only_fields_of_the_settings_may_change_and_only_those_that_are_listed() -> None:
    assert set(Settings._fields) >= CHANGEABLE
    with pytest.raises(AssertionError, match="protected"):
        change(Harness(), protected=False)


# Tenants -------------------------------------------------------------------------------------------------------------


def test_a_quota_below_what_is_running_takes_no_task_away_and_holds_back_the_others_until_enough_have_ended() -> None:
    harness = Harness()
    alice, worker = harness.client("a"), harness.worker(slots=4, queue_size=2, tenant="a")
    alice.submit(range(20))
    held = given(worker)
    assert len(held) > 2
    change(harness, tenants=limits(running=2))
    for _ in range(len(held) - 2):
        worker.finish([held.pop()])
        assert not given(worker), "more than the quota is running"
    worker.finish([held.pop()])
    held += given(worker)
    assert len(held) == 2
    worker.finish(held)
    results = [each for message, _ in alice.inbox if isinstance(message, m.TaskResult) for each in message.ids]
    alice.inbox.clear()
    assert sorted(results + finish_all(alice, worker)) == list(range(20))


def test_a_larger_quota_starts_waiting_tasks_at_once() -> None:
    harness = Harness(tenants=limits(running=1))
    alice, worker = harness.client("a"), harness.worker(slots=4, tenant="a")
    alice.submit(range(4))
    assert len(given(worker)) == 1
    change(harness, tenants=limits(running=3))
    assert len(given(worker)) == 2
    change(harness, tenants=[])
    assert len(given(worker)) == 1


def test_a_quota_of_waiting_tasks_below_those_that_wait_rejects_new_ones_only() -> None:
    harness = Harness()
    alice = harness.client("a")
    alice.submit(range(10))
    alice.submit_after(10, 0)
    change(harness, tenants=limits(waiting=2))
    alice.submit([11])
    assert "quota of waiting tasks (2)" in alice.take_losses()[11].message
    worker = harness.worker(slots=2, tenant="a")
    assert finish_all(alice, worker) == list(range(11))
    alice.submit([12])
    assert finish_all(alice, worker) == [12]


def test_tasks_of_a_lost_worker_run_again_however_low_the_quota_of_waiting_ones_has_become() -> None:
    harness = Harness()
    alice, worker = harness.client("a"), harness.worker(slots=4, tenant="a")
    alice.submit(range(4))
    change(harness, tenants=limits(waiting=0, running=1))
    harness.core.on_peer_gone(harness.now, worker.name)
    harness.tick()
    assert finish_all(alice, harness.worker(tenant="a")) == list(range(4))


def test_another_weight_counts_from_now_on() -> None:
    harness = Harness(tenants=limits(weight=1.0))
    shares = harness.state.shares
    shares.charge("a", 1000.0)
    change(harness, tenants=limits(weight=4.0))
    shares.charge("a", 1000.0)
    assert shares.work_of("a") == 1250.0


def test_tasks_that_wait_for_nested_ones_are_known_to_a_quota_that_comes_later() -> None:
    harness = Harness()
    alice, worker = harness.client("a"), harness.worker(slots=1, tenant="a")
    alice.submit([1])
    (outer,) = given(worker)
    busy = m.ProcessorStatus(instance=outer, has_task=True, suspended=True)
    worker.send(m.Heartbeat(processors=[busy]))
    change(harness, tenants=limits(running=1))
    alice.submit([2])
    assert len(given(worker)) == 1, "the nested task would wait for ever"


# Clients and workers -------------------------------------------------------------------------------------------------


def test_clients_learn_at_once_what_they_may_have_in_flight() -> None:
    harness = Harness(client_tasks_in_flight=10, client_bytes_in_flight=1000)
    client = harness.client()
    change(harness, client_tasks_in_flight=50, client_bytes_in_flight=0)
    echo = client.take(m.TaskEcho)
    assert (echo.tasks_in_flight, echo.bytes_in_flight) == (50, 0)
    client.submit(range(40), [b"x" * 100] * 40)
    assert harness.state.unfinished_of(harness.state.clients[client.session].tenant) == 40


def test_what_a_client_sent_before_it_knew_of_a_lower_limit_is_accepted() -> None:
    harness = Harness(client_tasks_in_flight=10)
    client = harness.client()
    change(harness, client_tasks_in_flight=3)
    client.submit(range(10))
    assert client.take(m.TaskEcho).tasks_in_flight == 3
    assert finish_all(client, harness.worker()) == list(range(10))


def test_tasks_of_a_client_that_has_not_fetched_its_results_are_held_or_released_as_the_limit_says() -> None:
    harness = Harness(client_bytes_in_flight=1000)
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    worker.finish(worker.take_all_tasks(), objects=[worker.announce(1, 2000, m.ObjectStorage.SHARED)])
    client.submit([1])
    assert not given(worker), "its result is larger than the limit, and was not fetched"
    change(harness, client_bytes_in_flight=3000)
    assert len(given(worker)) == 1
    change(harness, client_bytes_in_flight=1500)
    client.submit([2])
    assert not given(worker)


def test_a_worker_that_holds_more_than_it_may_now_keeps_it_and_gets_no_more() -> None:
    harness = Harness()
    client, worker = harness.client(), harness.worker(slots=1, queue_size=100)
    client.submit([0])
    worker.finish(worker.take_all_tasks(), busy_microseconds=1)
    client.take_results()
    client.submit(range(1, 101))
    held = given(worker)
    assert len(held) == 100
    change(harness, per_worker_queue_size=2)
    client.submit(range(200, 210))
    worker.finish(held[:98], busy_microseconds=98)
    assert not given(worker)
    worker.finish(held[98:99], busy_microseconds=1)
    assert len(given(worker)) == 1
    change(harness, per_worker_queue_size=50)
    assert len(given(worker)) == 9


def test_a_session_keeps_the_time_out_and_the_heartbeats_that_it_was_told() -> None:
    """SCL-SES-015: Welcome.timeoutMilliseconds is binding for the scheduler, too."""
    harness = Harness(client_timeout_seconds=10.0, heartbeat_interval_seconds=2.0)
    before = harness.client()
    change(harness, client_timeout_seconds=60.0, heartbeat_interval_seconds=20.0)
    after = harness.client()
    harness.wait(4.0)
    before.take(m.Heartbeat)
    assert not after.inbox
    harness.wait(7.0)
    assert before.take(m.Refusal).reason == m.RefusalReason.NOT_GREETED
    assert after.session in harness.state.clients
    harness.wait(45.0)
    assert after.session in harness.state.clients
    harness.wait(10.0)
    assert after.session not in harness.state.clients


def test_peers_beyond_a_lower_maximum_stay_and_others_are_refused() -> None:
    harness = Harness()
    clients = [harness.client() for _ in range(3)]
    change(harness, maximum_peers=2)
    assert len(harness.state.clients) == 3
    late = harness.unregistered_peer()
    late.send(m.Hello(role=m.Role.CLIENT, major=1))
    assert late.take(m.Refusal).reason == m.RefusalReason.LIMIT_EXCEEDED
    change(harness, maximum_peers=4)
    late.send(m.Hello(role=m.Role.CLIENT, major=1))
    late.take(m.Welcome)
    assert len(harness.state.clients) == len(clients) + 1


# Limits of the scheduler ---------------------------------------------------------------------------------------------


def test_a_limit_of_waiting_tasks_below_those_that_wait_rejects_new_ones_only() -> None:
    harness = Harness()
    client = harness.client()
    client.submit(range(5))
    change(harness, max_number_of_tasks_waiting=1)
    client.submit([5])
    assert list(client.take_losses()) == [5]
    assert finish_all(client, harness.worker()) == list(range(5))


def test_attempts_are_counted_against_the_maximum_of_now() -> None:
    harness = Harness(maximum_attempts=1)
    client, worker = harness.client(), harness.worker()
    client.submit([1])
    change(harness, maximum_attempts=2)
    harness.core.on_peer_gone(harness.now, worker.name)
    harness.tick()
    assert finish_all(client, harness.worker()) == [1]


def test_objects_leave_memory_when_the_limit_falls_below_them() -> None:
    harness = Harness(object_memory_limit_bytes=10_000, inline_bytes=10, smallest_file_bytes=1)
    memory = harness.state.objects.memory
    change(harness, object_memory_limit_bytes=1)
    assert memory.limit_bytes == memory.most_bytes == 1
    change(harness, object_memory_limit_bytes=0)
    assert memory.limit_bytes == memory.most_bytes == 0
