"""Who gets which publication, and what is dropped of them: the core of the publisher."""

from __future__ import annotations

import random
from typing import Dict, List

import pytest

from scaler_appliance.shell.publishing.subscriptions import RUNS, STATUS, WAITING_MESSAGES, Interest, Subscriptions

LIMIT_BYTES = 10_000
FIRST, SECOND, THIRD = b"first", b"second", b"third"


def subscriptions_of(*names: bytes, topic: bytes = STATUS, limit_bytes: int = LIMIT_BYTES) -> Subscriptions:
    """Subscribers to a topic."""
    subscriptions = Subscriptions(limit_bytes)
    for name in names:
        subscriptions.add(name)
        subscriptions.on_message(name, [b"\1" + topic])
    return subscriptions


def headers_of(subscriptions: Subscriptions, name: bytes) -> List[bytes]:
    """All that waits for a subscriber, which reads it now."""
    headers: List[bytes] = []
    while True:
        frames = subscriptions.next(name)
        if frames is None:
            return headers
        headers.append(frames[1])


@pytest.mark.parametrize(
    ("topic", "has_status", "has_runs"),
    [
        (b"", True, True),
        (b"status", True, False),
        (b"stat", True, False),
        (b"t", False, True),
        (b"status!", False, False),
        (b"other", False, False),
    ],
)
def test_a_subscription_is_a_prefix_of_topics(topic: bytes, has_status: bool, has_runs: bool) -> None:
    subscriptions = subscriptions_of(FIRST, topic=topic)
    assert subscriptions.interest() == Interest(has_status, has_runs, is_new=has_status)
    assert subscriptions.publish(STATUS, b"1") == [FIRST] * has_status
    assert subscriptions.publish(RUNS, b"2") == [FIRST] * has_runs
    assert headers_of(subscriptions, FIRST) == [b"1"] * has_status + [b"2"] * has_runs


def test_every_new_subscription_to_the_status_is_reported_once() -> None:
    subscriptions = subscriptions_of(FIRST, SECOND, topic=RUNS)
    assert subscriptions.interest() == Interest(False, True, False)
    for name in (FIRST, SECOND, FIRST):
        subscriptions.on_message(name, [b"\1" + STATUS])
        assert subscriptions.interest() == Interest(True, True, True)
        assert subscriptions.interest() == Interest(True, True, False)
    subscriptions.on_message(FIRST, [b"\0" + STATUS])
    assert subscriptions.interest().has_status, "the second is there still"
    subscriptions.remove(SECOND)
    assert subscriptions.interest() == Interest(False, True, False)


def test_two_subscriptions_that_match_bring_a_message_once_until_both_are_cancelled() -> None:
    subscriptions = subscriptions_of(FIRST)
    subscriptions.on_message(FIRST, [b"\1sta"])
    assert subscriptions.publish(STATUS, b"1") == [FIRST]
    assert headers_of(subscriptions, FIRST) == [b"1"]
    subscriptions.on_message(FIRST, [b"\0status"])
    assert subscriptions.publish(STATUS, b"2") == [FIRST]
    subscriptions.on_message(FIRST, [b"\0sta"])
    assert subscriptions.publish(STATUS, b"3") == []


@pytest.mark.parametrize("frames", [[b""], [b"\2status"], [b"status"], [b"\1status", b""], [b"\1other"], [b"\0status"]])
def test_what_is_no_subscription_is_ignored(frames: List[bytes]) -> None:
    subscriptions = Subscriptions(LIMIT_BYTES)
    subscriptions.add(FIRST)
    subscriptions.on_message(FIRST, frames)
    assert subscriptions.interest() == Interest(False, False, False)
    assert subscriptions.publish(STATUS, b"") == []


def test_a_subscriber_that_does_not_read_misses_the_oldest_messages_and_others_miss_none() -> None:
    subscriptions = subscriptions_of(FIRST, SECOND)
    read = []
    for number in range(WAITING_MESSAGES + 5):
        subscriptions.publish(STATUS, b"%d" % number)
        read += headers_of(subscriptions, SECOND)
    every = [b"%d" % number for number in range(WAITING_MESSAGES + 5)]
    assert read == every
    assert headers_of(subscriptions, FIRST) == every[5:]
    assert subscriptions.held_bytes == 0


def test_a_message_on_its_way_is_not_dropped() -> None:
    subscriptions = subscriptions_of(FIRST)
    subscriptions.publish(STATUS, b"on its way")
    assert subscriptions.next(FIRST) == (STATUS, b"on its way")
    for number in range(2 * WAITING_MESSAGES):
        subscriptions.publish(STATUS, b"%d" % number)
    assert subscriptions.size_on_its_way(FIRST) == len(STATUS + b"on its way")
    assert headers_of(subscriptions, FIRST) == [
        b"%d" % number for number in range(WAITING_MESSAGES, 2 * WAITING_MESSAGES)
    ]


def test_a_message_counts_once_however_many_wait_for_it() -> None:
    names = [b"%d" % number for number in range(50)]
    subscriptions = subscriptions_of(*names)
    header = bytes(LIMIT_BYTES // 2)
    subscriptions.publish(STATUS, header)
    assert subscriptions.held_bytes == len(STATUS + header)
    taken = [subscriptions.next(name) for name in names]
    assert all(frames is not None and frames[1] is header for frames in taken), "it was never copied"
    assert subscriptions.held_bytes == len(STATUS + header)
    for name in names:
        assert subscriptions.held_bytes == len(STATUS + header)
        assert subscriptions.next(name) is None
    assert subscriptions.held_bytes == 0


def test_the_oldest_messages_are_dropped_when_all_together_are_too_many_bytes() -> None:
    subscriptions = subscriptions_of(FIRST, SECOND)
    for number in range(10):
        subscriptions.publish(STATUS, b"%d" % number + bytes(LIMIT_BYTES // 4))
        assert subscriptions.held_bytes <= LIMIT_BYTES
    assert subscriptions.to_disconnect() is None
    for name in (FIRST, SECOND):
        assert [header[:1] for header in headers_of(subscriptions, name)] == [b"7", b"8", b"9"]


def test_a_lone_message_may_be_larger_than_all_that_may_wait() -> None:
    subscriptions = subscriptions_of(FIRST, SECOND)
    subscriptions.publish(STATUS, b"small")
    subscriptions.publish(STATUS, bytes(2 * LIMIT_BYTES))
    assert subscriptions.to_disconnect() is None
    assert subscriptions.next(FIRST) == subscriptions.next(SECOND) == (STATUS, bytes(2 * LIMIT_BYTES))
    assert subscriptions.to_disconnect() is None


def test_who_has_had_a_message_on_its_way_for_longest_is_disconnected_if_nothing_can_be_dropped() -> None:
    subscriptions = subscriptions_of(FIRST, SECOND, THIRD)
    for name in (SECOND, FIRST):
        subscriptions.publish(STATUS, name + bytes(LIMIT_BYTES // 2))
        headers_of(subscriptions, THIRD)
        subscriptions.next(name)
    assert subscriptions.to_disconnect() == SECOND
    subscriptions.remove(SECOND)
    assert subscriptions.to_disconnect() is None and 0 < subscriptions.held_bytes <= LIMIT_BYTES


def test_copies_that_are_sealed_for_one_subscriber_count_each() -> None:
    subscriptions = subscriptions_of(FIRST, SECOND, THIRD)
    header = bytes(LIMIT_BYTES * 3 // 10)
    subscriptions.publish(STATUS, header)
    for name in (FIRST, SECOND, THIRD):
        subscriptions.next(name)
        subscriptions.copied(name, len(header))
    assert subscriptions.held_bytes > LIMIT_BYTES
    disconnected = subscriptions.to_disconnect()
    assert disconnected is not None
    subscriptions.remove(disconnected)
    assert subscriptions.held_bytes <= LIMIT_BYTES and subscriptions.to_disconnect() is None
    for name in {FIRST, SECOND, THIRD} - {disconnected}:
        subscriptions.copied(name, 100)
        subscriptions.copied(name, 0)
        subscriptions.next(name)
    assert subscriptions.held_bytes == 0


@pytest.mark.parametrize("seed", range(30))
def test_bounds_and_order_hold_whatever_happens(seed: int) -> None:
    """Each subscriber gets messages in order, each at most once, and what is held is counted."""
    random_ = random.Random(seed)
    subscriptions = Subscriptions(LIMIT_BYTES)
    last: Dict[bytes, int] = {}
    for number in range(1, 400):
        action = random_.random()
        if action < 0.1 and len(last) < 8:
            name = b"%d" % number
            subscriptions.add(name)
            subscriptions.on_message(name, [b"\1" + random_.choice((b"", STATUS, RUNS))])
            last[name] = 0
        elif action < 0.15 and last:
            name = random_.choice(list(last))
            subscriptions.remove(name)
            del last[name]
        elif action < 0.5:
            header = number.to_bytes(4, "big") + bytes(random_.choice((10, 1000, LIMIT_BYTES // 3, LIMIT_BYTES)))
            subscriptions.publish(random_.choice((STATUS, RUNS)), header)
        elif last:
            name = random_.choice(list(last))
            frames = subscriptions.next(name)
            if frames is not None:
                sent = int.from_bytes(frames[1][:4], "big")
                assert sent > last[name], "out of order, or twice"
                last[name] = sent
        while True:
            lost = subscriptions.to_disconnect()
            if lost is None:
                break
            subscriptions.remove(lost)
            del last[lost]
        newest = max((each.size_bytes for each in subscriptions._publications), default=0)
        assert subscriptions.held_bytes <= max(LIMIT_BYTES, newest)
        assert subscriptions.held_bytes == sum(each.size_bytes for each in subscriptions._publications)
        assert all(len(each.waiting) <= WAITING_MESSAGES for each in subscriptions._subscribers.values())
    for name in list(last):
        subscriptions.remove(name)
    assert subscriptions.held_bytes == 0 and not subscriptions._publications
