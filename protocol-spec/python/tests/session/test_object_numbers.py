"""Numbers of objects: each once, and none follows from the others."""

from __future__ import annotations

from itertools import islice
from typing import List

from scaler_protocol.session import object_numbers as module
from scaler_protocol.session.ids import FIRST_SCHEDULER_NUMBER
from scaler_protocol.session.object_numbers import SECRET_BYTES, object_numbers

SECRET = bytes(range(SECRET_BYTES))
MANY = 20_000


def numbers(count: int, secret: bytes = SECRET) -> List[int]:
    return list(islice(object_numbers(secret), count))


def test_no_number_comes_twice_and_all_are_a_peers_own() -> None:
    found = numbers(MANY)
    assert len(set(found)) == MANY
    assert min(found) > 0 and max(found) < FIRST_SCHEDULER_NUMBER


def test_they_are_an_order_of_all_numbers() -> None:
    """With halves of four and three bits, in the place of twenty and nineteen, one can look at all of them."""
    small = {"_LEFT_BITS": 4, "_RIGHT_BITS": 3, "_LEFT_MASK": 15, "_RIGHT_MASK": 7}
    before = {name: getattr(module, name) for name in small}
    try:
        for name, value in small.items():
            setattr(module, name, value)
        assert sorted(module._permute(SECRET, number) for number in range(1 << 7)) == list(range(1 << 7))
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def test_they_are_spread_over_the_whole_range() -> None:
    found = numbers(MANY)
    per_sixteenth = [0] * 16
    for number in found:
        per_sixteenth[number >> 35] += 1
    assert all(0.9 * MANY / 16 <= count <= 1.1 * MANY / 16 for count in per_sixteenth)
    steps = {after - before for before, after in zip(found, found[1:])}
    assert len(steps) == MANY - 1, "no two are as far from the one before"


def test_another_secret_gives_other_numbers_and_the_same_one_the_same() -> None:
    others = numbers(MANY, bytes(SECRET_BYTES))
    assert len(set(others) & set(numbers(MANY))) <= 5
    assert numbers(10) == numbers(10)
