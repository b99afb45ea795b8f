"""Tasks run on workers of their tenant, and on those that serve all tenants: whichever way they get there."""

from __future__ import annotations

from array import array
from typing import Dict, List

import pytest
from scheduler_harness import Client, Harness, Worker, options

from scaler_protocol import messages as m


def tasks_at(worker: Worker) -> List[bytes]:
    """The payloads of the tasks that a worker was given."""
    payloads: List[bytes] = []
    while worker.inbox:
        message, payload = worker.inbox.popleft()
        if isinstance(message, m.Task):
            worker.task = message
            payloads += [payload[: message.payload_sizes[0]]] if len(message.ids) == 1 else [b""] * len(message.ids)
    return payloads


def wait_text(harness: Harness, client: Client, task_id: int) -> str:
    client.send(m.ExplanationRequest(request_id=5, task_id=task_id))
    while True:
        explanation = client.take(m.Explanation)
        if explanation.request_id:
            return explanation.text


@pytest.mark.parametrize("tenant", ["a", "b", "default", "*"])
def test_a_task_runs_where_its_tenant_is_served(harness: Harness, tenant: str) -> None:
    worker, alice = harness.worker(tenant=tenant), harness.client("a")
    alice.submit([0])
    assert bool(tasks_at(worker)) == (tenant in ("a", "*"))


def test_the_owner_s_tasks_are_of_the_default_tenant(harness: Harness) -> None:
    owner = harness.client()
    foreign, shared = harness.worker(tenant="a"), harness.worker(tenant="*")
    owner.submit([0])
    assert not tasks_at(foreign) and tasks_at(shared)
    local = harness.worker()
    harness.client("a").submit([0], options=options(gpu=0))
    owner.submit(range(1, 20))
    assert tasks_at(local) and not tasks_at(foreign)


def test_a_waiting_task_says_that_no_worker_serves_its_tenant(harness: Harness) -> None:
    alice = harness.client("a")
    alice.submit([0])
    before = wait_text(harness, alice, 0)
    harness.worker(slots=4, tenant="b")
    assert wait_text(harness, alice, 0) == before, "it learns nothing of the workers of others"
    assert "no worker of the tenant a, or of all tenants, is connected" in before and "--tenant a" in before
    local = harness.client()
    local.submit([0])
    assert "no worker of the tenant default, or of all tenants" in wait_text(harness, local, 0)


def test_a_default_client_without_a_worker_learns_nothing_of_others(harness: Harness) -> None:
    client = harness.client("default")
    client.submit([0])
    before = wait_text(harness, client, 0)
    harness.worker(tenant="b", gpu=1)
    assert wait_text(harness, client, 0) == before


def test_capabilities_of_foreign_workers_are_not_told(harness: Harness) -> None:
    alice, _ = harness.client("a"), harness.worker(tenant="a", gpu=1)
    harness.worker(tenant="b", gpu=8)
    alice.submit([0], options=options(gpu=2))
    assert "gpu=1 is the most" in wait_text(harness, alice, 0)


def test_tasks_of_a_lost_worker_go_to_its_tenant_s_workers(harness: Harness) -> None:
    alice, first = harness.client("a"), harness.worker(tenant="a")
    alice.submit([0])
    assert tasks_at(first)
    foreign = harness.worker(tenant="b")
    first.vanish()
    assert not tasks_at(foreign)
    second = harness.worker(tenant="a")
    assert tasks_at(second) and not tasks_at(foreign)


def test_a_foreign_idle_worker_is_no_reason_to_ask_for_tasks_back(harness: Harness) -> None:
    alice, loaded = harness.client("a"), harness.worker(tenant="a", queue_size=10)
    alice.submit(range(2))
    held = loaded.take_all_tasks()
    assert len(held) == 2
    foreign = harness.worker(tenant="b")
    harness.wait(1)
    assert not loaded.inbox and not tasks_at(foreign)
    own = harness.worker(tenant="a")
    harness.wait(1)
    request = loaded.take(m.BalanceRequest)
    loaded.give_back(held[1:], request.request_id)
    assert tasks_at(own) and not tasks_at(foreign)


def test_nested_tasks_stay_with_their_tenant(harness: Harness) -> None:
    """A blocked worker gets urgent tasks beyond its slots: those of its tenant."""
    alice, bob, worker = harness.client("a"), harness.client("b"), harness.worker(tenant="a", queue_size=2)
    alice.submit([0, 1])
    assert tasks_at(worker)
    worker.suspend(1)
    bob.submit([0], options=options(priority=9))
    assert not tasks_at(worker)
    alice.submit([2], options=options(priority=9))
    assert tasks_at(worker)


@pytest.mark.parametrize(("others", "priority"), [(0, 0), (5, 0), (5, -1)])
def test_waiting_tasks_of_another_tenant_keep_no_nested_ones_from_a_shared_worker(
    harness: Harness, others: int, priority: int
) -> None:
    """Otherwise the slot of the task that waits for them would go to the next one that waits for some, and so on."""
    alice, bob, worker = harness.client("a"), harness.client("b"), harness.worker(tenant="*")
    alice.submit([0])
    (first,) = worker.take_tasks()
    worker.finish([first], busy_microseconds=10_000_000)
    alice.submit(range(1, 10))
    worker.take_tasks()
    worker.suspend(1)
    worker.take_tasks()
    bob.submit(range(others), options=options(priority=priority))
    assert not tasks_at(worker)
    alice.submit([10, 11], options=options(priority=1))
    (child,) = worker.take_tasks()
    bob.submit(range(others, 2 * others), options=options(priority=priority))
    alice.submit([20], options=options(priority=2))
    (grandchild,) = worker.take_tasks()
    worker.finish([grandchild, child])


@pytest.mark.parametrize("priority", [-7, 0, 1, 99])
def test_what_a_blocked_worker_gets_does_not_depend_on_the_priorities_of_other_tenants(
    harness: Harness, priority: int
) -> None:
    """Priorities order the tasks of one tenant: the largest number is not to take what is for another one's tasks."""
    alice, bob, worker = harness.client("a"), harness.client("b"), harness.worker(slots=2, tenant="*")
    for client in (alice, bob):
        client.submit([0], options=options(priority=priority if client is bob else 0))
        worker.finish(worker.take_tasks(), busy_microseconds=10_000_000)
        client.take_results()
    alice.submit([1])
    bob.submit([1, 2, 3, 4], options=options(priority=priority))
    assert len(worker.take_all_tasks()) == 2, "one of each"
    worker.suspend(1)
    assert len(worker.take_tasks()) == 1, "one of bob's instead of the one that is blocked"
    alice.submit([10, 11, 12], options=options(priority=1))
    assert len(worker.take_all_tasks()) == 2, "as many nested ones as it has slots, whatever bob's are"
    bob.submit([5], options=options(priority=priority))
    bob.submit([6], options=options(priority=priority + 1))
    (nested,) = worker.take_tasks()
    assert nested and worker.payloads == [b"6"], "bob may have tasks that wait for this one"
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("priority", [0, 1, 99])
def test_nested_tasks_of_a_client_of_another_tenant_are_sent_to_the_worker_of_their_parent(
    harness: Harness, priority: int
) -> None:
    """A client in a task has the key that its worker was given, which may be of another tenant than the task."""
    alice, inner, worker = harness.client("a"), harness.client("inner"), harness.worker(tenant="*")
    for task_id in (0, 1):
        alice.submit([task_id], options=options(priority=priority))
    worker.take_all_tasks()
    worker.suspend(1)
    inner.submit([0], options=options(priority=priority + 1))
    assert worker.take_tasks()
    harness.nothing_else_was_sent()


def test_successors_of_tasks_and_nodes_run_at_their_tenant_s_workers(harness: Harness) -> None:
    alice, worker, foreign = harness.client("a"), harness.worker(slots=4, tenant="a"), harness.worker(tenant="b")
    alice.submit([0])
    alice.submit_after(1, 0)
    function = alice.create(1, b"f")
    alice.send(
        m.GraphTask(
            ids=array("Q", [2, 3]),
            payload_sizes=array("I", [0, 0]),
            functions=array("Q", [function] * 2),
            predecessor_offsets=array("I", [0, 0, 1]),
            predecessors=array("I", [0]),
            targets=array("I", [1]),
        )
    )
    done: Dict[int, bytes] = {}
    while len(done) < 3:
        while worker.inbox:
            message, _ = worker.inbox.popleft()
            if isinstance(message, m.Task):
                large = b"x" * 300_000
                worker.finish(message.ids, [large] * len(message.ids))
        while alice.inbox:
            message, payload = alice.inbox.popleft()
            if isinstance(message, m.TaskResult):
                assert not any(message.statuses)
                done.update(dict.fromkeys(message.ids, payload))
    assert sorted(done) == [0, 1, 3]
    assert not foreign.inbox


def test_named_functions_of_two_tenants_are_measured_and_counted_apart(harness: Harness) -> None:
    worker = harness.worker(slots=4, tenant="*")
    for tenant in ("a", "b"):
        client = harness.client(tenant)
        client.submit([0], function_name="f")
        worker.finish(worker.take_tasks(), busy_microseconds=1000 if tenant == "a" else 9000)
    counters = harness.state.changes.function_counters()
    assert sorted((each.name, each.tenant) for each in counters) == [("f", "a"), ("f", "b")]
    assert [harness.state.durations.get(("f", tenant)) for tenant in ("a", "b")] == [1000, 9000]
