"""A tenant may have only so many tasks waiting, so many at workers, and objects of so many bytes."""

from __future__ import annotations

from array import array

import pytest
from scheduler_harness import Client, Harness, given, options

from scaler_appliance.core.effects import RemoveObject
from scaler_protocol import messages as m


def harness_with(waiting: int = -1, running: int = -1, object_bytes: int = -1) -> Harness:
    return Harness(tenants=[["a", 1.0, waiting, running, object_bytes]])


# Waiting --------------------------------------------------------------------------------------------------------------


def test_tasks_beyond_the_quota_of_waiting_ones_are_rejected_with_the_reason() -> None:
    harness = harness_with(waiting=3)
    alice, again, bob = harness.client("a"), harness.client("a"), harness.client("b")
    alice.submit(range(2))
    again.submit(range(5))
    losses = again.take_losses()
    assert sorted(losses) == [1, 2, 3, 4]
    assert all(each.kind == m.FailureKind.REJECTED for each in losses.values())
    assert "the tenant a has reached its quota of waiting tasks (3)" in losses[1].message
    bob.submit(range(100))
    harness.nothing_else_was_sent()


def test_free_slots_do_not_count_as_waiting() -> None:
    harness = harness_with(waiting=1)
    alice, worker = harness.client("a"), harness.worker(slots=3, queue_size=1, tenant="a")
    harness.worker(slots=50, tenant="b")
    alice.submit(range(5))
    assert sorted(alice.take_losses()) == [4] and len(given(worker)) == 3


def test_tasks_that_wait_for_others_and_nodes_of_graphs_count() -> None:
    harness = harness_with(waiting=2)
    alice = harness.client("a")
    alice.submit([0])
    alice.submit_after(1, 0)
    alice.submit_after(2, 0)
    assert "quota of waiting tasks" in alice.take_losses()[2].message
    function = alice.create(1, b"f")
    alice.send(
        m.GraphTask(
            ids=array("Q", [5]),
            payload_sizes=array("I", [0]),
            functions=array("Q", [function]),
            predecessor_offsets=array("I", [0, 0]),
            targets=array("I", [0]),
        )
    )
    assert "quota of waiting tasks" in alice.take_losses()[5].message


# Running --------------------------------------------------------------------------------------------------------------


def test_no_more_tasks_are_at_workers_than_the_quota_allows_and_the_others_wait() -> None:
    harness = harness_with(running=3)
    alice, bob = harness.client("a"), harness.client("b")
    workers = [harness.worker(slots=4, tenant=tenant) for tenant in ("a", "*")]
    alice.submit(range(20))
    held = [given(worker) for worker in workers]
    assert sum(map(len, held)) == 3
    alice.send(m.ExplanationRequest(request_id=1, task_id=19))
    assert "the tenant a has 3 tasks at workers, as many as its quota allows" in alice.take(m.Explanation).text
    bob.submit(range(4))
    assert len(given(workers[1])) == 4, "others are not kept waiting"
    done = 3
    while any(held):
        for worker, instances in zip(workers, held):
            if instances:
                worker.finish(instances)
        held = [given(worker) for worker in workers]
        assert sum(map(len, held)) <= 3
        done += sum(map(len, held))
    assert done == 20


@pytest.mark.parametrize("tenant", ["a", "*"])
def test_a_task_that_waits_for_nested_ones_does_not_count(tenant: str) -> None:
    """Otherwise the nested tasks could never run."""
    harness = harness_with(running=2)
    alice, worker = harness.client("a"), harness.worker(slots=2, tenant=tenant, queue_size=10)
    alice.submit(range(2))
    held = given(worker)
    assert len(held) == 2
    alice.submit(range(9, 14), options=options(priority=5))
    assert not given(worker)
    processors = [m.ProcessorStatus(instance=instance, has_task=True, suspended=True) for instance in held[:1]]
    worker.send(m.Heartbeat(processors=processors))
    assert len(given(worker)) == 1
    worker.send(m.Heartbeat(processors=[m.ProcessorStatus(suspended=True)] * 2))
    assert len(given(worker)) == 1, "also if the worker does not say which task it is"
    worker.vanish()
    assert harness.state.shares.room_of("a") == 2


@pytest.mark.parametrize("is_known", [True, False], ids=["known task", "unknown task"])
def test_calls_behind_one_that_waits_for_nested_tasks_do_not_count(is_known: bool) -> None:
    """They cannot run before it: otherwise they and the nested tasks would wait for each other for ever."""
    harness = harness_with(running=2)
    alice = harness.client("a")
    worker = harness.worker(slots=1, tenant="*", queue_size=10, features=["actors"])
    function = alice.create(1, b"class")
    alice.submit([0], function=function, options=options(actor=True))
    worker.finish(given(worker), busy_microseconds=10)
    alice.submit([1, 2], function=function, options=options(actor=True))
    first, _ = given(worker)  # as many as the quota allows
    instance = first if is_known else 0
    worker.send(m.Heartbeat(processors=[m.ProcessorStatus(instance=instance, has_task=True, suspended=True)]))
    alice.submit(range(3, 20), function=function, options=options(actor=True))
    assert given(worker), "more calls are in line there"
    alice.submit(range(20, 30), options=options(priority=5))
    assert len(given(worker)) == 2, "nested tasks count"
    worker.send(m.Heartbeat(processors=[m.ProcessorStatus(instance=instance, has_task=True)]))
    assert harness.state.shares.room_of("a") == 0, "the calls count again when the first one goes on"
    worker.vanish()
    assert harness.state.shares.room_of("a") == 2


def test_a_task_that_waits_behind_another_is_asked_back_though_a_quota_keeps_more_waiting() -> None:
    harness = harness_with(running=2)
    first, client = harness.worker(tenant="a"), harness.client(tenant="a")
    client.submit([1, 2, 3])
    assert len(first.take_all_tasks()) == 2, "one runs, and one waits behind it"
    harness.worker(tenant="a")
    harness.wait(1.0)
    harness.wait(1.0)
    assert any(isinstance(message, m.BalanceRequest) for message, _ in first.inbox)


def test_a_quota_of_a_single_tenant_holds_without_others() -> None:
    harness = Harness(tenants=[["default", 1.0, -1, 2, -1]])
    client, worker = harness.client(), harness.worker(slots=8)
    client.submit(range(8))
    held = given(worker)
    assert len(held) == 2
    worker.vanish()
    other = harness.worker(slots=8)
    assert len(given(other)) == 2


# Objects --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def harness() -> Harness:
    return harness_with(object_bytes=10)


def missing_text(client: Client, task_id: int, object_id: int) -> str:
    client.submit([task_id], [b""], dependency_counts=[1], dependencies=[object_id])
    failure = client.take_losses()[task_id]
    assert (failure.kind, failure.missing_reason) == (m.FailureKind.OBJECT_MISSING, m.MissingReason.NO_ROOM)
    return failure.message


@pytest.mark.parametrize("storage", list(m.ObjectStorage)[:3], ids=lambda storage: storage.name)
def test_an_object_beyond_the_quota_is_not_kept_and_tasks_that_need_it_say_so(
    harness: Harness, storage: m.ObjectStorage
) -> None:
    alice, again = harness.client("a"), harness.client("a")
    alice.create(1, b"123456")
    is_inline = storage == m.ObjectStorage.INLINE
    object_id = again.create(1, b"12345") if is_inline else again.announce(1, 5, storage)
    assert again.inbox == again.inbox.__class__(), "nothing is fetched"
    assert harness.effects == ([RemoveObject(object_id)] if storage == m.ObjectStorage.SHARED else [])
    harness.effects.clear()
    assert "exceeds what the objects of the tenant a may take" in missing_text(again, 0, object_id)
    again.send(m.ObjectRequest(id=object_id, offset=0, length=5))
    response = again.take(m.ObjectResponse)
    assert (response.status, response.missing_reason) == (m.ObjectResponseStatus.MISSING, m.MissingReason.NO_ROOM)
    assert harness.state.objects.usage_of("a").size_bytes == 6
    harness.nothing_else_was_sent()


def test_the_function_of_a_task_may_be_too_large(harness: Harness) -> None:
    alice = harness.client("a")
    function = alice.create(1, b"12345678901")
    alice.submit([0], function=function)
    assert "exceeds what the objects of the tenant a may take" in alice.take_losses()[0].message


def test_what_is_deleted_makes_room(harness: Harness) -> None:
    alice = harness.client("a")
    first = alice.create(1, b"1234567890")
    refused = alice.create(2, b"x")
    alice.delete(first, refused)
    second = alice.create(3, b"1234567890")
    alice.send(m.ObjectRequest(id=second, offset=0, length=10))
    assert alice.take(m.ObjectResponse).status == m.ObjectResponseStatus.OK


def test_results_count_and_are_not_refused(harness: Harness) -> None:
    alice, worker = harness.client("a"), harness.worker(tenant="*")
    alice.submit([0])
    held = worker.take_tasks()
    object_id = worker.create(1, b"a result of 22 bytes..")
    worker.finish(held, [b""], objects=[object_id])
    alice.take(m.TaskResult)
    assert harness.state.objects.usage_of("a").size_bytes == 22
    assert "exceeds" in missing_text(alice, 1, alice.create(1, b"x"))


def test_other_tenants_have_no_quota(harness: Harness) -> None:
    bob = harness.client("b")
    object_id = bob.create(1, bytes(1000))
    bob.send(m.ObjectRequest(id=object_id, offset=0, length=10))
    assert bob.take(m.ObjectResponse).status == m.ObjectResponseStatus.OK
