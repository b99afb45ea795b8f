"""What is no work takes a bounded share of the scheduler's time."""

from __future__ import annotations

import pytest

from scaler_appliance.shell.allowances import (
    BACKLOG_BURST_SECONDS,
    BACKLOG_SHARE,
    BURST_SECONDS,
    LITTLE_SECONDS,
    LITTLE_SHARE,
    MONITOR_CALLERS_BURST_SECONDS,
    MONITOR_CALLERS_SHARE,
    NEWCOMERS_BURST_SECONDS,
    NEWCOMERS_SHARE,
    SHARE,
    TOTAL_BURST_SECONDS,
    TOTAL_SHARE,
    Allowances,
)


def used_in(seconds: float, flooders: int) -> float:
    """How much of a time flooders take that are always ready."""
    allowances, now, used = Allowances(), 0.0, 0.0
    ready_at = dict.fromkeys(range(flooders), 0.0)
    while now < seconds:
        for flooder in [each for each, at in ready_at.items() if at <= now]:
            ready_at[flooder] = now + 0.001 + allowances.charge(b"%d" % flooder, now, 0.001)
            used += 0.001
        now += 0.001
    return used


def test_a_flooding_peer_gets_its_share() -> None:
    assert used_in(60.0, 1) <= BURST_SECONDS + 60 * SHARE + 0.01


def test_many_flooding_peers_get_no_more_than_the_share_of_all() -> None:
    assert used_in(60.0, 100) <= TOTAL_BURST_SECONDS + 60 * TOTAL_SHARE + 100 * 0.006


def test_many_peers_that_stay_below_their_own_share_get_the_share_of_all() -> None:
    """And a little each."""
    allowances, used, peers = Allowances(), 0.0, 200
    next_at = {number: number * 0.0001 for number in range(peers)}
    for step in range(60 * 20):
        now = step * 0.05
        for number in [each for each, at in next_at.items() if at <= now]:
            next_at[number] = now + 0.05 + allowances.charge(b"%d" % number, now, 0.0009)
            used += 0.0009
    assert used <= TOTAL_BURST_SECONDS + 60 * (TOTAL_SHARE + peers * LITTLE_SHARE) + peers * (LITTLE_SECONDS + 0.001)


def test_a_peer_whose_message_was_refused_waits_for_its_share_at_once() -> None:
    allowances = Allowances()
    assert allowances.charge(b"a", 0.0, 0.008) == 0.0
    assert allowances.charge(b"a", 0.0, 0.001, is_refused=True) == pytest.approx(0.009 / SHARE)
    assert allowances.charge(b"a", 1.0, 0.001) == 0.0, "later"


def test_a_pause_ends_before_a_session_would_time_out() -> None:
    allowances = Allowances(maximum_pause_seconds=0.5)
    assert allowances.charge(b"a", 0.0, 100.0) == 0.5
    assert allowances.charge(b"a", 0.5, 0.001) == 0.5, "again"


def test_a_peer_that_uses_little_is_never_delayed() -> None:
    allowances = Allowances()
    for number in range(1000):
        for flooder in range(100):
            allowances.charge(b"%d" % flooder, number * 0.01, 0.1)
        assert allowances.charge(b"honest", number * 0.01, 0.00001) == 0.0


def test_nothing_is_kept_of_who_is_gone() -> None:
    allowances = Allowances()
    allowances.charge(b"a", 0.0, 1.0)
    assert allowances.forget(b"a", 10.0) == 1.0 - 10.0 * SHARE
    assert not allowances._used and allowances.forget(b"a", 10.0) == 0.0


def test_callers_together_get_their_share() -> None:
    allowances, now, used = Allowances(), 0.0, 0.0
    while now < 60.0:
        used += 0.001
        now += 0.001 + allowances.charge_newcomers(now, 0.001)
    assert 0.9 * 60 * NEWCOMERS_SHARE <= used <= NEWCOMERS_BURST_SECONDS + 60 * NEWCOMERS_SHARE + 0.01


def test_monitors_that_connect_get_their_share_together() -> None:
    allowances = Allowances()
    now, used = 0.0, 0.0
    while now < 60.0:
        now += 0.001 + allowances.charge_monitor_callers(now, 0.001)
        used += 0.001
    least = 60 * MONITOR_CALLERS_SHARE
    assert 0.9 * least <= used <= MONITOR_CALLERS_BURST_SECONDS + least + 0.01
    assert allowances.charge_newcomers(60.0, 0.001) == 0.0


def test_clients_with_a_backlog_together_get_their_share() -> None:
    allowances, now, used = Allowances(), 0.0, 0.0
    while now < 60.0:
        used += 0.001
        now += 0.001 + allowances.charge_backlog(now, 0.001)
    assert 0.9 * 60 * BACKLOG_SHARE <= used <= BACKLOG_BURST_SECONDS + 60 * BACKLOG_SHARE + 0.01
    assert allowances.charge_newcomers(60.0, 0.001) == 0.0


def test_few_callers_are_never_kept_waiting() -> None:
    allowances = Allowances()
    assert not any(allowances.charge_newcomers(number * 0.01, 0.001) for number in range(1000))
