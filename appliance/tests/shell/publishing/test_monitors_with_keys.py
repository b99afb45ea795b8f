"""Monitors that prove to own keys (CURVE): libzmq's, and some that lie."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import Iterator, List, Optional, Set

import pytest
import zmq
import zmq.utils.z85 as z85
from shell.publishing.publisher_bench import PublisherBench

from scaler_appliance.shell.publishing.status_publisher import MAXIMUM_MESSAGE_BYTES
from scaler_appliance.shell.publishing.subscriptions import STATUS, Interest
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.wire.curve import KeyPair
from scaler_protocol.wire.secure_zmtp import SecureZmtp, ServerSecurity

LARGE_BYTES = 4 << 20  # more than sockets and libzmq hold

sodium = load_sodium()
SERVER, MONITOR, ANOTHER = (sodium.new_keys() for _ in range(3))


class KeyedBench(PublisherBench):
    """A publisher that admits monitors by their keys."""

    def __init__(self, **options: int) -> None:
        self.admitted: Set[bytes] = {MONITOR.public, ANOTHER.public}
        security = ServerSecurity(sodium, [SERVER], self._admit)
        super().__init__(
            "tcp://127.0.0.1:0",
            new_protocol=lambda: SecureZmtp(security, "XPUB", MAXIMUM_MESSAGE_BYTES),
            **options,
        )

    def _admit(self, key: bytes) -> Optional[str]:
        return None if key in self.admitted else "unknown key"

    def keyed_socket(self, keys: KeyPair, server_key: bytes = SERVER.public, **options: int) -> zmq.Socket[bytes]:
        """A subscriber of libzmq's to the status."""
        made = self._context.socket(zmq.SUB)
        for name, value in {"LINGER": 0, **options}.items():
            made.setsockopt(getattr(zmq, name), value)
        made.curve_publickey, made.curve_secretkey = z85.encode(keys.public), z85.encode(keys.secret)
        made.curve_serverkey = z85.encode(server_key)
        made.subscribe(STATUS)
        made.connect(self.publisher.address)
        return made

    @contextmanager
    def keyed(self, keys: KeyPair, server_key: bytes = SERVER.public) -> Iterator[zmq.Socket[bytes]]:
        with self.keyed_socket(keys, server_key) as made:
            yield made


@pytest.fixture
def bench() -> Iterator[KeyedBench]:
    made = KeyedBench()
    yield made
    made.close()


def test_a_monitor_with_a_key_gets_what_is_published(bench: KeyedBench) -> None:
    with bench.keyed(MONITOR) as subscriber:
        assert bench.interest_of(lambda interest: interest.has_status) == Interest(True, False, True)
        for header in (b"small", os.urandom(LARGE_BYTES), b"small again"):
            bench.publisher.publish(STATUS, header)
            assert bench.receive(subscriber) == [STATUS, header]
        subscriber.unsubscribe(STATUS)
        bench.interest_of(lambda interest: not interest.has_status)


def test_monitors_without_the_right_keys_get_nothing(bench: KeyedBench, caplog: pytest.LogCaptureFixture) -> None:
    bench.admitted.discard(ANOTHER.public)
    with bench.keyed(ANOTHER), bench.keyed(MONITOR, server_key=ANOTHER.public):
        plain = bench.by_hand()
        plain.protocol.subscribe(STATUS)
        with caplog.at_level(logging.INFO, "scaler"), bench.keyed(MONITOR) as subscriber:
            texts = ("unknown key", "expects another key", "this end requires keys")
            bench.serve_until(lambda: all(text in caplog.text for text in texts), "all to be turned away")
            bench.interest_of(lambda interest: interest.has_status)
            bench.publisher.publish(STATUS, b"secret")
            assert bench.receive(subscriber) == [STATUS, b"secret"]
            assert count_of(bench) == 1
            assert plain.has_ended and not plain.protocol.messages


def test_a_monitor_whose_key_is_revoked_is_disconnected_at_once(
    bench: KeyedBench, caplog: pytest.LogCaptureFixture
) -> None:
    with bench.keyed(MONITOR) as one, bench.keyed(ANOTHER) as other:
        bench.serve_until(lambda: count_of(bench) == 2, "both")
        bench.admitted.discard(ANOTHER.public)
        bench.publisher.disconnect(lambda key: key not in bench.admitted)
        assert count_of(bench) == 1 and "its key is no longer valid" in caplog.text
        bench.publisher.publish(STATUS, b"not for all")
        assert bench.receive(one) == [STATUS, b"not for all"]
        assert not other.poll(0)


def count_of(bench: PublisherBench) -> int:
    """The number of subscribers."""
    return sum(bool(each.topics) for each in bench.publisher._subscriptions._subscribers.values())


def test_copies_that_are_sealed_for_monitors_that_do_not_read_are_bounded_in_sum() -> None:
    limit_bytes = 3 * LARGE_BYTES
    bench = KeyedBench(maximum_waiting_bytes=limit_bytes)
    sockets: List[zmq.Socket[bytes]] = []
    try:
        for _ in range(6):
            sockets.append(bench.keyed_socket(MONITOR, RCVHWM=1))
        bench.serve_until(lambda: count_of(bench) == 6, "all")
        most = most_copied = 0
        for _ in range(12):
            bench.publisher.publish(STATUS, os.urandom(LARGE_BYTES))
            for _ in range(5):
                bench.serve()
                subscriptions = bench.publisher._subscriptions
                most = max(most, subscriptions.held_bytes)
                shared = sum(each.size_bytes for each in subscriptions._publications)
                most_copied = max(most_copied, subscriptions.held_bytes - shared)
                assert most <= limit_bytes + LARGE_BYTES, "a lone message, and a copy of it"
        assert most > LARGE_BYTES and most_copied > LARGE_BYTES // 2
    finally:
        for subscriber in sockets:
            subscriber.close(0)
        bench.close()
