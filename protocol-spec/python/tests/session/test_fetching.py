"""A fetch window requests every byte of an object once, a few chunks ahead, and refuses what it did not request."""

from __future__ import annotations

from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_protocol import MalformedMessageError
from scaler_protocol.session.fetching import FETCH_WINDOW_CHUNKS, FetchWindow, PartRequest


def test_the_first_request_is_alone_until_the_size_is_known() -> None:
    window = FetchWindow(chunk_bytes=10)
    assert window.requests() == [(0, 10)]
    assert window.requests() == []
    window.accept(0, 10, 95)
    assert window.requests() == [(10, 10), (20, 10), (30, 10), (40, 10)]
    assert window.requests() == []


def test_a_known_size_fills_the_window_at_once() -> None:
    assert FetchWindow(10, size=25).requests() == [(0, 10), (10, 10), (20, 5)]


@pytest.mark.parametrize("known", [True, False])
def test_an_object_without_bytes_takes_one_request(known: bool) -> None:
    window = FetchWindow(10, 0 if known else None)
    assert known == window.is_complete
    if not known:
        assert window.requests() == [(0, 10)]
        window.accept(0, 0, 0)
    assert window.is_complete and window.requests() == []


def test_what_a_short_answer_leaves_out_is_requested_again() -> None:
    window = FetchWindow(10, size=20)
    assert window.requests() == [(0, 10), (10, 10)]
    window.accept(0, 4, 20)
    assert window.requests() == [(4, 6)]


def test_a_short_answer_of_a_peer_that_has_to_send_all_is_refused() -> None:
    window = FetchWindow(10, size=14)
    assert window.requests() == [(0, 10), (10, 4)]
    window.accept(10, 4, 14, is_exact=True)
    with pytest.raises(MalformedMessageError, match="from byte 0 of 14 has 9 bytes, not 10"):
        window.accept(0, 9, 14, is_exact=True)
    assert window.received_bytes == 4
    window.accept(0, 10, 14, is_exact=True)
    assert window.is_complete


@given(
    size=st.integers(0, 300),
    chunk_bytes=st.integers(1, 40),
    is_known=st.booleans(),
    choices=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), min_size=1),
)
def test_every_byte_arrives_once_whatever_the_order_and_length_of_answers(
    size: int, chunk_bytes: int, is_known: bool, choices: List[Tuple[int, int]]
) -> None:
    window = FetchWindow(chunk_bytes, size if is_known else None)
    arrived = bytearray(size)
    open_requests: List[PartRequest] = []
    step = 0
    while not window.is_complete:
        open_requests += window.requests()
        assert 1 <= len(open_requests) <= FETCH_WINDOW_CHUNKS
        which, length = choices[step % len(choices)]
        step += 1
        request = open_requests.pop(which % len(open_requests))
        given_bytes = min(request.length, length, size - request.offset)
        for position in range(request.offset, request.offset + given_bytes):
            arrived[position] += 1
        window.accept(request.offset, given_bytes, size)
    assert window.requests() == [] and not open_requests
    assert arrived == b"\1" * size


@pytest.mark.parametrize(
    ("offset", "length", "size", "why"),
    [
        (10, 5, 95, "not requested"),
        (0, 11, 95, "not requested"),
        (0, 10, 5, "exceed the object's size"),
        (0, 0, 95, "no bytes"),
    ],
)
def test_an_answer_that_was_not_requested_is_refused(offset: int, length: int, size: int, why: str) -> None:
    window = FetchWindow(10)
    window.requests()
    with pytest.raises(MalformedMessageError, match=why):
        window.accept(offset, length, size)
    assert not window.is_complete


def test_an_object_cannot_change_its_size() -> None:
    window = FetchWindow(10)
    window.requests()
    window.accept(0, 10, 30)
    window.requests()
    with pytest.raises(MalformedMessageError, match="an object of 30 bytes cannot have 31"):
        window.accept(10, 10, 31)
    with pytest.raises(MalformedMessageError, match="not requested"):
        window.accept(0, 10, 30)


def test_a_request_that_is_refused_is_answered() -> None:
    window = FetchWindow(10, 25)
    window.requests()
    assert window.unanswered == [0, 10, 20]
    window.refuse(10)
    window.refuse(99)
    window.accept(20, 5, 25)
    assert window.unanswered == [0]
