"""A peer's session: it is found, kept alive, found again, and ends as the specification's table says."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_peer import Peer, only

from scaler_protocol import messages as m
from scaler_protocol.session.effects import (
    Connect,
    Disconnect,
    EndCause,
    Ended,
    Interrupted,
    SessionEffect,
    Transmit,
)
from scaler_protocol.session.peer_session import NEVER, PeerSession, SessionSettings
from scaler_protocol.session.session_table import TRANSITIONS, Fault, Ignored, SessionEvent, SessionState

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).parents[3] / "machines/session-at-peer.toml"
Kind = TypeVar("Kind")


# The table ------------------------------------------------------------------------------------------------------------

STATES: Dict[SessionState, Callable[[Peer], Peer]] = {
    SessionState.APART: Peer.started,
    SessionState.GREETING: Peer.greeting,
    SessionState.OPEN: Peer.opened,
    SessionState.ASKING: Peer.asking,
    SessionState.DRAINING: Peer.draining,
    SessionState.LEAVING: Peer.leaving,
    SessionState.ENDED: Peer.ended,
}


def refusal(reason: m.RefusalReason) -> m.Refusal:
    return m.Refusal(reason=reason, message="as it likes")


EVENTS: Dict[SessionEvent, Callable[[Peer], Any]] = {
    SessionEvent.CONNECT: lambda peer: peer.session.on_connected(peer.now),
    SessionEvent.WELCOME: lambda peer: peer.hear(m.Welcome(session=9)),
    SessionEvent.NOT_GREETED: lambda peer: peer.hear(refusal(m.RefusalReason.NOT_GREETED)),
    SessionEvent.SHUTTING_DOWN: lambda peer: peer.hear(refusal(m.RefusalReason.SHUTTING_DOWN)),
    SessionEvent.REFUSED: lambda peer: peer.hear(refusal(m.RefusalReason.MALFORMED)),
    SessionEvent.LOST: lambda peer: peer.session.on_disconnected(peer.now, "reset by peer"),
    SessionEvent.TOLD_TO_LEAVE: lambda peer: peer.hear(m.DisconnectRequest(reason=m.DisconnectReason.SHUTDOWN)),
    SessionEvent.TOLD_TO_DRAIN: lambda peer: peer.hear(m.DisconnectRequest(reason=m.DisconnectReason.DRAINING)),
    SessionEvent.ASK: lambda peer: peer.session.ask_to_drain(m.DrainCause.SIGNAL, "SIGTERM"),
    SessionEvent.DRAINED: lambda peer: peer.session.drained(peer.now),
    SessionEvent.LEAVE: lambda peer: peer.session.leave(peer.now),
    SessionEvent.RESPONSE: lambda peer: peer.hear(m.DisconnectResponse()),
}


def test_the_table_is_the_specifications() -> None:
    specified = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    ours: Dict[str, Dict[str, str]] = {}
    for state, row in TRANSITIONS.items():
        for event, decision in row.items():
            if isinstance(decision, SessionState):
                said = decision.value
            else:
                said = f"{'fault' if isinstance(decision, Fault) else 'ignore'}: {decision.why}"
            ours.setdefault(state.value, {})[event.value] = said
    assert ours == specified["transitions"]
    assert {state.value for state in SessionState} == set(specified["states"])
    assert {event.value for event in SessionEvent} == set(specified["events"])


@pytest.mark.parametrize(("state", "event"), list(product(SessionState, SessionEvent)))
def test_each_event_in_each_state_does_what_the_table_says(state: SessionState, event: SessionEvent) -> None:
    peer = STATES[state](Peer())
    assert peer.session.state is state
    decision = TRANSITIONS[state][event]
    if isinstance(decision, Fault) and event in (SessionEvent.ASK, SessionEvent.DRAINED):
        with pytest.raises(AssertionError, match=event.value):
            EVENTS[event](peer)
        return
    EVENTS[event](peer)
    effects = peer.take()
    assert peer.session.state is (decision if isinstance(decision, SessionState) else state)
    sent = [_as_specified(effect.message) for effect in effects if isinstance(effect, Transmit)]
    specified = tomllib.loads(TABLE.read_text(encoding="utf-8"))["replies"].get(f"{state.value}.{event.value}")
    assert sent == ([] if specified is None else [specified])
    if isinstance(decision, (Ignored, Fault)):
        assert effects == []
    elif decision is SessionState.ENDED:
        in_session = (SessionState.OPEN, SessionState.ASKING, SessionState.DRAINING)
        assert only(Ended, effects).was_open is (state in in_session)
        assert peer.session.next_time == NEVER
    elif decision is SessionState.APART and state is not SessionState.APART:
        assert only(Interrupted, effects).was_open is (state is SessionState.OPEN)
        only(Disconnect, effects)


def _as_specified(message: m.Member) -> str:
    is_to_drain = isinstance(message, m.DisconnectRequest) and message.reason == m.DisconnectReason.DRAINING
    return type(message).__name__ + (", draining" if is_to_drain else "")


def test_a_worker_that_asks_to_be_drained_says_why_and_owns_its_messages_until_it_has_left() -> None:
    peer = Peer().opened()
    peer.session.ask_to_drain(m.DrainCause.IDLE, "no tasks for 5 s")
    (asked,) = peer.sent()
    assert isinstance(asked, m.DisconnectRequest)
    assert (asked.drain_cause, asked.message) == (m.DrainCause.IDLE, "no tasks for 5 s")
    assert peer.hear(m.Task()) and peer.session.is_open
    assert peer.hear(m.DisconnectRequest(reason=m.DisconnectReason.DRAINING)), (
        "its owner learns that no more tasks come"
    )
    peer.session.drained(peer.now)
    assert only(Ended, peer.take()).cause is EndCause.LEFT


def test_a_client_takes_a_request_to_drain_for_a_shutdown() -> None:
    peer = Peer(m.Role.CLIENT).opened()
    peer.hear(m.DisconnectRequest(reason=m.DisconnectReason.DRAINING, message="why"))
    ended = only(Ended, peer.take())
    assert (ended.cause, ended.reason) == (EndCause.SHUT_DOWN, "why")


# Beginning ------------------------------------------------------------------------------------------------------------


def test_hello_says_versions_and_the_interval_and_the_session_before() -> None:
    peer = Peer(m.Role.CLIENT)
    peer.session.start(peer.now)
    peer.take()
    peer.session.on_connected(peer.now)
    (hello,) = peer.sent()
    assert isinstance(hello, m.Hello)
    assert (hello.major, hello.minor_min, hello.minor_max) == (1, 0, 0)
    assert (hello.heartbeat_interval_milliseconds, hello.previous_session) == (2000, 0)
    peer.hear(m.Welcome(session=7))
    peer.session.on_disconnected(peer.now, "reset by peer")
    peer.sleep(1.0)
    peer.session.on_connected(peer.now)
    again = only(Transmit, peer.take()).message
    assert isinstance(again, m.Hello) and again.previous_session == 7


def test_messages_are_the_owners_within_a_session_only() -> None:
    peer = Peer().greeting()
    assert not peer.hear(m.Task())
    peer.hear(m.Welcome(session=7))
    assert peer.hear(m.Task()) and peer.hear(m.HeartbeatEcho())
    assert not peer.hear(m.Heartbeat()) and not peer.hear(m.DisconnectResponse())
    peer.session.leave(peer.now)
    assert not peer.hear(m.Task()) and not peer.hear(m.HeartbeatEcho())


@pytest.mark.parametrize("session", [0, 1 << 24])
def test_a_peer_that_grants_an_impossible_session_is_not_a_scheduler(session: int) -> None:
    peer = Peer().greeting()
    peer.hear(m.Welcome(session=session))
    ended = only(Ended, peer.take())
    assert ended.cause is EndCause.NOT_A_SCHEDULER and "sessions must be from 1 to" in ended.reason
    peer = Peer().opened()
    peer.session.on_disconnected(peer.now, "reset by peer")
    peer.sleep(0.1)
    peer.session.on_connected(peer.now)
    peer.take()
    peer.hear(m.Welcome(session=session))
    assert not only(Interrupted, peer.take()).was_open  # the scheduler that was there before may come back


def test_who_waits_for_the_first_session_tries_often_and_gives_up_in_time() -> None:
    peer = Peer(m.Role.CLIENT, first_timeout_seconds=1.0)
    peer.session.start(peer.now)
    attempts = -1  # the first does not count
    while peer.session.state is not SessionState.ENDED:
        effects = peer.take()
        if Connect() in effects:
            attempts += 1
            peer.session.on_connect_failed(peer.now, "connection refused")
        else:
            peer.sleep(peer.session.next_time - peer.now)
    assert attempts == 20 and peer.now == pytest.approx(101.0)
    assert only(Ended, peer.take()) == Ended(EndCause.GAVE_UP, "connection refused", False)


def test_a_hello_without_an_answer_is_said_again_on_another_connection() -> None:
    peer = Peer().greeting()
    peer.sleep(10.0)
    effects = peer.take()
    assert [type(effect) for effect in effects] == [Disconnect, Interrupted]
    peer.sleep(0.1)
    assert peer.take() == [Connect()]


# Keeping --------------------------------------------------------------------------------------------------------------


def test_heartbeats_are_numbered_and_measure_half_the_way() -> None:
    peer = Peer().opened()
    peer.now += 0.004
    assert peer.hear(m.HeartbeatEcho(sequence=1))
    peer.sleep(2.0)
    assert peer.sent() == [m.Heartbeat(sequence=2, latency_microseconds=2000)]


def test_a_worker_far_away_says_so_at_once() -> None:
    peer = Peer().opened()
    peer.now += 0.2
    peer.hear(m.HeartbeatEcho(sequence=1))
    peer.session.on_time(peer.now)
    assert peer.sent() == [m.Heartbeat(sequence=2, latency_microseconds=100_000)]
    peer.now += 0.2
    peer.hear(m.HeartbeatEcho(sequence=2))
    peer.session.on_time(peer.now)
    assert peer.sent() == [], "the next one comes as usual"


def test_an_echo_that_was_not_asked_for_measures_nothing() -> None:
    peer = Peer().greeting()
    peer.hear(m.Welcome(session=7))
    peer.hear(m.HeartbeatEcho(sequence=0))
    peer.take()
    peer.session.on_time(peer.now)
    assert peer.sent() == [m.Heartbeat(sequence=1)]


def test_a_latency_that_a_heartbeat_cannot_say_is_the_largest_that_it_can() -> None:
    peer = Peer(silence_timeout_seconds=1e6, heartbeat_interval_seconds=1e5).opened()
    peer.now += 20_000.0
    peer.hear(m.HeartbeatEcho(sequence=1))
    peer.session.beat_soon(peer.now)
    peer.session.on_time(peer.now)
    assert peer.sent() == [m.Heartbeat(sequence=2, latency_microseconds=(1 << 32) - 1)]


def test_the_schedulers_interval_goes_before_ours_while_its_session_lasts() -> None:
    peer = Peer().opened(heartbeat_interval_milliseconds=500)
    peer.sleep(2.1)
    assert len(peer.sent()) == 4


def test_news_is_told_at_once_but_not_more_often_than_every_few_milliseconds() -> None:
    peer = Peer().opened()
    for _ in range(10):
        peer.session.beat_soon(peer.now)
        peer.sleep(0.001)
    assert len(peer.sent()) == 2


def test_a_heartbeat_of_the_scheduler_is_answered() -> None:
    peer = Peer().opened()
    peer.hear(m.Heartbeat(sequence=5))
    assert peer.sent() == [m.HeartbeatEcho(sequence=5)]


def test_a_silent_scheduler_is_left_and_looked_for_again() -> None:
    peer = Peer().opened(timeout_milliseconds=5000)
    peer.sleep(4.9)
    assert only_heartbeats(peer.take())
    peer.sleep(0.1)
    interrupted = only(Interrupted, peer.take())
    assert interrupted.was_open and "no message from the scheduler for 5 s" in interrupted.reason


def test_silence_is_over_at_the_very_time_that_was_announced() -> None:
    for step in range(1000):
        peer = Peer()
        peer.now = 3 + step / 997  # for some of these `now + 5 - now` is less than 5
        peer.opened(timeout_milliseconds=5000)
        began = peer.now
        for seconds in (2.0, 4.0, 5.0):
            peer.now = began + seconds
            peer.session.on_time(peer.now)
        assert any(isinstance(each, Interrupted) for each in peer.take()), f"connected at {began!r}"


def only_heartbeats(effects: List[SessionEffect]) -> bool:
    return all(isinstance(each, Transmit) and isinstance(each.message, m.Heartbeat) for each in effects)


@pytest.mark.parametrize(("own_seconds", "told_seconds"), [(30.0, 50), (50.0, 30), (None, 30), (30.0, 0)])
def test_the_shorter_patience_with_silence_counts(own_seconds: Optional[float], told_seconds: int) -> None:
    peer = Peer(silence_timeout_seconds=own_seconds).opened(timeout_milliseconds=1000 * told_seconds)
    peer.sleep(29.0)
    assert only_heartbeats(peer.take())
    peer.sleep(1.0)
    assert only(Interrupted, peer.take())


def test_after_silence_a_scheduler_is_looked_for_as_after_the_end_of_a_connection() -> None:
    peer = Peer(m.Role.CLIENT, silence_timeout_seconds=300.0, give_up_seconds=300.0).opened(timeout_milliseconds=60_000)
    begin = peer.now
    peer.sleep(60.0)
    assert only(Interrupted, peer.take()).was_open
    attempts = fail_until_the_end(peer)
    assert 300.0 <= peer.now - begin < 310.0, "counted from when it was last known to be there"
    assert len(attempts) > 200


# Coming back ----------------------------------------------------------------------------------------------------------


def fail_until_the_end(peer: Peer) -> List[float]:
    """The pauses between attempts, when no attempt succeeds."""
    pauses: List[float] = []
    since = peer.now
    while peer.session.state is not SessionState.ENDED:
        peer.sleep(peer.session.next_time - peer.now)
        if Connect() in peer.take():
            pauses.append(round(peer.now - since, 6))
            peer.session.on_connect_failed(peer.now, "connection refused")
            since = peer.now
    return pauses


def test_pauses_between_attempts_grow_up_to_a_limit() -> None:
    peer = Peer(give_up_seconds=10.0).opened()
    peer.session.on_disconnected(peer.now, "reset by peer")
    pauses = fail_until_the_end(peer)
    assert pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0] and set(pauses[5:]) == {1.0}
    assert peer.now == pytest.approx(110.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_pauses_differ_by_a_quarter_at_most(numbers: List[float]) -> None:
    peer = Peer()
    given_numbers = iter(numbers * 100)
    peer.session = PeerSession(
        m.Hello(role=m.Role.WORKER),
        SessionSettings(2.0, give_up_seconds=5.0),
        peer.effects,
        lambda now: m.Heartbeat(),
        lambda: next(given_numbers),
    )
    peer.opened()
    peer.session.on_disconnected(peer.now, "reset by peer")
    expected = 0.05
    for pause in fail_until_the_end(peer):
        assert 0.749 * expected <= pause <= 1.251 * expected
        expected = min(2 * expected, 1.0)


def test_a_scheduler_that_drops_its_peers_again_and_again_is_given_up() -> None:
    peer = Peer(m.Role.CLIENT, give_up_seconds=8.0).opened()
    welcomes = 0
    while peer.session.state is not SessionState.ENDED:
        peer.session.on_disconnected(peer.now, "dropped")
        peer.sleep(min(1.3, peer.session.next_time - peer.now))
        if Connect() in peer.take():
            peer.session.on_connected(peer.now)
            peer.hear(m.Welcome(session=8 + welcomes))
            welcomes += 1
    assert welcomes > 5 and peer.now <= 108.0 + 1.3


def test_a_session_that_lasted_or_made_progress_renews_patience() -> None:
    for use in (lambda peer: peer.session.made_progress(peer.now), lambda peer: last(peer, 6.0)):
        peer = Peer(give_up_seconds=10.0).opened()
        for _ in range(4):
            last(peer, 5.5)
            use(peer)
            peer.session.on_disconnected(peer.now, "dropped")
            assert only(Interrupted, peer.take())
            peer.sleep(0.05)
            assert peer.take() == [Connect()], "the first attempt is soon again"
            peer.session.on_connected(peer.now)
            peer.hear(m.Welcome(session=8))
            peer.take()
    assert peer.session.state is SessionState.OPEN


def suspended(peer: Peer, seconds: float) -> Peer:
    """The process does not run for a while, and so does not call the session."""
    peer.now = max(peer.now, peer.session.next_time) + seconds
    return peer


def test_a_peer_that_was_suspended_for_long_tries_again_before_it_gives_up() -> None:
    peer = suspended(Peer(give_up_seconds=10.0).opened(), 3600.0)
    peer.session.on_disconnected(peer.now, "dropped")
    assert only(Interrupted, peer.take())
    suspended(peer, 3600.0).session.on_time(peer.now)
    assert peer.take() == [Connect()]

    began = peer.now
    peer.session.on_connect_failed(peer.now, "connection refused")
    assert peer.take() == [] and len(fail_until_the_end(peer)) > 5
    assert peer.now == pytest.approx(began + 10.0), "its patience started again, and ended"


@pytest.mark.parametrize("role", [m.Role.CLIENT, m.Role.WORKER])
def test_an_attempt_that_blocks_for_longer_than_the_patience_is_the_last(role: m.Role) -> None:
    peer = Peer(role, give_up_seconds=10.0, first_timeout_seconds=10.0 if role == m.Role.CLIENT else None)
    peer.session.start(peer.now)
    assert peer.take() == [Connect()]
    peer.now += 30.0  # until the name of the host was not resolved
    peer.session.on_connect_failed(peer.now, "name not known")
    assert only(Ended, peer.take()) == Ended(EndCause.GAVE_UP, "name not known", False)


def test_a_user_who_suspends_a_program_that_looks_for_its_scheduler_may_go_on() -> None:
    peer = Peer(m.Role.CLIENT, first_timeout_seconds=1.0)
    peer.session.start(peer.now)
    peer.session.on_connect_failed(peer.now, "connection refused")
    peer.take()
    suspended(peer, 3600.0).session.on_time(peer.now)
    assert peer.take() == [Connect()]
    peer.session.on_connected(peer.now)
    peer.take()
    suspended(peer, 3600.0).session.on_time(peer.now)
    assert peer.take() == [], "the scheduler has time to answer, which starts now"
    peer.sleep(0.9)
    assert peer.take() == []
    peer.sleep(0.2)
    reasons = [effect.reason for effect in peer.take() if isinstance(effect, (Interrupted, Ended))]
    assert reasons and reasons[0].startswith("no answer to Hello")


def test_a_stop_of_this_process_gives_the_scheduler_a_new_term() -> None:
    """While it is stopped it sends no heartbeats, which the scheduler could answer."""
    peer = Peer().opened(timeout_milliseconds=5000)
    suspended(peer, 3600.0).session.on_time(peer.now)
    assert [type(message) for message in peer.sent()] == [m.Heartbeat]
    assert peer.session.is_open
    peer.sleep(4.9)
    peer.take()
    assert peer.session.is_open
    peer.sleep(0.2)
    assert only(Interrupted, peer.take()).reason.startswith("no message from the scheduler for 36")


@pytest.mark.parametrize("late_seconds, is_noticed", [(1.2, True), (1.3, False)])
def test_a_process_that_is_always_a_little_late_still_notices_that_its_scheduler_is_gone(
    late_seconds: float, is_noticed: bool
) -> None:
    peer = Peer().opened(timeout_milliseconds=5000)
    for _ in range(10):
        suspended(peer, late_seconds).session.on_time(peer.now)
    assert any(isinstance(each, Interrupted) for each in peer.take()) is is_noticed


def test_what_arrived_before_a_stop_is_heard_before_silence_is_judged() -> None:
    """The owner reads first, and judges by the time before reading: a stop in between costs nothing."""
    peer = Peer().opened(timeout_milliseconds=5000)
    before = peer.now = peer.now + 1.9
    peer.now += 3600.0
    peer.hear(m.HeartbeatEcho())
    peer.session.on_time(before)
    peer.session.on_time(peer.now)
    assert [type(message) for message in peer.sent()] == [m.Heartbeat]


def test_a_stop_during_an_attempt_to_connect_is_excused_once() -> None:
    peer = Peer(m.Role.CLIENT, give_up_seconds=10.0, first_timeout_seconds=10.0)
    peer.session.start(peer.now)
    assert peer.take() == [Connect()]
    suspended(peer, 3600.0).session.on_time(peer.now)
    assert peer.take() == []
    suspended(peer, 3600.0).session.on_time(peer.now)
    assert only(Ended, peer.take()).cause is EndCause.GAVE_UP


def last(peer: Peer, seconds: float) -> None:
    """The session goes on for so long, and something is heard in it."""
    peer.sleep(seconds)
    peer.hear(m.HeartbeatEcho())
    peer.take()


def test_what_was_sent_in_doubt_is_not_continued() -> None:
    peer = Peer().opened()
    peer.session.interrupt(peer.now, "bytes that are not a message")
    assert [type(effect) for effect in peer.take()] == [Disconnect, Interrupted]


# Ending ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [True, False])
def test_leaving_waits_for_the_answer_but_not_for_ever(answer: bool) -> None:
    peer = Peer().opened()
    peer.session.leave(peer.now, "enough")
    assert peer.sent() == [m.DisconnectRequest(reason=m.DisconnectReason.LEAVING, message="enough")]
    if answer:
        peer.hear(m.DisconnectResponse())
    else:
        peer.sleep(2.0)
    assert only(Ended, peer.take()).cause is EndCause.LEFT


@pytest.mark.parametrize(
    ("reason", "cause"),
    [(m.RefusalReason.VERSION_MISMATCH, EndCause.REFUSED), (m.RefusalReason.NOT_ALLOWED, EndCause.REFUSED)],
)
def test_a_refusal_says_why_it_ends(reason: m.RefusalReason, cause: EndCause) -> None:
    peer = Peer().greeting()
    peer.hear(refusal(reason))
    ended = only(Ended, peer.take())
    assert ended.cause is cause and ended.refusal is not None and ended.refusal.reason is reason


# Any history ----------------------------------------------------------------------------------------------------------


@given(st.data())
def test_no_history_breaks_the_session(data: st.DataObject) -> None:
    """Whatever comes, the session wants to be called again unless it has ended, and says so once."""
    peer = Peer(give_up_seconds=20.0)
    peer.session.start(peer.now)
    connecting: Optional[bool] = None
    ends = 0
    for _ in range(data.draw(st.integers(1, 60))):
        for effect in peer.take():
            connecting = True if isinstance(effect, Connect) else connecting
            connecting = False if isinstance(effect, Disconnect) else connecting
            ends += isinstance(effect, Ended)
            if isinstance(effect, Transmit) and not isinstance(effect.message, (m.Hello, m.DisconnectRequest)):
                assert connecting is None, "sent without a connection"
        step = data.draw(st.sampled_from(["sleep", *[event.name for event in SessionEvent]]))
        if connecting:
            connected = data.draw(st.booleans())
            connecting = None if connected else False
            if connected:
                peer.session.on_connected(peer.now)
            else:
                peer.session.on_connect_failed(peer.now, "refused")
        elif step == "sleep":
            peer.now += data.draw(st.floats(0, 30))
            peer.session.on_time(peer.now)
        elif step in ("ASK", "DRAINED"):
            if peer.session.is_open if step == "ASK" else peer.session.state is SessionState.DRAINING:
                EVENTS[SessionEvent[step]](peer)
        elif step != "CONNECT" and (connecting is None or step in ("LEAVE", "LOST")):
            EVENTS[SessionEvent[step]](peer)
        assert ends <= 1
        if peer.session.state is SessionState.ENDED:
            assert peer.session.next_time == NEVER
        elif not connecting:
            assert peer.session.next_time < NEVER
