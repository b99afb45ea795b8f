"""Attempts to connect take a bounded time, so that a scheduler that has moved is found where it is."""

from __future__ import annotations

from session_peer import Peer

from scaler_protocol.session.effects import Connect, StopConnecting


def test_an_attempt_to_connect_that_takes_too_long_is_given_up_and_another_follows() -> None:
    peer = Peer(connect_timeout_seconds=10.0, give_up_seconds=60.0)
    peer.session.start(peer.now)
    assert peer.take() == [Connect()]
    peer.sleep(9.9)
    assert peer.take() == []
    peer.sleep(0.2)
    assert peer.take() == [StopConnecting()]
    peer.sleep(5.0)
    assert peer.take() == [], "it is asked for once"
    peer.session.on_connect_failed(peer.now, "timed out")
    peer.sleep(0.1)
    assert peer.take() == [Connect()], "so that the name is resolved again"
    peer.session.on_connected(peer.now)
    peer.take()
    peer.sleep(9.9)
    assert peer.take() == [], "the time-out for connecting is over once it is connected"


def test_a_stop_during_an_attempt_to_connect_gives_it_a_new_term() -> None:
    peer = Peer(connect_timeout_seconds=10.0, give_up_seconds=60.0)
    peer.session.start(peer.now)
    peer.take()
    peer.now += 30.0
    peer.session.on_time(peer.now)
    assert peer.take() == []
    peer.sleep(10.1)
    assert peer.take() == [StopConnecting()]
