"""Outcomes are cut into messages that the scheduler takes."""

from __future__ import annotations

from array import array
from typing import Any

from scaler.worker.agent.core.result_messages import ENTRY_BYTES, ResultMessages


def filled(outbox: ResultMessages, first: int, count: int, size: int, **columns: Any) -> None:
    ids, sizes = array("Q", range(first, first + count)), array("I", [size]) * count
    outbox.add("json", ids, sizes, bytes(size * count), **columns)


def test_outcomes_that_fit_share_a_message() -> None:
    outbox = ResultMessages()
    outbox.keep_to(1 << 20)
    filled(outbox, 0, 10, 100)
    filled(outbox, 10, 10, 100)

    ((message, payload),) = outbox.drain()
    assert list(message.ids) == list(range(20))
    assert len(payload) == 2000


def test_no_message_is_larger_than_half_of_what_the_scheduler_takes() -> None:
    outbox = ResultMessages()
    outbox.keep_to(100_000)
    profiles = (array("Q", range(50)), array("Q", range(50)), array("Q", range(50)))
    objects = array("Q", range(50))
    filled(outbox, 0, 50, 4000, statuses=bytes([1, 0] * 25), objects=objects, busy_microseconds=500, profiles=profiles)

    messages = outbox.drain()
    assert [id_ for message, _ in messages for id_ in message.ids] == list(range(50))
    assert [id_ for message, _ in messages for id_ in message.objects] == list(range(50))
    assert [each for message, _ in messages for each in message.cpu_microseconds] == list(range(50))
    assert b"".join(message.statuses for message, _ in messages) == bytes([1, 0] * 25)
    assert all(sum(message.payload_sizes) == len(payload) for message, payload in messages)
    assert all(len(payload) + ENTRY_BYTES * len(message.ids) <= 50_000 for message, payload in messages)


def test_many_small_additions_are_cut_too() -> None:
    outbox = ResultMessages()
    outbox.keep_to(10_000)
    for instance in range(100):
        filled(outbox, instance, 1, 1000)

    messages = outbox.drain()
    assert [id_ for message, _ in messages for id_ in message.ids] == list(range(100))
    assert max(len(payload) for _, payload in messages) <= 5_000


def test_one_large_outcome_goes_alone() -> None:
    outbox = ResultMessages()
    outbox.keep_to(10_000)
    filled(outbox, 1, 1, 10)
    filled(outbox, 2, 1, 20_000)
    filled(outbox, 3, 1, 10)

    assert [list(message.ids) for message, _ in outbox.drain()] == [[1], [2], [3]]
