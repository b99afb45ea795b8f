"""A publisher, and monitors of it over real sockets: libzmq's, and some written by hand."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List

import zmq
from subscriber_protocol import SubscriberProtocol

from scaler_appliance.shell.allowances import Allowances
from scaler_appliance.shell.publishing.status_publisher import StatusPublisher
from scaler_appliance.shell.publishing.subscriptions import Interest
from scaler_protocol.host.addresses import parse_address, resolve

DEADLINE_SECONDS = 30.0
WAIT_MILLISECONDS = 10


class HandWrittenMonitor:
    """A subscriber on a bare socket, which can be rude."""

    def __init__(self, address: str, minor_version: int = 1, socket_type: bytes = b"SUB") -> None:
        family, target = resolve(parse_address(address))
        self.stream = socket.socket(family, socket.SOCK_STREAM)
        self.stream.connect(target)
        self.stream.setblocking(False)
        self.protocol = SubscriberProtocol(minor_version, socket_type)
        self.has_ended = False
        self._unsent = bytearray()

    def step(self) -> None:
        """Send and receive."""
        self._unsent += self.protocol.take_output()
        try:
            if self._unsent:
                del self._unsent[: self.stream.send(self._unsent)]
            data = self.stream.recv(1 << 20)
            self.protocol.feed(data)
            self.has_ended = not data
        except BlockingIOError:
            pass
        except ConnectionError:
            self.has_ended = True


class PublisherBench:
    """
    Parameters:
        address, options: of the publisher.
    """

    def __init__(self, address: str, **options: Any) -> None:
        self.publisher = StatusPublisher(address, **options)
        self.allowances = Allowances()
        self._context = zmq.Context()
        self._by_hand: List[HandWrittenMonitor] = []

    def serve(self) -> None:
        """One round, with what the owner does."""
        now = time.monotonic()
        self.publisher.serve(now, self.allowances)
        self.publisher.sweep(now)
        for monitor in self._by_hand:
            if not monitor.has_ended:
                monitor.step()

    def serve_until(self, is_true: Callable[[], object], what: str) -> None:
        """Rounds, as long as it takes."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_true():
            assert time.monotonic() < deadline, f"timed out waiting for {what}"
            self.serve()

    def interest_of(self, is_right: Callable[[Interest], object]) -> Interest:
        """What monitors want, as soon as it is what the test waits for."""
        interests: List[Interest] = []

        def is_there() -> bool:
            interests.append(self.publisher.interest())
            return bool(is_right(interests[-1]))

        self.serve_until(is_there, "monitors to be heard")
        return interests[-1]

    @contextmanager
    def socket(self, kind: int = zmq.SUB, **options: int) -> Iterator[zmq.Socket[bytes]]:
        """A socket of libzmq that connects."""
        with self._context.socket(kind) as made:
            made.setsockopt(zmq.LINGER, 0)
            for name, value in options.items():
                made.setsockopt(getattr(zmq, name), value)
            made.connect(self.publisher.address)
            yield made

    def receive(self, subscriber: zmq.Socket[bytes]) -> List[bytes]:
        """The next message of a subscriber."""
        self.serve_until(lambda: subscriber.poll(WAIT_MILLISECONDS), "a publication")
        return subscriber.recv_multipart()

    def by_hand(self, minor_version: int = 1, socket_type: bytes = b"SUB") -> HandWrittenMonitor:
        """A monitor that is not libzmq's."""
        monitor = HandWrittenMonitor(self.publisher.address, minor_version, socket_type)
        self._by_hand.append(monitor)
        return monitor

    def close(self) -> None:
        for monitor in self._by_hand:
            monitor.stream.close()
        self.publisher.close()
        self._context.term()
