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
        assert self.kinds() == [OpenSecond]
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

    def kinds(self) -> List[type]:
        """Of what it asks for: effects without details are equal, as tuples."""
        return [type(each) for each in self.take()]

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


def test_a_peer_that_wanted_to_leave_before_its_welcome_does_not_resume() -> None:
    """The scheduler counts its DisconnectRequest."""
    link = Link()
    link.resumption.before_sending(link.resumption.introduce(m.Hello(), True))
    link.resumption.before_sending(m.DisconnectRequest())
    welcome = m.Welcome(session=7, features=[RESUME], heartbeat_interval_milliseconds=2000, resume_token=TOKEN)
    link.resumption.on_message(link.now, welcome)

    assert (link.state, link.resumption.log, welcome.resume_token) == (LinkState.NONE, None, b"")
    assert link.open().state is LinkState.OPEN, "the next session is resumed again"


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

    assert link.kinds() == [OpenSecond]
    assert not link.resumption.is_cut_off


def test_a_process_that_was_stopped_listens_first() -> None:
    link = Link().open()

    link.stand_still(60.0)

    assert link.take() == []
    assert link.resumption.next_time == link.now + PATIENCE_SECONDS


def test_the_session_stays_on_the_first_connection_when_all_that_was_sent_there_has_arrived() -> None:
    link = Link().open()
    link.send(b"one", b"two")
    link.sleep(PATIENCE_SECONDS)
    link.take()

    link.resumption.on_message(link.now, m.HeartbeatEcho(received=2))

    assert link.kinds() == [CloseSecond]
    assert link.state is LinkState.OPEN
    link.resumption.on_second_up(link.now)  # too late
    assert link.take() == []


def test_a_first_connection_that_passes_only_what_comes_stays_suspect() -> None:
    """A healed link: the scheduler's system has sent again what waited there, and this one's has not."""
    link = Link().open()
    link.send(b"one", b"two")
    link.sleep(PATIENCE_SECONDS)
    link.take()

    link.resumption.on_heard(link.now)
    link.resumption.on_message(link.now, m.Task())
    link.resumption.on_message(link.now, m.Heartbeat(received=1))  # sent before "two" has arrived

    assert link.take() == [] and link.state is LinkState.SUSPECT
    link.resumption.on_second_up(link.now)
    (effect,) = link.take()
    assert isinstance(effect, GreetOnSecond) and effect.hello.received == 2


def test_only_the_first_attempt_of_a_suspicion_is_the_first() -> None:
    link = Link().open()
    link.sleep(PATIENCE_SECONDS)
    (first,) = link.take()
    link.sleep(CONNECT_SECONDS + 0.1)
    _, second = link.take()

    link.resumption.on_message(link.now, m.HeartbeatEcho())
    link.take()
    link.sleep(PATIENCE_SECONDS)

    (again,) = link.take()
    assert (first, second, again) == (OpenSecond(), OpenSecond(is_repeated=True), OpenSecond())


def test_an_attempt_that_takes_too_long_is_repeated() -> None:
    link = Link().suspect()

    link.sleep(CONNECT_SECONDS)
    assert link.kinds() == [CloseSecond]
    link.sleep(0.1)

    assert link.kinds() == [OpenSecond]


def test_a_handshake_may_take_longer_than_connecting() -> None:
    link = Link().suspect()
    link.resumption.on_second_connected(link.now)

    link.sleep(HANDSHAKE_SECONDS - 0.1)
    assert link.take() == []
    link.sleep(0.1)

    assert link.kinds() == [CloseSecond]


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

    (effect,) = link.take()
    assert effect == UseSecond([[b"two"], [b"three"]])
    assert link.state is LinkState.OPEN
    assert link.resumption.next_time == link.now + PATIENCE_SECONDS


def test_a_second_connection_without_an_answer_stays_open_and_another_is_tried() -> None:
    link = Link().resuming()

    link.sleep(WELCOME_SECONDS)
    assert link.kinds() == [LeaveSecond]
    link.sleep(0.1)
    assert link.kinds() == [OpenSecond]
    link.resumption.on_second_up(link.now)

    (effect,) = link.take()
    assert isinstance(effect, GreetOnSecond) and effect.hello.resume_attempt == 2


def test_a_second_connection_that_ends_is_followed_by_another() -> None:
    link = Link().resuming()

    link.resumption.on_second_failed(link.now)
    assert link.take() == []
    link.sleep(0.1)

    assert link.kinds() == [OpenSecond]
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

    assert link.kinds() == [CloseSecond, EndSession]
    assert link.state is LinkState.NONE


def test_a_refusal_ends_the_session() -> None:
    link = Link().resuming()

    link.resumption.on_second_message(link.now, m.Refusal(message="not now"))

    closed, ended = link.take()
    assert isinstance(closed, CloseSecond) and ended == EndSession("not now")


def test_a_session_of_which_not_all_is_kept_is_not_suspected_until_the_rest_has_arrived() -> None:
    link = Link(most_bytes=1000).open()
    link.send(bytes(2000))

    link.sleep(PATIENCE_SECONDS)
    assert link.take() == [] and link.state is LinkState.OPEN
    link.resumption.on_message(link.now, m.HeartbeatEcho(received=1))
    link.sleep(2 * PATIENCE_SECONDS)

    assert link.kinds()[:1] == [OpenSecond]


def test_a_session_that_sends_too_much_while_it_is_suspect_stays_on_its_connection() -> None:
    link = Link(most_bytes=1000).suspect()
    link.send(bytes(2000))

    link.resumption.on_second_up(link.now)

    assert link.kinds() == [CloseSecond]
    assert link.state is LinkState.OPEN


@pytest.mark.parametrize(("received", "then"), [(0, [CloseSecond, EndSession]), (1, [UseSecond])])
def test_a_session_that_sends_too_much_while_it_is_resumed_goes_on_if_that_has_arrived(
    received: int, then: List[type]
) -> None:
    link = Link(most_bytes=1000).open()
    link.send(bytes(500))  # maybe it has arrived
    link.sleep(PATIENCE_SECONDS)
    link.resumption.on_second_up(link.now)
    link.take()
    link.send(bytes(500))

    link.resumption.on_second_message(link.now, m.Welcome(session=7, is_resumed=True, received=received))

    assert link.kinds() == then


def test_the_end_of_a_session_closes_the_second_connection() -> None:
    link = Link().suspect()

    link.resumption.end()

    assert link.kinds() == [CloseSecond]
    assert link.resumption.next_time == NEVER
