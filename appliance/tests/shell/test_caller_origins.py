"""Where callers come from, and what their faults cost."""

from __future__ import annotations

import socket

import pytest

from scaler_appliance.shell import caller_origins
from scaler_appliance.shell.caller_origins import ORIGIN_BURST_SECONDS, ORIGIN_SHARE, CallerOrigins, origin_of
from scaler_protocol.host import peer_credentials


def test_an_origin_is_blocked_until_its_share_has_made_up_for_its_faults() -> None:
    origins = CallerOrigins()
    assert origins.charge("a", 10.0, ORIGIN_BURST_SECONDS) and not origins.is_blocked("a", 10.0)
    assert origins.charge("a", 10.0, 0.01) and origins.is_blocked("a", 10.0)
    assert not origins.is_blocked("b", 10.0)
    assert origins.is_blocked("a", 10.0 + 0.009 / ORIGIN_SHARE)
    assert not origins.is_blocked("a", 10.0 + 0.011 / ORIGIN_SHARE)


def test_no_more_origins_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_origins, "MAXIMUM_ORIGINS", 2)
    origins = CallerOrigins()
    assert origins.charge("a", 10.0, 0.005) and origins.charge("b", 10.0, 1.0)
    assert not origins.charge("c", 10.0, 0.005)
    assert origins.charge("b", 10.0, 0.005), "it has its place"
    assert origins.charge("c", 10.0 + 0.006 / ORIGIN_SHARE, 0.005), "the first one has made up for its fault"
    assert set(origins._used) == {"b", "c"}


@pytest.mark.parametrize(
    "family, host, origin",
    [
        (socket.AF_INET, "10.1.2.3", "10.1.2.3"),
        (socket.AF_INET6, "::ffff:10.1.2.3", "10.1.2.3"),
        (socket.AF_INET6, "2001:db8:1:2:aaaa::1", "2001:0db8:0001:0002"),
        (socket.AF_INET6, "2001:db8:1:2:bbbb::2", "2001:0db8:0001:0002"),
        (socket.AF_INET6, "fe80::1%eth0", "fe80:0000:0000:0000"),
    ],
)
def test_the_origin_of_a_caller_on_the_network_is_its_address(family: int, host: str, origin: str) -> None:
    with socket.socket(family) as stream:
        assert origin_of(stream, (host, 12345)) == origin


def test_the_origin_of_a_caller_at_a_unix_socket_is_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        monkeypatch.setattr(peer_credentials, "user_of_peer", lambda stream: 4711)
        monkeypatch.setattr(caller_origins, "user_of_peer", lambda stream: 4711)
        assert origin_of(one, "") == "user 4711"


def test_this_users_own_programs_are_never_turned_away() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        origin = origin_of(one, "")
    origins = CallerOrigins()
    assert not origins.charge(origin, 10.0, 1000.0) and not origins.is_blocked(origin, 10.0)
