"""How a peer notices that its connection is silent, and goes on over another one."""

from __future__ import annotations

from typing import Any, List

import pytest

from scaler_protocol import messages as m
from scaler_protocol.session.features import RESUME
from scaler_protocol.session.resumption import (
    CONNECT_SECONDS,
    HANDSHAKE_SECONDS,
    NEVER,
    WELCOME_SECONDS,
    BeginAnother,
    CloseSecond,
    EndSession,
    GreetOnSecond,
    LeaveSecond,
    LinkState,
    OpenSecond,
    Resumption,
    ResumptionEffect,
    UseSecond,
)

TOKEN = bytes(range(32))
INTERVAL_SECONDS = 2.0
PATIENCE_SECONDS = 3 * INTERVAL_SECONDS


class Link:
    """A session that can be resumed, its clock, and what it asks for."""

    def __init__(self, most_bytes: int = 10_000) -> None:
        self.effects: List[ResumptionEffect] = []
        self.now = 100.0
        self.resumption = Resumption(self.effects, lambda: 0.5, most_bytes)

    def open(self, is_remote: bool = True, **welcome: Any) -> Link:
        self.hello = self.resumption.introduce(m.Hello(name="w", features=["actors"]), is_remote)
        usual = {"session": 7, "features": [RESUME], "heartbeat_interval_milliseconds": 2000, "resume_token": TOKEN}
        self.welcome = m.Welcome(**{**usual, **welcome})
        self.resumption.on_message(self.now, self.welcome)
        return self

    def suspect(self) -> Link:
        self.open()
        self.sleep(PATIENCE_SECONDS)
        assert self.take() == [OpenSecond()]
        return self

    def resuming(self) -> Link:
        self.suspect()
        self.resumption.on_second_connected(self.now)
        self.resumption.on_second_up(self.now)
        (greeting,) = self.take()
        assert isinstance(greeting, GreetOnSecond)
        self.greeting = greeting.hello
        return self

    def send(self, *contents: bytes) -> None:
        log = self.resumption.log
        assert log is not None
        for each in contents:
            log.add([each])

    def sleep(self, seconds: float) -> None:
        """Time goes by; it is called when it wants to be."""
        end = self.now + seconds
        while self.resumption.next_time <= end:
            self.now = self.resumption.next_time
            self.resumption.on_time(self.now)
        self.now = end

    def stand_still(self, seconds: float) -> None:
        """This process is stopped."""
        self.now += seconds
        self.resumption.on_time(self.now)

    def take(self) -> List[ResumptionEffect]:
        taken, self.effects[:] = list(self.effects), []
        return taken

    @property
    def state(self) -> LinkState:
        return self.resumption.state


def test_the_token_is_not_passed_on() -> None:
    link = Link().open()

    assert link.welcome.resume_token == b""
    assert link.hello.features == ["actors", RESUME]
    assert link.state is LinkState.OPEN


@pytest.mark.parametrize("welcome", [{"features": []}, {"resume_token": b""}])
def test_a_scheduler_without_the_feature_changes_nothing(welcome: Any) -> None:
    link = Link().open(**welcome)

    assert link.state is LinkState.NONE and link.resumption.log is None
    assert link.resumption.next_time == NEVER
    assert link.welcome.resume_token == b""


def test_a_connection_within_the_host_is_not_resumed() -> None:
    link = Link().open(is_remote=False)

    assert link.hello.features == ["actors"]
    assert link.resumption.log is None


def test_each_message_counts_and_heartbeats_acknowledge() -> None:
    link = Link().open()
    link.send(b"one", b"two")

    link.resumption.on_message(link.now, m.Task())
    link.resumption.on_message(link.now, m.HeartbeatEcho(received=1))
    beat, other = m.Heartbeat(), m.TaskResult()
    link.resumption.before_sending(beat)
    link.resumption.before_sending(other)

    assert beat.received == 2
    assert link.resumption.log is not None and link.resumption.log.rest() == [[b"two"]]


def test_silence_for_three_heartbeats_opens_a_second_connection() -> None:
    link = Link().open()
    link.sleep(PATIENCE_SECONDS - 0.1)
    link.resumption.on_heard(link.now)  # a part of a message
    link.sleep(PATIENCE_SECONDS - 0.1)
    assert link.take() == []

    link.sleep(0.1)

    assert link.take() == [OpenSecond()]
    assert not link.resumption.is_cut_off


def test_a_process_that_was_stopped_listens_first() -> None:
    link = Link().open()

    link.stand_still(60.0)

    assert link.take() == []
    assert link.resumption.next_time == link.now + PATIENCE_SECONDS


def test_what_is_heard_on_the_first_connection_ends_the_suspicion() -> None:
    link = Link().suspect()

    link.resumption.on_heard(link.now)

    assert link.take() == [CloseSecond()]
    assert link.state is LinkState.OPEN
    link.resumption.on_second_up(link.now)  # too late
    assert link.take() == []


def test_an_attempt_that_takes_too_long_is_repeated() -> None:
    link = Link().suspect()

    link.sleep(CONNECT_SECONDS)
    assert link.take() == [CloseSecond()]
    link.sleep(0.1)

    assert link.take() == [OpenSecond()]


def test_a_handshake_may_take_longer_than_connecting() -> None:
    link = Link().suspect()
    link.resumption.on_second_connected(link.now)

    link.sleep(HANDSHAKE_SECONDS - 0.1)
    assert link.take() == []
    link.sleep(0.1)

    assert link.take() == [CloseSecond()]


def test_the_hello_on_the_second_connection_names_session_token_and_count() -> None:
    link = Link().open()
    link.resumption.on_message(link.now, m.Task())
    link.sleep(PATIENCE_SECONDS)
    link.take()
    link.resumption.on_second_up(link.now)

    (effect,) = link.take()
    assert isinstance(effect, GreetOnSecond)
    hello = effect.hello
    named = hello.previous_session, hello.resume_token, hello.received, hello.resume_attempt
    assert named == (7, TOKEN, 1, 1)
    assert (hello.name, hello.features) == ("w", ["actors", RESUME])
    assert link.hello.resume_token == b""
    assert link.resumption.is_cut_off


def test_a_resumed_session_sends_the_rest() -> None:
    link = Link().resuming()
    link.send(b"one", b"two", b"three")

    link.resumption.on_second_message(link.now, m.Welcome(session=7, is_resumed=True, received=1))

    assert link.take() == [UseSecond([[b"two"], [b"three"]])]
    assert link.state is LinkState.OPEN
    assert link.resumption.next_time == link.now + PATIENCE_SECONDS


def test_a_second_connection_without_an_answer_stays_open_and_another_is_tried() -> None:
    link = Link().resuming()

    link.sleep(WELCOME_SECONDS)
    assert link.take() == [LeaveSecond()]
    link.sleep(0.1)
    assert link.take() == [OpenSecond()]
    link.resumption.on_second_up(link.now)

    (effect,) = link.take()
    assert isinstance(effect, GreetOnSecond) and effect.hello.resume_attempt == 2


def test_a_second_connection_that_ends_is_followed_by_another() -> None:
    link = Link().resuming()

    link.resumption.on_second_failed(link.now)
    assert link.take() == []
    link.sleep(0.1)

    assert link.take() == [OpenSecond()]
    assert link.resumption.is_cut_off  # the first one is not used any more


def test_another_session_is_kept_for_the_owner() -> None:
    link = Link().resuming()
    welcome = m.Welcome(session=8, features=[RESUME], resume_token=b"another")

    link.resumption.on_second_message(link.now, welcome)

    assert link.take() == [BeginAnother(welcome)]
    assert (link.state, link.resumption.log) == (LinkState.NONE, None)
    link.resumption.introduce(m.Hello(), True)
    link.resumption.on_message(link.now, welcome)
    assert (link.state, welcome.resume_token) == (LinkState.OPEN, b"")


@pytest.mark.parametrize("welcome", [{"received": 1}, {"session": 8}])
def test_an_impossible_answer_ends_the_session(welcome: Any) -> None:
    link = Link().resuming()

    link.resumption.on_second_message(link.now, m.Welcome(**{"session": 7, "is_resumed": True, **welcome}))

    assert [type(each) for each in link.take()] == [CloseSecond, EndSession]
    assert link.state is LinkState.NONE


def test_a_refusal_ends_the_session() -> None:
    link = Link().resuming()

    link.resumption.on_second_message(link.now, m.Refusal(message="not now"))

    assert link.take() == [CloseSecond(), EndSession("not now")]


def test_a_session_of_which_not_all_is_kept_is_not_suspected() -> None:
    link = Link(most_bytes=1000).open()
    link.send(bytes(2000))

    link.sleep(PATIENCE_SECONDS)

    assert link.take() == [] and link.resumption.next_time == NEVER


def test_a_session_that_sends_too_much_while_it_is_resumed_ends() -> None:
    link = Link(most_bytes=1000).resuming()
    link.send(bytes(2000))

    link.sleep(WELCOME_SECONDS)

    assert [type(each) for each in link.take()] == [CloseSecond, EndSession]


def test_the_end_of_a_session_closes_the_second_connection() -> None:
    link = Link().suspect()

    link.resumption.end()

    assert link.take() == [CloseSecond()]
    assert link.resumption.next_time == NEVER
