"""Requests on a path with a delay and a rate, in virtual time: there are as many as keep it busy."""

from __future__ import annotations

from collections import deque
from typing import Deque, NamedTuple, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.worker.agent.core.transfers.request_pace import MOST_OPEN_REQUESTS, RequestPace
from scaler_protocol.session.fetching import FETCH_WINDOW_CHUNKS

PARTS = 1000


class Transfer(NamedTuple):
    """What came of one."""

    busy_share: float  # of the holder's time, over the second half
    most_open: int


def transfer(round_trip_seconds: float, part_seconds: float) -> Transfer:
    """Fetch PARTS parts from a holder that sends one after the other."""
    pace = RequestPace()
    answers: Deque[Tuple[int, float]] = deque()  # offset, and when it arrives
    free_at = now = 0.0  # the holder
    requested = most_open = 0
    busy_from = 0.0
    for arrived in range(PARTS):
        while len(answers) < pace.most and requested < PARTS:
            pace.on_request(requested, now)
            free_at = max(free_at, now + round_trip_seconds / 2) + part_seconds
            answers.append((requested, free_at + round_trip_seconds / 2))
            requested += 1
        most_open = max(most_open, len(answers))
        offset, now = answers.popleft()
        pace.on_answer(offset, now)
        if arrived == PARTS // 2:
            busy_from = now
    return Transfer((PARTS - 1 - PARTS // 2) * part_seconds / (now - busy_from), most_open)


@given(round_trip_milliseconds=st.integers(0, 300), part_milliseconds=st.integers(1, 100))
def test_a_path_is_kept_busy_as_far_as_requests_may_be_open(
    round_trip_milliseconds: int, part_milliseconds: int
) -> None:
    found = transfer(round_trip_milliseconds / 1000, part_milliseconds / 1000)
    on_their_way = 1 + round_trip_milliseconds / part_milliseconds
    assert found.busy_share == pytest.approx(min(1.0, MOST_OPEN_REQUESTS / on_their_way), rel=0.03)
    assert FETCH_WINDOW_CHUNKS <= found.most_open <= min(MOST_OPEN_REQUESTS, 4 * on_their_way + 2)


def test_nearby_there_are_few_requests() -> None:
    assert transfer(round_trip_seconds=0.0002, part_seconds=0.0015).most_open <= FETCH_WINDOW_CHUNKS + 2


def test_an_answer_to_no_request_does_not_count() -> None:
    pace = RequestPace()
    for _ in range(10):
        pace.on_answer(77, 1.0)
    assert pace.most == FETCH_WINDOW_CHUNKS
