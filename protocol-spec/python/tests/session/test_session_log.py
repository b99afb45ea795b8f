"""What one end of a session keeps of what it has sent."""

from __future__ import annotations

from typing import List

from hypothesis import given
from hypothesis import strategies as st

from scaler_protocol.session.session_log import MESSAGE_BYTES, SessionLog


def log_of(*contents: bytes) -> SessionLog:
    log = SessionLog()
    for each in contents:
        log.add([each])
    return log


def test_what_was_acknowledged_is_not_kept() -> None:
    log = log_of(b"one", b"two", b"three")

    assert log.acknowledge(2)

    assert log.rest() == [[b"three"]]
    assert (log.sent, log.acknowledged, log.kept_bytes) == (3, 2, MESSAGE_BYTES + 5)


def test_a_count_that_is_lower_than_before_says_nothing() -> None:
    log = log_of(b"one", b"two")
    log.acknowledge(1)

    assert log.acknowledge(0)

    assert log.rest() == [[b"two"]]


def test_a_count_of_more_than_was_sent_ends_the_log() -> None:
    log = log_of(b"one")

    assert not log.acknowledge(2)

    assert (log.is_whole, log.rest(), log.kept_bytes) == (False, [], 0)
    assert not log.can_resume(1)


def test_what_has_been_kept_for_longest_makes_room() -> None:
    log = SessionLog(most_bytes=2 * MESSAGE_BYTES + 10)
    log.add([b"12345", memoryview(bytes(5))])
    assert log.kept_bytes == MESSAGE_BYTES + 10

    log.add([b"123456789012"])
    log.add([b"and on"])

    assert log.rest() == [[b"and on"]]
    assert (log.is_whole, log.kept_bytes) == (False, MESSAGE_BYTES + 6)
    assert [log.can_resume(each) for each in range(5)] == [False, False, True, True, False]


def test_a_log_is_whole_again_when_what_it_has_forgotten_has_arrived() -> None:
    log = log_of(b"one", b"two")
    log.forget()
    log.add([b"three"])
    assert (log.is_whole, log.can_resume(1)) == (False, False)

    log.acknowledge(1)
    assert (log.is_whole, log.can_resume(1)) == (False, False)
    log.acknowledge(2)

    assert (log.is_whole, log.can_resume(2)) == (True, True)
    assert log.rest() == [[b"three"]]


def test_a_message_that_is_too_long_to_be_kept_costs_nothing_else() -> None:
    log = SessionLog(most_bytes=MESSAGE_BYTES + 10)

    log.add([bytes(11)])

    assert (log.sent, log.rest(), log.kept_bytes) == (1, [], 0)
    assert [log.can_resume(each) for each in range(3)] == [False, True, False]


def test_what_was_given_up_stays_so() -> None:
    log = log_of(b"one")
    log.give_up()

    log.add([b"two"])
    log.acknowledge(2)

    assert (log.is_whole, log.rest(), log.kept_bytes) == (False, [], 0)
    assert not log.can_resume(2)


def test_a_payload_of_other_than_bytes_counts_in_bytes() -> None:
    log = SessionLog()

    log.add([b"", memoryview(bytes(80)).cast("Q")])

    assert log.kept_bytes == MESSAGE_BYTES + 80


@given(st.lists(st.one_of(st.binary(max_size=5), st.integers(0, 30))))
def test_what_is_kept_is_what_was_sent_less_what_was_acknowledged(steps: List[object]) -> None:
    log, sent, acknowledged = SessionLog(), [], 0
    for step in steps:
        if isinstance(step, bytes):
            log.add([step])
            sent.append([step])
        elif isinstance(step, int) and step <= len(sent):
            log.acknowledge(step)
            acknowledged = max(acknowledged, step)
    assert log.rest() == sent[acknowledged:]
    assert log.kept_bytes == sum(MESSAGE_BYTES + len(each) for [each] in sent[acknowledged:])
    assert [log.can_resume(each) for each in range(len(sent) + 2)] == [
        acknowledged <= each <= len(sent) for each in range(len(sent) + 2)
    ]
