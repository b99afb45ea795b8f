"""Tenants share the workers that serve all of them by weight, whatever each of them submits."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest
from scheduler_harness import Client, Harness, Worker, options, task

from scaler_appliance.core.placement.tenant_shares import TenantShares, limits_of
from scaler_protocol import messages as m

pytestmark = pytest.mark.exhaustive_on_pypy  # decisions in virtual time are the same there

TASK_MICROSECONDS = 30_000


def keep_busy(harness: Harness, workers: List[Worker], clients: Dict[str, Client], rounds: int) -> Dict[str, int]:
    """Workers finish what they have, and get more; how many tasks of each client they finished."""
    done = dict.fromkeys(clients, 0)
    names = {client.session: name for name, client in clients.items()}
    for _ in range(rounds):
        harness.now += 0.03
        for worker in workers:
            if not any(isinstance(message, m.Task) for message, _ in worker.inbox):
                continue
            instances: List[int] = []
            while worker.inbox:
                message, _ = worker.inbox.popleft()
                if isinstance(message, m.Task):
                    instances += message.ids
                    done[names[message.client]] += len(message.ids)
            worker.finish(instances, busy_microseconds=TASK_MICROSECONDS * len(instances))
    return done


def weights(**by_tenant: float) -> Dict[str, Any]:
    return {"tenants": [[name, weight, -1, -1, -1] for name, weight in by_tenant.items()]}


def counts_given(worker: Worker, clients: Dict[str, Client]) -> Dict[str, int]:
    """How many tasks of each client the worker was sent, by the client's name."""
    names = {client.session: name for name, client in clients.items()}
    given = dict.fromkeys(clients, 0)
    while worker.inbox:
        message, _ = worker.inbox.popleft()
        if isinstance(message, m.Task):
            given[names[message.client]] += len(message.ids)
    return given


@pytest.mark.parametrize("weight", [1.0, 2.0, 4.0])
def test_work_is_shared_by_weight(weight: float) -> None:
    harness = Harness(**weights(a=weight))
    workers = [harness.worker(slots=2, tenant="*") for _ in range(2)]
    clients = {name: harness.client(name) for name in ("a", "b")}
    for client in clients.values():
        client.submit(range(4000), [b"x"] * 4000)
    done = keep_busy(harness, workers, clients, 60)
    assert min(done.values()) > 50
    assert done["a"] / done["b"] == pytest.approx(weight, rel=0.15)


def test_a_tenant_s_share_does_not_depend_on_how_many_clients_kinds_or_priorities_it_has() -> None:
    harness = Harness()
    worker = harness.worker(slots=4, tenant="*")
    clients = {"b": harness.client("b"), **{f"a{number}": harness.client("a") for number in range(5)}}
    for number, client in enumerate(clients.values()):
        for kind in range(5 if number else 1):
            first = kind * 1000
            client.submit(
                range(first, first + 1000),
                [b"x"] * 1000,
                function_name=f"f{kind}",
                options=options(priority=kind if number else 0),
            )
    done = keep_busy(harness, [worker], clients, 60)
    of_a = sum(count for name, count in done.items() if name != "b")
    assert of_a / done["b"] == pytest.approx(1.0, rel=0.2)


def test_free_slots_are_divided_at_once() -> None:
    """Long tasks fill all slots in one round: they are not all of the tenant that comes first."""
    harness = Harness(**weights(a=3.0), prefetch_seconds=0.001)
    clients = {name: harness.client(name) for name in ("a", "b")}
    for client in clients.values():
        client.submit(range(100), [b"x"] * 100)
    workers = [harness.worker(slots=8, queue_size=1, tenant="*") for _ in range(4)]
    given = dict.fromkeys(clients, 0)
    names = {client.session: name for name, client in clients.items()}
    for worker in workers:
        while worker.inbox:
            message, _ = worker.inbox.popleft()
            if isinstance(message, m.Task):
                given[names[message.client]] += len(message.ids)
    assert sum(given.values()) == 32
    assert given["a"] / given["b"] == pytest.approx(3.0, rel=0.35)


def test_what_is_prefetched_is_divided_in_turns() -> None:
    """A worker that joins gets work of all who wait, and not as much of the first as it takes."""
    harness = Harness(prefetch_seconds=0.6)
    clients = {name: harness.client(name) for name in ("a", "b")}
    measuring = harness.worker(slots=1, queue_size=1, tenant="*")
    for client in clients.values():
        client.submit([0])
        measuring.finish(measuring.take_tasks(), busy_microseconds=TASK_MICROSECONDS)
    measuring.vanish()
    for client in clients.values():
        client.submit(range(1, 1000), [b"x"] * 999)
    worker = harness.worker(slots=4, queue_size=1000, tenant="*")
    given = counts_given(worker, clients)
    a_turn = 0.3e6 / TASK_MICROSECONDS
    assert sum(given.values()) == pytest.approx(4 * 0.6e6 / TASK_MICROSECONDS, abs=a_turn)
    assert abs(given["a"] - given["b"]) <= a_turn, given


def test_a_turn_that_begins_with_a_short_task_has_no_more_work_than_others() -> None:
    """Tasks of one class may be of several functions, some of which have not been measured."""
    harness = Harness()
    clients = {name: harness.client(name) for name in ("a", "b")}
    measuring = harness.worker(slots=1, queue_size=1, tenant="*")
    functions = {name: [client.create(1, b"short"), client.create(2, b"long")] for name, client in clients.items()}
    for name, client in clients.items():
        client.submit([0], function=functions[name][0], function_name="")
        measuring.inbox.popleft()  # the function
        measuring.finish(measuring.take_tasks(), busy_microseconds=1000)
    measuring.vanish()
    for name, client in clients.items():
        short, long = functions[name]
        client.submit([1], function=short, function_name="")
        client.submit(range(2, 30), [b"x"] * 28, function=long, function_name="")
    worker = harness.worker(slots=4, queue_size=1000, tenant="*")
    given = counts_given(worker, clients)
    assert abs(given["a"] - given["b"]) <= 1 and sum(given.values()) >= 8, given


def test_slots_that_one_tenant_leaves_free_are_another_s_at_once() -> None:
    harness = Harness(prefetch_seconds=0.001)
    clients = {name: harness.client(name) for name in ("a", "b", "c")}
    for client, count in zip(clients.values(), (100, 2, 1)):
        client.submit(range(count), [b"x"] * count)
    workers = [harness.worker(slots=8, queue_size=1, tenant="*") for _ in range(4)]
    assert sum(len(worker.take_all_tasks()) for worker in workers) == 32


def test_clients_of_a_tenant_take_turns_as_before() -> None:
    harness = Harness()
    worker = harness.worker(slots=2, tenant="*")
    clients = {"b": harness.client("b"), "one": harness.client("a"), "two": harness.client("a")}
    for client in clients.values():
        client.submit(range(2000), [b"x"] * 2000)
    done = keep_busy(harness, [worker], clients, 80)
    assert done["one"] / done["two"] == pytest.approx(1.0, rel=0.25)
    assert done["b"] / (done["one"] + done["two"]) == pytest.approx(1.0, rel=0.2)


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost with its worker", "given back"])
def test_what_comes_back_does_not_count_against_its_tenant(is_lost: bool) -> None:
    harness = Harness(**weights(a=1.0))
    clients = {name: harness.client(name) for name in ("a", "b")}
    worker = harness.worker(slots=20, tenant="*")
    for name, count in (("a", 2), ("b", 30)):
        clients[name].post(*task(range(count), [b"x"] * count))
    harness.tick()
    given = [instance for message, _ in worker.inbox if isinstance(message, m.Task) for instance in message.ids]
    assert len(given) == 32, "one of them had many more"
    if is_lost:
        worker.vanish()
    else:
        worker.congest()
        harness.state.workers[worker.session].balance_request = 1
        worker.give_back(given, request_id=1)
    for client in clients.values():
        client.submit(range(100, 200), [b"x"] * 100)
    assert counts_given(harness.worker(slots=10, tenant="*"), clients) == {"a": 10, "b": 10}


def test_time_without_tasks_gives_no_credit() -> None:
    harness = Harness()
    worker = harness.worker(slots=2, tenant="*")
    clients = {name: harness.client(name) for name in ("a", "b")}
    clients["a"].submit(range(3000), [b"x"] * 3000)
    clients["b"].submit([0])
    keep_busy(harness, [worker], clients, 50)
    clients["b"].submit(range(1, 3000), [b"x"] * 2999)
    done = keep_busy(harness, [worker], clients, 40)
    assert done["a"] / done["b"] == pytest.approx(1.0, rel=0.2)


def test_work_done_while_no_other_waited_is_not_held_against_a_tenant() -> None:
    """Also if its own tasks have ended sometimes in between."""
    harness = Harness()
    worker = harness.worker(slots=2, tenant="*")
    clients = {name: harness.client(name) for name in ("a", "b")}
    clients["b"].submit([0])
    for number in range(30):
        clients["a"].submit(range(number * 20, number * 20 + 20), [b"x"] * 20)
        assert sum(keep_busy(harness, [worker], clients, 20).values()) >= 20, "all are done"
    assert not len(harness.state.ready)
    for name in ("b", "a"):
        clients[name].submit(range(1000, 4000), [b"x"] * 3000)
    done = keep_busy(harness, [worker], clients, 40)
    assert done["a"] / done["b"] == pytest.approx(1.0, rel=0.2)


def test_what_a_tenant_gets_at_workers_of_its_own_is_not_counted() -> None:
    harness = Harness()
    shared, own = harness.worker(slots=2, tenant="*"), harness.worker(slots=2, tenant="a")
    clients = {name: harness.client(name) for name in ("a", "b")}
    for client in clients.values():
        client.submit(range(4000), [b"x"] * 4000)
    done = keep_busy(harness, [shared, own], clients, 60)
    assert done["a"] / done["b"] == pytest.approx(3.0, rel=0.2)


def test_a_tenant_that_waits_for_its_own_workers_keeps_no_other_from_rebalancing() -> None:
    harness = Harness()
    alice, bob = harness.client("a"), harness.client("b")
    alice.submit([0], options=options(gpu=1))
    loaded = harness.worker(tenant="b", queue_size=10)
    bob.submit(range(2))
    assert len(loaded.take_all_tasks()) == 2
    harness.worker(tenant="b")
    harness.wait(1)
    loaded.take(m.BalanceRequest)


def test_a_tenant_that_comes_back_begins_where_the_others_are() -> None:
    shares = TenantShares(limits_of([["a", 2.0, -1, -1, -1]]))
    shares.begin(["a", "b"])
    shares.charge("a", 100.0)
    shares.charge("b", 80.0)
    assert [shares.work_of(each) for each in ("a", "b", "c")] == [50.0, 80.0, 0.0]
    shares.begin(["a", "b", "c"])
    assert shares.work_of("c") == 50.0
    shares.begin(["b"])
    shares.begin(["b", "a"])
    assert shares.work_of("a") == 80.0
    shares.charge("b", 20.0)
    shares.begin([])
    shares.begin(["a", "c"])
    assert [shares.work_of(each) for each in ("a", "c")] == [100.0, 100.0]


class OrderlyWorker:
    """A shared worker that runs one task at a time: the most urgent one, and of these the one that came first."""

    def __init__(self, harness: Harness, clients: Dict[str, Client]) -> None:
        self._harness, self._peer = harness, harness.worker(slots=1, queue_size=1000, tenant="*")
        self._names = {client.session: name for name, client in clients.items()}
        self._waiting: List[Tuple[int, int, str]] = []  # negated priority, instance, and whose it is
        self._running: List[Tuple[int, int, str]] = []

    def run(self) -> str:
        """End a task, after the next one has begun; returns whose it was."""
        self._read()
        if not self._running:
            self._begin()
        (_, instance, name) = self._running.pop()
        if self._waiting:
            self._begin()
        self._harness.now += SHORT_MICROSECONDS / 1e6
        self._peer.finish([instance], busy_microseconds=SHORT_MICROSECONDS)
        return name

    def _begin(self) -> None:
        self._running = [min(self._waiting)]
        self._waiting.remove(self._running[0])

    def _read(self) -> None:
        while self._peer.inbox:
            message, _ = self._peer.inbox.popleft()
            if isinstance(message, m.Task):
                name = self._names[message.client]
                self._waiting += [(-message.options.priority, instance, name) for instance in message.ids]
            elif isinstance(message, m.BalanceRequest):
                self._peer.send(m.BalanceResponse(request_id=message.request_id))


SHORT_MICROSECONDS = 1000


@pytest.mark.parametrize("tasks_of_a", [3, 40, 1000])
def test_a_task_at_a_shared_worker_is_passed_by_little_more_than_what_that_one_prefetches(tasks_of_a: int) -> None:
    """However urgent another tenant's tasks are: the worker runs the most urgent ones first that it has."""
    harness = Harness()
    clients = {name: harness.client(name) for name in ("a", "b")}
    worker = OrderlyWorker(harness, clients)
    for client in clients.values():  # so that it is known how long they take
        client.submit([0])
        worker.run()
    clients["a"].submit(range(1, 1 + tasks_of_a), [b"x"] * tasks_of_a)
    clients["b"].submit(range(1, 6000), [b"x"] * 5999, options=options(priority=100))
    ran = "".join(worker.run() for _ in range(2500))
    assert ran.count("a") == tasks_of_a
    until_last = ran[: ran.rindex("a")]
    prefetched = harness.state.settings.prefetch_seconds * 1e6 / SHORT_MICROSECONDS
    longest = max(map(len, until_last.split("a")))
    assert longest <= 2 * prefetched
    if tasks_of_a == 1000:
        assert until_last.count("b") == pytest.approx(tasks_of_a, rel=0.2), "and both have their share"
