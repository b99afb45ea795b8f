"""The agent's end of the control socket, without a fork server."""

from __future__ import annotations

import socket

import pytest

from scaler.worker.fork_server.fork_server_client import ForkServerClient


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
