"""The stream as it comes from a socket: late, cut, broken, restarted."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest
import zmq
from feed.played_status import PlayedScheduler, Publisher

from scaler_appliance.feed.status_feed import SILENT_AFTER_SECONDS, SNAPSHOT_INTERVAL_SECONDS, Feed
from scaler_protocol.host.addresses import AddressError

WAIT_SECONDS = 30.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/monitor"


@pytest.fixture
def publisher(address: str) -> Iterator[Publisher]:
    publisher = Publisher(address, PlayedScheduler(workers=2))
    yield publisher
    publisher.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def feed(address: str, clock: Clock) -> Iterator[Feed]:
    feed = Feed(address, clock=clock)
    yield feed
    feed.close()


def receive(feed: Feed, until: str = "something came") -> None:
    assert feed.poll(WAIT_SECONDS), f"nothing came, not even {until}"
    assert feed.receive()


def follow(publisher: Publisher, feed: Feed) -> None:
    """Publish, and have it received, both topics."""
    publisher.publish()
    sequence = publisher.scheduler.sequence
    kept = feed.task_log.kept
    while feed.cluster.scheduler is None or feed._last_sequence != sequence or feed.task_log.kept == kept:
        receive(feed, f"publication {sequence}")


def test_a_feed_that_is_there_first_gets_everything(feed: Feed, publisher: Publisher) -> None:
    assert not feed.is_connected()
    publisher.wait_for_subscriber()
    follow(publisher, feed)
    follow(publisher, feed)
    assert len(feed.cluster.workers) == 2 and feed.task_log.kept > 0
    assert feed.is_connected() and feed.malformed == 0


def test_a_late_feed_waits_for_a_snapshot(feed: Feed, publisher: Publisher) -> None:
    publisher.wait_for_subscriber()
    publisher.scheduler.step()
    publisher.send(publisher.scheduler.step()[0])  # an increment
    receive(feed)
    assert feed.cluster.scheduler is None
    publisher.send(publisher.scheduler.step(snapshot=True)[0])
    receive(feed)
    assert len(feed.cluster.workers) == 2


def test_after_a_gap_it_subscribes_again_and_is_correct(feed: Feed, publisher: Publisher, clock: Clock) -> None:
    publisher.wait_for_subscriber()
    follow(publisher, feed)
    publisher.scheduler.lose_worker()
    publisher.scheduler.step()  # which never arrives
    clock.now += SNAPSHOT_INTERVAL_SECONDS
    publisher.send(publisher.scheduler.step()[0])
    receive(feed)
    assert len(feed.cluster.workers) == 2
    publisher.wait_for_subscriber()
    while len(feed.cluster.workers) == 2:  # a wish may come before its unsubscription is read
        publisher.publish()
        receive(feed)
    assert sorted(feed.cluster.workers) == publisher.scheduler.sessions


def test_a_restarted_scheduler_is_another_one(address: str, feed: Feed) -> None:
    first = Publisher(address, PlayedScheduler(workers=3, seed=1))
    first.wait_for_subscriber()
    follow(first, feed)
    first.close()
    second = Publisher(address, PlayedScheduler(workers=1, seed=2))
    while not second.has_subscriber():  # the socket sends subscriptions to a new publisher only when it is used
        feed.poll(0.01)
        feed.receive()
    while feed.cluster.generation < 2:
        second.publish()
        receive(feed)
    assert sorted(feed.cluster.workers) == second.scheduler.sessions
    second.close()


def test_malformed_messages_are_counted_and_dropped(feed: Feed, address: str) -> None:
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.setsockopt(zmq.LINGER, 0)
        publisher.bind(address)
        assert publisher.poll(30_000)
        for frames in ((b"status", b"no message"), (b"status",), (b"tasks", b"\0" * 64, b"")):
            publisher.send_multipart(frames)
        while feed.malformed < 3:
            receive(feed)
    assert feed.cluster.scheduler is None


def test_silence_shows(feed: Feed, publisher: Publisher, clock: Clock) -> None:
    publisher.wait_for_subscriber()
    follow(publisher, feed)
    clock.now += SILENT_AFTER_SECONDS + 1
    assert not feed.is_connected() and feed.age_seconds() == SILENT_AFTER_SECONDS + 1
    follow(publisher, feed)
    assert feed.is_connected()


def test_an_address_that_is_none() -> None:
    with pytest.raises(AddressError):
        Feed("monitor")
