"""Peers share the scheduler's time by what their messages cost."""

from __future__ import annotations

from collections import Counter
from typing import Dict, List

from scaler_appliance.core.effects import SendChunk
from scaler_appliance.shell.fair_turns import FairTurns


def take(turns: FairTurns, costs: Dict[bytes, float], count: int) -> List[bytes]:
    """Whose turns come next, with one message a turn."""
    taken = []
    for _ in range(count):
        peer, messages = turns.next()
        messages.popleft()
        turns.end_turn(costs[peer])
        taken.append(peer)
    return taken


def test_messages_of_one_peer_stay_in_order() -> None:
    turns = FairTurns()
    turns.add(b"a", [[b"1"], [b"2"]])
    turns.add(b"a", [[b"3"]])
    seen = []
    while turns:
        _, messages = turns.next()
        seen.append(messages.popleft())
        turns.end_turn(1.0)
    assert seen == [[b"1"], [b"2"], [b"3"]]
    assert b"a" not in turns


def test_peers_share_the_time_however_dear_their_messages_are() -> None:
    turns = FairTurns()
    for peer in (b"dear", b"cheap"):
        turns.add(peer, [[b""]] * 1000)
    shares = Counter(take(turns, {b"dear": 10.0, b"cheap": 1.0}, 110))
    assert shares[b"cheap"] == 100 and shares[b"dear"] == 10


def test_one_very_dear_message_is_paid_for_afterwards() -> None:
    turns = FairTurns()
    turns.add(b"dear", [[b""]] * 2)
    take(turns, {b"dear": 100.0}, 1)  # and there is another one, so that it waits itself
    turns.add(b"other", [[b""]] * 50)
    assert take(turns, {b"other": 1.0}, 50) == [b"other"] * 50
    assert take(turns, {b"dear": 100.0}, 1) == [b"dear"]


def test_who_was_silent_goes_soon_but_has_saved_nothing() -> None:
    turns = FairTurns()
    turns.add(b"busy", [[b""]] * 1000)
    take(turns, {b"busy": 1.0}, 500)
    turns.add(b"silent", [[b""]] * 1000)
    costs = {b"busy": 1.0, b"silent": 1.0}
    assert b"silent" in take(turns, costs, 2)
    assert Counter(take(turns, costs, 100)) == {b"busy": 50, b"silent": 50}


def test_debts_are_not_lost_with_the_last_message() -> None:
    turns = FairTurns()
    turns.add(b"other", [[b""]] * 100)
    for _ in range(10):
        turns.add(b"dear", [[b""]])
        while b"dear" in turns:
            take(turns, {b"dear": 5.0, b"other": 1.0}, 1)
    waiting = len(turns.next()[1])
    assert waiting <= 100 - 45, "who says one dear message at a time pays for each"


def test_costs_besides_turns_count() -> None:
    """Such as those of reading, also while messages wait already."""
    turns = FairTurns()
    turns.charge(b"dear", 50.0)
    for peer in (b"dear", b"cheap"):
        turns.add(peer, [[b""]] * 100)
    assert take(turns, {b"dear": 1.0, b"cheap": 1.0}, 50) == [b"cheap"] * 50
    turns.charge(b"cheap", 20.0)
    assert Counter(take(turns, {b"dear": 1.0, b"cheap": 1.0}, 20))[b"dear"] >= 18


def test_after_a_pause_there_are_no_debts_and_the_first_to_come_goes_first() -> None:
    turns = FairTurns()
    turns.add(b"dear", [[b""]])
    take(turns, {b"dear": 100.0}, 1)
    for peer in (b"dear", b"a", b"b"):
        turns.add(peer, [[b""]])
    assert take(turns, dict.fromkeys((b"dear", b"a", b"b"), 1.0), 3) == [b"dear", b"a", b"b"]


def test_nothing_is_kept_of_who_is_gone() -> None:
    turns = FairTurns()
    for number in range(1000):
        name = b"%d" % number
        turns.add(name, [[b""]])
        take(turns, {name: 1.0}, 1)
        turns.forget(name)
    assert not turns and not turns._costs and not turns._turns


def test_answers_follow_what_their_peer_has_sent_before() -> None:
    turns, part = FairTurns(), SendChunk(b"a", 1, 0, 1, 1)
    turns.add(b"a", [[b"1"]])
    turns.add_answer(b"a", part)
    turns.add(b"a", [[b"2"]])
    _, messages = turns.next()
    assert list(messages) == [[b"1"], part, [b"2"]]


def test_answers_wait_with_the_messages_of_a_paused_peer() -> None:
    turns, part = FairTurns(), SendChunk(b"a", 1, 0, 1, 1)
    turns.add(b"a", [[b"1"]])
    turns.next()
    turns.pause(b"a")
    turns.add_answer(b"a", part)
    assert not turns and b"a" in turns
    turns.resume(b"a")
    assert list(turns.next()[1]) == [[b"1"], part]


def test_answers_that_are_dropped_leave_the_messages() -> None:
    turns, part = FairTurns(), SendChunk(b"a", 1, 0, 1, 1)
    turns.add(b"a", [[b"1"]])
    turns.add_answer(b"a", part)
    turns.drop_answers(b"a")
    turns.drop_answers(b"another")
    assert list(turns.next()[1]) == [[b"1"]]
    turns.pause(b"a")
    turns.add_answer(b"a", part)
    turns.drop_answers(b"a")
    turns.resume(b"a")
    assert list(turns.next()[1]) == [[b"1"]]


def test_a_peer_whose_only_answer_was_dropped_has_an_empty_turn() -> None:
    turns = FairTurns()
    turns.add_answer(b"a", SendChunk(b"a", 1, 0, 1, 1))
    turns.drop_answers(b"a")
    peer, messages = turns.next()
    assert peer == b"a" and not messages
    turns.end_turn(0.0)
    assert not turns and b"a" not in turns
