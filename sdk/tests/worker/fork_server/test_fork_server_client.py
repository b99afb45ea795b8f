"""The agent's end of the control socket, without a fork server."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from scaler.worker.fork_server.fork_server_client import ORDER, ForkServerClient, OrderKind


@pytest.mark.parametrize("has_reported", [False, True])
def test_orders_to_a_fork_server_that_was_killed_go_nowhere_and_its_end_is_seen(has_reported: bool) -> None:
    agent_end, server_end = socket.socketpair()
    processor_end, other_end = socket.socketpair()
    fork_server = ForkServerClient(agent_end)
    if has_reported:
        server_end.sendall(b"the beginning of a report")
    server_end.close()
    fork_server.spawn(1, "a processor", processor_end)
    fork_server.kill(1)
    fork_server.stop(1)
    fork_server.import_module("scaler.client")
    fork_server.remove_at_end("/nowhere/*")
    while fork_server.reports() == []:
        pass
    assert fork_server.reports() is None
    fork_server.close()
    processor_end.close()
    other_end.close()


class RefusingSocket:
    """A socket that sends a few bytes of an order, and then refuses as often as it is told."""

    def __init__(self, stream: socket.socket, refusals: int) -> None:
        self._stream = stream
        self._refusals = refusals
        self._sent = 0

    def send(self, data: bytes) -> int:
        if self._sent == 3 and self._refusals:
            self._refusals -= 1
            raise OSError(errno.ENOBUFS, "no buffers")
        sent = self._stream.send(data[:3] if self._sent < 3 else data)
        self._sent += sent
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def test_an_order_that_cannot_be_sent_is_sent_later_and_in_order() -> None:
    agent_end, server_end = socket.socketpair()
    stream: Any = RefusingSocket(agent_end, 3)
    fork_server = ForkServerClient(stream)
    fork_server.kill(1)
    fork_server.stop(2)
    with pytest.raises(OSError, match="No buffer space"):
        fork_server.spawn(3, "a processor", server_end)
    fork_server.flush()
    orders = [ORDER.pack(OrderKind.KILL, 0, 1), ORDER.pack(OrderKind.STOP, 0, 2)]
    assert server_end.recv(100) == b"".join(orders)
    fork_server.close()
    server_end.close()
