"""Sessions of browsers: what a cookie is good for, and for how long."""

from __future__ import annotations

import itertools
from typing import Iterator

import pytest

from scaler_appliance.ui.browser_sessions import (
    OVERLAP_SECONDS,
    ROTATION_SECONDS,
    SESSION_SECONDS,
    BrowserSessions,
    Visit,
)


class Played:
    """Sessions whose clock and secrets the test knows."""

    def __init__(self, maximum: int = 10) -> None:
        self.now = 1000.0
        secrets: Iterator[str] = (f"secret{number}" for number in itertools.count(1))
        self.sessions = BrowserSessions(lambda: self.now, lambda: next(secrets), maximum)


def test_a_session_is_found_by_its_cookie_until_it_ends() -> None:
    played = Played()
    cookie, key = played.sessions.open()
    assert (cookie, key) == ("1.secret1", "secret2")
    assert played.sessions.find(cookie, key) == Visit("1")
    assert played.sessions.seconds_left("1") == SESSION_SECONDS

    played.now += SESSION_SECONDS - 1
    assert played.sessions.find(cookie, key, may_replace=False) == Visit("1")
    played.now += 1
    assert played.sessions.find(cookie, key, may_replace=False) is None
    assert len(played.sessions) == 0
    assert played.sessions.seconds_left("1") == 0


@pytest.mark.parametrize(
    "cookie", ["", ".", "1", "1.", "1.secret2", "2.secret1", "1.secret1 ", "1.\udcff", "1.é", "01.secret1"]
)
def test_another_cookie_finds_nothing(cookie: str) -> None:
    played = Played()
    _, key = played.sessions.open()

    assert played.sessions.find(cookie, key) is None
    assert played.sessions.find(cookie, "") is None


@pytest.mark.parametrize("key", ["", "secret1", "1.secret1", "secret2 ", "\udcff", "é", "secret4"])
def test_a_cookie_without_the_key_of_its_session_is_known_and_never_replaced(key: str) -> None:
    played = Played()
    cookie, _ = played.sessions.open()
    played.sessions.open()
    assert played.sessions.find(cookie, key) == Visit("1", has_key=False)

    played.now += 2 * ROTATION_SECONDS

    assert played.sessions.find(cookie, key) == Visit("1", has_key=False)
    assert not played.sessions.is_current("1")


def test_use_does_not_make_a_session_longer() -> None:
    played = Played()
    cookie, key = played.sessions.open()
    began = played.now
    while played.now < began + SESSION_SECONDS - ROTATION_SECONDS:
        played.now += ROTATION_SECONDS
        visit = played.sessions.find(cookie, key)
        assert visit is not None and visit.new_cookie
        cookie = visit.new_cookie

    played.now = began + SESSION_SECONDS
    assert played.sessions.find(cookie, key) is None


def test_a_secret_that_is_hours_old_is_replaced_once() -> None:
    played = Played()
    cookie, key = played.sessions.open()
    played.now += ROTATION_SECONDS - 1
    assert played.sessions.find(cookie, key) == Visit("1")
    assert played.sessions.is_current("1")
    played.now += 1
    assert not played.sessions.is_current("1")
    assert played.sessions.find(cookie, key, may_replace=False) == Visit("1")

    assert played.sessions.find(cookie, key) == Visit("1", new_cookie="1.secret3")

    assert played.sessions.is_current("1")
    assert played.sessions.find("1.secret3", key) == Visit("1")
    assert played.sessions.find(cookie, key) == Visit("1")
    assert played.sessions.find(cookie, "") == Visit("1", has_key=False)
    played.now += OVERLAP_SECONDS
    assert played.sessions.find(cookie, key) is None
    assert played.sessions.find(cookie, "") is None
    assert played.sessions.find("1.secret3", key) == Visit("1")


def test_a_browser_that_did_not_get_the_new_cookie_gets_the_same_again() -> None:
    played = Played()
    cookie, key = played.sessions.open()
    played.now += ROTATION_SECONDS

    assert played.sessions.find(cookie, key) == Visit("1", new_cookie="1.secret3")
    assert played.sessions.find(cookie, key, may_replace=False) == Visit("1")
    assert played.sessions.find(cookie, key) == Visit("1", new_cookie="1.secret3")


def test_an_ended_session_is_not_found_and_others_are() -> None:
    played = Played()
    first, second = played.sessions.open(), played.sessions.open()

    played.sessions.close("1")
    played.sessions.close("1")

    assert played.sessions.find(*first) is None
    assert not played.sessions.is_current("1")
    assert played.sessions.find(*second) == Visit("2")


def test_the_oldest_sessions_go_when_there_are_too_many() -> None:
    played = Played(maximum=3)
    logins = [played.sessions.open() for _ in range(5)]

    assert [played.sessions.find(*login) is not None for login in logins] == [False, False, True, True, True]
    assert len(played.sessions) == 3
