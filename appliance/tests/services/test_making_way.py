"""A scheduler that ends for another one at its address asks no peer to leave, and what it has received still counts."""

from __future__ import annotations

import signal
import socket
from typing import Callable, Tuple

import pytest
import zmq
from quiet_addresses import quiet_address
from scheduler_process import DEADLINE_SECONDS, RawPeer, SchedulerProcess

from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address

Start = Callable[..., SchedulerProcess]


def last_message(peer: RawPeer) -> object:
    """What a peer gets until nothing more comes: the scheduler has ended."""
    last: object = None
    while peer.socket.poll(300):
        last = peer.receive()[0]
    return last


@pytest.mark.parametrize(
    ("options", "number"), [((), signal.SIGUSR1), (("--expect-restart",), signal.SIGTERM)], ids=["USR1", "TERM"]
)
def test_peers_are_not_asked_to_leave_and_results_that_have_come_are_passed_on(
    start: Start, options: Tuple[str, ...], number: int
) -> None:
    scheduler = start(*options)
    worker, client = scheduler.worker(), scheduler.client()
    client.submit(1, 2)
    instances = worker.take_task_ids()
    worker.finish(instances)
    assert client.take_result_ids()
    scheduler.process.send_signal(number)
    assert scheduler.wait_for_end() == 0
    assert not isinstance(last_message(worker), m.DisconnectRequest)
    assert not isinstance(last_message(client), (m.DisconnectRequest, m.Refusal))
    assert "its peers wait for the next scheduler at this address" in scheduler.output()


@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize("options", [(), ("--expect-restart",)], ids=["default", "expects restart"])
def test_sigint_ends_the_cluster_and_sigterm_does_unless_a_restart_is_expected(
    start: Start, options: Tuple[str, ...]
) -> None:
    scheduler = start(*options)
    client = scheduler.client()
    scheduler.process.send_signal(signal.SIGINT if options else signal.SIGTERM)
    assert client.take(m.DisconnectRequest)[0].reason == m.DisconnectReason.SHUTDOWN
    assert scheduler.wait_for_end() == 0


@pytest.mark.exhaustive_on_pypy
def test_the_next_scheduler_listens_at_the_same_address_at_once(start: Start) -> None:
    first = start(address=quiet_address())
    peer = first.client()
    first.process.send_signal(signal.SIGUSR1)
    assert first.wait_for_end() == 0
    address = parse_address(first.address)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.host, address.port), DEADLINE_SECONDS)
    second = start(address=first.address)
    assert second.address == first.address
    event = peer.socket.poll(0, zmq.POLLIN)
    assert not event, "the next scheduler knows nothing of a peer that has not said Hello"
    client = second.client()
    assert client.welcome.scheduler_id != peer.welcome.scheduler_id


@pytest.mark.exhaustive_on_pypy
def test_a_second_signal_to_end_a_cluster_may_be_that_for_a_restart(start: Start) -> None:
    scheduler = start()
    scheduler.worker()  # which does not leave
    scheduler.process.send_signal(signal.SIGTERM)
    scheduler.wait_for_output("shutting down: SIGTERM")
    scheduler.process.send_signal(signal.SIGUSR1)
    assert scheduler.wait_for_end() == 0
