"""Slots of workers that offer what a task does not need are left to others, as long as enough slots are free."""

from __future__ import annotations

from typing import Any, List

import pytest
from scheduler_harness import Client, Harness, Worker, options

WITH_GPU: Any = {"options": options(gpu=1.0)}


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def counts(*workers: Worker) -> List[int]:
    """How many tasks each has got since last asked."""
    return [len(worker.take_all_tasks()) for worker in workers]


@pytest.mark.parametrize("is_gpu_first", [True, False])
def test_a_task_goes_to_a_plain_worker_in_either_order(harness: Harness, client: Client, is_gpu_first: bool) -> None:
    offers: List[Any] = [{"gpu": 1.0}, {}] if is_gpu_first else [{}, {"gpu": 1.0}]
    workers = [harness.worker(**each) for each in offers]
    client.submit([1])
    assert counts(*workers) == [0 if each else 1 for each in offers]
    client.submit([2], **WITH_GPU)
    assert counts(*workers) == [1 if each else 0 for each in offers]


def test_the_slots_with_least_to_spare_are_taken_first(harness: Harness, client: Client) -> None:
    rich, gpu, plain = harness.worker(2, gpu=1.0, disk=1.0), harness.worker(2, gpu=1.0), harness.worker(2)
    client.submit(range(3))
    assert counts(rich, gpu, plain) == [0, 1, 2]
    client.submit([4], **WITH_GPU)
    assert counts(rich, gpu, plain) == [0, 1, 0]


def test_a_free_slot_is_used_all_the_same(harness: Harness, client: Client) -> None:
    gpu, plain = harness.worker(2, gpu=1.0), harness.worker(2)
    client.submit(range(4))
    assert counts(gpu, plain) == [2, 2]


def test_of_more_tasks_than_slots_each_worker_gets_its_share(harness: Harness, client: Client) -> None:
    gpu, plain = harness.worker(gpu=1.0), harness.worker()
    client.submit([0])
    plain.finish(plain.take_tasks(), busy_microseconds=10)
    client.take_results()
    client.submit(range(1, 1001))
    assert counts(gpu, plain) == [500, 500]


def test_what_all_offer_makes_no_difference(harness: Harness, client: Client) -> None:
    first, second = harness.worker(memory=64.0), harness.worker(memory=8.0)
    client.submit([1])
    assert counts(first, second) == [1, 0], "the one that has waited longest"


def test_once_workers_with_other_offers_are_gone_the_order_is_as_before(harness: Harness, client: Client) -> None:
    gpu, plain = harness.worker(gpu=1.0), harness.worker()
    other = harness.worker(gpu=1.0)
    plain.vanish()
    harness.state.check_invariants()
    client.submit([1])
    assert counts(gpu, other) == [1, 0]
