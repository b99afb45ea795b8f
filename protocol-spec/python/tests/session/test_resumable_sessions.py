"""Which Hellos resume a session, and what all sessions keep together."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from scaler_protocol import messages as m
from scaler_protocol.session.features import RESUME
from scaler_protocol.session.resumable_sessions import (
    TOKEN_BYTES,
    CannotResume,
    Outdated,
    ResumableSession,
    ResumableSessions,
    Resumed,
)
from scaler_protocol.session.session_log import MESSAGE_BYTES


class Scheduler:
    """Sessions of peers."""

    def __init__(self, **bounds: int) -> None:
        numbers = itertools.count(1)
        self.sessions = ResumableSessions(lambda: bytes([next(numbers)]) * TOKEN_BYTES, **bounds)
        self._numbers = itertools.count(7)

    def greet(self, peer: bytes, key: bytes = b"key", features: Any = (RESUME,)) -> m.Welcome:
        assert self.sessions.on_hello(peer, key, m.Hello(features=list(features))) is None
        return self.sessions.begin(peer, key, m.Welcome(session=next(self._numbers)))

    def session(self, peer: bytes) -> ResumableSession:
        found = self.sessions.find(peer)
        assert found is not None
        return found

    def send(self, peer: bytes, *contents: bytes) -> None:
        for each in contents:
            self.sessions.keep(self.session(peer), [each])


def hello_for(welcome: m.Welcome, **more: Any) -> m.Hello:
    usual = {"features": [RESUME], "previous_session": welcome.session, "resume_token": welcome.resume_token}
    return m.Hello(**{**usual, "resume_attempt": 1, **more})


def test_a_peer_without_the_feature_gets_no_token() -> None:
    scheduler = Scheduler()

    welcome = scheduler.greet(b"old", features=())

    assert welcome.resume_token == b"" and RESUME not in welcome.features
    assert scheduler.sessions.find(b"old") is None


def test_the_right_token_resumes_the_session() -> None:
    scheduler = Scheduler()
    welcome = scheduler.greet(b"peer")
    scheduler.send(b"peer", b"one", b"two")
    scheduler.session(b"peer").on_received(3, 100)
    hello = hello_for(welcome, received=1)

    judgement = scheduler.sessions.on_hello(b"new", b"key", hello)

    assert isinstance(judgement, Resumed)
    assert (judgement.welcome.is_resumed, judgement.welcome.received, judgement.welcome.session) == (True, 3, 7)
    assert judgement.session.peer == b"peer" and judgement.session.log.rest() == [[b"two"]]
    assert hello.resume_token == b""
    assert scheduler.sessions.begin(b"new", b"key", m.Welcome()).resume_token == b""  # it is no peer of its own


def test_a_later_attempt_resumes_again() -> None:
    scheduler = Scheduler()
    welcome = scheduler.greet(b"peer")
    assert isinstance(scheduler.sessions.on_hello(b"b", b"key", hello_for(welcome, resume_attempt=2)), Resumed)

    for attempt in (1, 2):
        judgement = scheduler.sessions.on_hello(b"c", b"key", hello_for(welcome, resume_attempt=attempt))
        assert isinstance(judgement, Outdated)

    assert isinstance(scheduler.sessions.on_hello(b"d", b"key", hello_for(welcome, resume_attempt=3)), Resumed)


@pytest.mark.parametrize(
    "key, changes",
    [
        (b"key", {"resume_token": bytes(TOKEN_BYTES)}),
        (b"key", {"resume_token": b""}),
        (b"key", {"resume_token": b"\1"}),
        (b"key", {"previous_session": 99}),
        (b"key", {"features": []}),
        (b"another", {}),
        (b"", {}),
    ],
)
def test_a_wrong_token_or_key_leaves_the_session_alone(key: bytes, changes: Any) -> None:
    scheduler = Scheduler()
    welcome = scheduler.greet(b"peer")
    scheduler.send(b"peer", b"one")

    hello = hello_for(welcome, **changes)
    assert scheduler.sessions.on_hello(b"thief", key, hello) is None

    assert hello.resume_token == b""
    assert scheduler.session(b"peer").log.rest() == [[b"one"]]
    assert isinstance(scheduler.sessions.on_hello(b"new", b"key", hello_for(welcome)), Resumed)


@pytest.mark.parametrize("received", [0, 3])
def test_a_session_that_cannot_go_on_ends(received: int) -> None:
    scheduler = Scheduler()
    welcome = scheduler.greet(b"peer")
    scheduler.send(b"peer", b"one", b"two")
    scheduler.session(b"peer").acknowledge(1)

    judgement = scheduler.sessions.on_hello(b"new", b"key", hello_for(welcome, received=received))

    assert judgement == CannotResume(scheduler.session(b"peer"))
    assert scheduler.sessions.begin(b"new", b"key", m.Welcome(session=8)).resume_token  # another one can be resumed


def test_the_token_of_an_earlier_session_is_wrong() -> None:
    scheduler = Scheduler()
    earlier = scheduler.greet(b"peer")
    scheduler.sessions.end(b"peer")
    scheduler.greet(b"peer")

    assert scheduler.sessions.on_hello(b"new", b"key", hello_for(earlier)) is None


def test_counts_are_due_when_much_was_sent_or_received() -> None:
    scheduler = Scheduler(untold_bytes=1000)
    scheduler.greet(b"peer")
    session = scheduler.session(b"peer")
    due = [session.is_count_due]

    scheduler.send(b"peer", bytes(1000))
    due.append(session.is_count_due)
    counts = [session.count()]
    due.append(session.is_count_due)
    session.on_received(1, 1001)
    due.append(session.is_count_due)
    counts.append(session.count())
    session.acknowledge(1)
    due.append(session.is_count_due)
    scheduler.send(b"peer", bytes(1000))
    due.append(session.is_count_due)

    assert due == [False, True, False, True, False, True]
    assert counts == [0, 1]


def test_the_session_that_keeps_most_gives_way() -> None:
    scheduler = Scheduler(most_bytes_of_all=10_000)
    for peer in (b"a", b"b", b"c"):
        scheduler.greet(peer)
    scheduler.send(b"a", bytes(4000 - MESSAGE_BYTES))
    scheduler.send(b"b", bytes(5000 - MESSAGE_BYTES))
    assert scheduler.session(b"b").log.is_whole

    scheduler.send(b"c", bytes(2000 - MESSAGE_BYTES))

    assert [scheduler.session(each).log.is_whole for each in (b"a", b"b", b"c")] == [True, False, True]
    scheduler.send(b"b", bytes(9000))  # which is not kept, and costs the others nothing
    assert [scheduler.session(each).log.is_whole for each in (b"a", b"c")] == [True, True]


def test_what_was_acknowledged_does_not_count() -> None:
    scheduler = Scheduler(most_bytes_of_all=10_000)
    scheduler.greet(b"a")
    for count in range(1, 100):
        scheduler.send(b"a", bytes(4000))
        scheduler.session(b"a").acknowledge(count)

    assert scheduler.session(b"a").log.is_whole
