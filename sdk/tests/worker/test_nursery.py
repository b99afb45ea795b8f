"""The agent's end of the control socket, without a nursery."""

from __future__ import annotations

import socket

import pytest

from scaler.worker.nursery import NurseryClient


@pytest.mark.parametrize("has_reported", [False, True])
def test_orders_to_a_nursery_that_was_killed_go_nowhere_and_its_end_is_seen(has_reported: bool) -> None:
    agent_end, nursery_end = socket.socketpair()
    processor_end, other_end = socket.socketpair()
    nursery = NurseryClient(agent_end)
    if has_reported:
        nursery_end.sendall(b"the beginning of a report")
    nursery_end.close()
    nursery.spawn(1, "a processor", processor_end)
    nursery.kill(1)
    nursery.stop(1)
    nursery.import_module("scaler.client")
    nursery.remove_at_end("/nowhere/*")
    while nursery.reports() == []:
        pass
    assert nursery.reports() is None
    nursery.close()
    processor_end.close()
    other_end.close()
