"""A client with few tasks beside one with many: its wait is bounded by what is queued at the workers already.

A worker is sent some 150 ms of work ahead for each slot. That is what a turn takes, and what a newcomer finds in front
of it; how much work waits at the scheduler makes no difference.
"""

from __future__ import annotations

from array import array
from typing import Any, Callable

import pytest
from keeper import Keeper
from scheduler_harness import Client, Harness, options
from virtual_cluster import VirtualCluster

from scaler_protocol import messages as m

pytestmark = pytest.mark.exhaustive_on_pypy  # decisions in virtual time are the same there

TURN_SECONDS = 0.15
COMES_AT = 0.3  # a second client, in seconds
FEW = 10
FEW_SECONDS = 0.005  # each
SHORT = 0.002
LONG = 0.5
MANY_PER_SLOT = 500
QUEUE_SIZE = 1000


class BusyCluster:
    """A cluster that one client has given so many tasks of the function `f` that the slots work for long.

    Parameters:
        seconds: what each of them takes.
        few_seconds: what the tasks take that another client submits later, which have the last numbers.
        batch: how many of the many are submitted at a time.
    """

    def __init__(
        self,
        seconds: float,
        few_seconds: float,
        slots: int = 1,
        workers: int = 1,
        batch: int = 100,
        newcomers: int = 1,
        **capabilities: float,
    ) -> None:
        many = (MANY_PER_SLOT if seconds == SHORT else 40) * slots * workers
        self.many = range(many)
        self.few = range(many, many + FEW)
        self.cluster = VirtualCluster([seconds] * many + [few_seconds] * FEW)
        for _ in range(workers):
            self.cluster.join(slots, QUEUE_SIZE, **capabilities)
        self.cluster.submit(self.many, batch=batch)
        self.newcomers = [self.cluster.add_client() for _ in range(newcomers)]

    def when_few_come(self, submit: Callable[[], None]) -> float:
        """Run until the few tasks are done; returns how long they took from their submission on."""
        self.cluster.after(COMES_AT, submit)
        return self.cluster.run_until(self.few) - COMES_AT

    def seconds_of_few(self, batch: int = FEW, **fields: Any) -> float:
        """What the few take if a new client submits them."""
        return self.when_few_come(lambda: self.cluster.submit(self.few, self.newcomers[0], batch, **fields))


@pytest.mark.parametrize("batch", [1, FEW], ids=["one by one", "at once"])
@pytest.mark.parametrize("slots, workers", [(1, 1), (4, 1), (2, 3)])
@pytest.mark.parametrize("function", ["f", "g"], ids=["a known function", "a new function"])
def test_few_tasks_are_done_after_few_turns_of_many(function: str, slots: int, workers: int, batch: int) -> None:
    busy = BusyCluster(SHORT, FEW_SECONDS, slots, workers)
    assert busy.seconds_of_few(batch, function_name=function) < 3 * TURN_SECONDS + FEW * FEW_SECONDS


@pytest.mark.parametrize("comes_later_seconds", [0.0, 0.01, 0.04, 0.06])
@pytest.mark.parametrize("seconds", [SHORT, 0.02, 0.1])
@pytest.mark.parametrize("is_known", [True, False], ids=["a known function", "a new function"])
def test_a_small_job_waits_for_a_task_and_a_tenth_of_a_second(
    is_known: bool, seconds: float, comes_later_seconds: float
) -> None:
    """However much another client has submitted, and at whatever moment; the functions are Python's, without names."""
    slots, many = 2, int(4.0 / seconds)
    cluster = VirtualCluster([seconds] * many + [FEW_SECONDS] * slots)
    cluster.join(slots, QUEUE_SIZE)
    newcomer, few = cluster.add_client(), range(many, many + slots)
    function, other = cluster.client.create(1, b"f"), newcomer.create(1, b"f" if is_known else b"g")
    cluster.submit(range(many), function=function, function_name="")
    comes_at = COMES_AT + comes_later_seconds
    cluster.after(comes_at, lambda: cluster.submit(few, newcomer, function=other, function_name=""))
    assert cluster.run_until(few) - comes_at <= FEW_SECONDS + seconds + 0.1


def test_few_long_tasks_get_a_slot_although_others_are_short() -> None:
    """A worker that holds other work has no credit for tasks as long as these, and works off what it holds first."""
    busy = BusyCluster(SHORT, LONG, slots=2)
    measured, others = busy.few[:2], busy.few[2:4]
    busy.cluster.submit(measured, busy.newcomers[0], function_name="long")
    comes_at = 0.8
    busy.cluster.after(comes_at, lambda: busy.cluster.submit(others, busy.newcomers[0], function_name="long"))
    busy.cluster.submit(busy.few[4:])
    busy.cluster.run()
    ends = [busy.cluster.finished[number] for number in others]
    assert max(ends) < comes_at + 2 * TURN_SECONDS + LONG
    assert max(busy.cluster.finished[number] for number in busy.many) > max(ends), "there was other work all the time"


def test_turns_go_by_class_as_well() -> None:
    """Tasks that need nothing and tasks with a requirement, which this worker meets."""
    busy = BusyCluster(SHORT, FEW_SECONDS, disk=0)
    demanding = options(disk=0)
    assert busy.seconds_of_few(1, function_name="g", options=demanding) < 3 * TURN_SECONDS + FEW * FEW_SECONDS


def test_more_urgent_tasks_wait_for_what_is_queued_at_the_worker_alone() -> None:
    busy = BusyCluster(SHORT, FEW_SECONDS)
    urgent = options(priority=1)
    assert busy.seconds_of_few(1, function_name="g", options=urgent) < 2 * TURN_SECONDS + FEW * FEW_SECONDS


def test_nodes_of_a_graph_take_their_turn() -> None:
    busy = BusyCluster(SHORT, FEW_SECONDS)
    seconds = busy.when_few_come(lambda: submit_graph(busy.newcomers[0], busy.few))
    assert seconds < 3 * TURN_SECONDS + FEW * FEW_SECONDS


def submit_graph(client: Client, numbers: range) -> None:
    """A graph of nodes that do not depend on each other."""
    payloads = [b"%d" % number for number in numbers]
    graph = m.GraphTask(
        ids=array("Q", numbers),
        functions=array("Q", [client.create(1, b"")] * len(numbers)),
        payload_sizes=array("I", map(len, payloads)),
        targets=array("I", range(len(numbers))),
    )
    client.send(graph, b"".join(payloads))


@pytest.mark.parametrize("batch", [1, 100], ids=["one by one", "at once"])
def test_long_tasks_of_two_clients_alternate(batch: int) -> None:
    busy = BusyCluster(LONG, LONG, batch=batch)
    busy.seconds_of_few(batch)
    busy.cluster.run()
    starts = busy.cluster.starts
    first = min(map(starts.index, busy.few))
    assert [number in busy.few for number in starts[first : first + 2 * FEW]] == [True, False] * FEW


def test_each_of_several_clients_has_its_turn() -> None:
    busy = BusyCluster(SHORT, FEW_SECONDS, slots=4, newcomers=FEW)

    def submit_one_each() -> None:
        for number, newcomer in zip(busy.few, busy.newcomers):
            busy.cluster.submit(range(number, number + 1), newcomer, function_name="g")

    assert busy.when_few_come(submit_one_each) < 3 * TURN_SECONDS


def test_a_client_that_cancels_and_submits_again_waits_behind_those_who_wait(harness: Harness) -> None:
    worker = harness.worker(slots=1, queue_size=1)
    first, second, newcomer = [harness.client() for _ in range(3)]

    def next_served() -> int:
        instances = worker.take_tasks()
        client: int = worker.task.client
        worker.finish(instances)
        return client

    first.submit([1, 2, 3])
    second.submit([1, 2, 3])
    assert [next_served(), next_served()] == [first.session, second.session]
    newcomer.submit([1])
    newcomer.cancel(1)  # it would have been next
    newcomer.submit([2])
    served = [next_served() for _ in range(5)]
    assert served[-1] == newcomer.session, "both others had a turn before"


def test_a_client_that_cancels_what_is_left_after_its_turn_waits_behind_others(harness: Harness) -> None:
    """When one of its tasks runs, it cancels the other and submits two: after the turn as it came, and after others."""
    worker = harness.worker(slots=1, queue_size=1)
    first, second, third = [harness.client() for _ in range(3)]
    submitted = 2  # by the third

    def next_served() -> int:
        nonlocal submitted
        instances = worker.take_tasks()
        client: int = worker.task.client
        if client == third.session:
            third.cancel(submitted)
            third.submit([submitted + 1, submitted + 2])
            submitted += 2
        worker.finish(instances, busy_microseconds=100_000)  # which is a turn
        return client

    first.submit([1])
    next_served()  # the function is measured
    for client in (first, second):
        client.submit(range(2, 20), [b"x"] * 18)
    third.submit([1, 2])
    served = [next_served() for _ in range(8)]
    turns = [third.session, first.session, second.session]
    assert served == [first.session, second.session, *turns, *turns], "the second client came before the third"


def test_a_client_keeps_its_turn_while_workers_are_looked_for_that_keep_what_tasks_need(harness: Harness) -> None:
    first, second = harness.client(), harness.client()
    keeper = Keeper(harness, slots=1, queue_size=1)
    first.submit([1], [b"1"])
    keeper.read()
    keeper.keep(1)  # so the bytes that tasks need are looked at
    keeper.serve()
    assert harness.state.objects.has_kept
    first.submit([2], [b"2"])  # and it is not free
    for client in (first, second):
        needed = client.create(1, b"small")
        for number in (3, 4):
            client.submit([number], dependency_counts=[1], dependencies=[needed])
    first.cancel(4)
    worker = harness.worker(slots=1, queue_size=1)
    worker.take(m.ObjectInstruction)
    assert worker.take_tasks() and worker.task.client == first.session
