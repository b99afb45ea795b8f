"""Monitors that prove to own keys (CURVE): libzmq's, and some that lie."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List

import pytest
import zmq
import zmq.utils.z85 as z85
from shell.publishing.publisher_bench import PublisherBench

from scaler_appliance.shell.admission import Admission
from scaler_appliance.shell.publishing.subscriptions import STATUS, Interest
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.allow_list import Grant, usual_tenant
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.wire.curve import KeyPair
from scaler_protocol.wire.zmtp import greeting

LARGE_BYTES = 8 << 20  # more than twice what sockets and libzmq hold

sodium = load_sodium()
CLIENT, MONITOR, ANOTHER = (sodium.new_keys() for _ in range(3))


class KeyedBench(PublisherBench):
    """A publisher that admits monitors by their keys."""

    def __init__(self, folder: Path, address: str = "tcp://127.0.0.1:0", **options: int) -> None:
        self.directory = KeyDirectory(str(folder / "keys"))
        self.directory.open_or_create(sodium)
        for name, keys, role in (("one", MONITOR, "monitor"), ("another", ANOTHER, "admin"), ("it", CLIENT, "client")):
            self.directory.add(Grant(role, usual_tenant(role), name), keys.public)
        self.server_key = self.directory.server_key_pairs()[0].public
        self.admission = Admission(self.directory, sodium)
        super().__init__(address, admission=self.admission, **options)

    def revoke(self, name: str) -> None:
        self.directory.revoke(name)
        assert self.admission.reload()

    def keyed_socket(self, keys: KeyPair, server_key: bytes = b"", **options: int) -> zmq.Socket[bytes]:
        """A subscriber of libzmq's to the status."""
        made = self._context.socket(zmq.SUB)
        for name, value in {"LINGER": 0, **options}.items():
            made.setsockopt(getattr(zmq, name), value)
        made.curve_publickey, made.curve_secretkey = z85.encode(keys.public), z85.encode(keys.secret)
        made.curve_serverkey = z85.encode(server_key or self.server_key)
        made.subscribe(STATUS)
        made.connect(self.publisher.address)
        return made

    @contextmanager
    def keyed(self, keys: KeyPair, server_key: bytes = b"") -> Iterator[zmq.Socket[bytes]]:
        with self.keyed_socket(keys, server_key) as made:
            yield made


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KeyedBench]:
    made = KeyedBench(tmp_path)
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
    bench.revoke("another")
    with bench.keyed(ANOTHER), bench.keyed(MONITOR, server_key=ANOTHER.public), bench.keyed(CLIENT):
        plain = bench.by_hand()
        plain.protocol.subscribe(STATUS)
        with caplog.at_level(logging.INFO, "scaler"), bench.keyed(MONITOR) as subscriber:
            texts = (
                "does not admit this key",
                "expects another key",
                "this end requires keys",
                "role client cannot be used by a monitor",
            )
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
        bench.revoke("another")
        bench.publisher.review()
        assert count_of(bench) == 1 and "its key was revoked" in caplog.text
        bench.publisher.publish(STATUS, b"not for all")
        assert bench.receive(one) == [STATUS, b"not for all"]
        assert not other.poll(0)


def count_of(bench: PublisherBench) -> int:
    """The number of subscribers."""
    return sum(bool(each.topics) for each in bench.publisher._subscriptions._subscribers.values())


def test_copies_that_are_sealed_for_monitors_that_do_not_read_are_bounded_in_sum(tmp_path: Path) -> None:
    limit_bytes = 3 * LARGE_BYTES
    bench = KeyedBench(tmp_path, maximum_waiting_bytes=limit_bytes)
    sockets: List[zmq.Socket[bytes]] = []
    try:
        for _ in range(6):
            sockets.append(bench.keyed_socket(MONITOR, RCVHWM=1, RCVBUF=1 << 14))
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


CALLER_OF_ANOTHER_USER = """
import os, socket, sys
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as stream:
    stream.settimeout(30.0)
    stream.connect(bytes(1) + sys.argv[1].encode())
    stream.sendall(bytes.fromhex(sys.argv[2]))
    while data := stream.recv(1000):
        print(data)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_needs_a_key_at_an_address_without_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"scaler-test-{os.getpid()}"
    bench = KeyedBench(tmp_path, f"ipc://@{name}")
    command = [sys.executable, "-c", CALLER_OF_ANOTHER_USER, name, greeting(b"NULL").hex()]
    try:
        with subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE, text=True) as caller:
            bench.serve_until(lambda: caller.poll() is not None, "the end of its connection")
            assert caller.stdout is not None
            said = caller.stdout.read()
        assert "CURVE" in said and "keys are required" in said and "READY" not in said
    finally:
        bench.close()


def test_a_monitor_of_a_tenant_gets_what_is_published_for_its_tenant_only(bench: KeyedBench) -> None:
    own = sodium.new_keys()
    bench.directory.add(Grant("monitor", "research", "theirs"), own.public)
    assert bench.admission.reload()
    with bench.keyed(own) as theirs, bench.keyed(MONITOR) as everything:
        wanted = {"research", "*"}
        bench.interest_of(lambda interest: set(bench.publisher.views(STATUS)) == wanted)
        for view, content in (("*", b"all of it"), ("other", b"of others"), ("research", b"for research")):
            bench.publisher.publish(STATUS, content, view)
        for subscriber, content in ((theirs, b"for research"), (everything, b"all of it")):
            assert bench.receive(subscriber) == [STATUS, content]
