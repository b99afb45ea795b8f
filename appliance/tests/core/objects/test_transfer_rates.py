"""How fast workers get bytes from each other, as measured by their transfers."""

from __future__ import annotations

import pytest

from scaler_appliance.core.objects.transfer_rates import TransferRates

ASSUMED = 200e6
PART = 1_000_000
FIRST, SECOND = 1, 2


@pytest.fixture
def rates() -> TransferRates:
    return TransferRates(ASSUMED, PART)


def transfer(rates: TransferRates, holder: int, size_bytes: int, seconds: float) -> None:
    """One by itself."""
    rates.begin(holder, 10.0)
    rates.complete(holder, size_bytes, 10.0 + seconds)
    rates.pause(holder)


def test_before_a_transfer_the_rate_is_the_assumed_one(rates: TransferRates) -> None:
    assert rates.of(FIRST) == ASSUMED


def test_a_workers_rate_is_that_of_its_transfers_and_others_have_it_until_they_are_measured(
    rates: TransferRates,
) -> None:
    transfer(rates, FIRST, 10 * PART, 1.0)
    assert rates.of(FIRST) == rates.of(SECOND) == 10 * PART
    transfer(rates, SECOND, 10 * PART, 10.0)
    assert rates.of(FIRST) == 10 * PART
    assert rates.of(SECOND) == PART


def test_transfers_at_once_count_together_and_the_time_between_transfers_does_not(rates: TransferRates) -> None:
    rates.begin(FIRST, 0.0)
    rates.begin(FIRST, 0.5)
    rates.complete(FIRST, 10 * PART, 1.0)
    rates.complete(FIRST, 10 * PART, 2.0)
    rates.pause(FIRST)
    rates.begin(FIRST, 100.0)
    rates.complete(FIRST, 10 * PART, 101.0)
    assert rates.of(FIRST) == pytest.approx(10 * PART)


def test_a_link_that_changes_is_known_after_a_few_transfers(rates: TransferRates) -> None:
    for _ in range(100):
        transfer(rates, FIRST, 10 * PART, 0.01)
    for _ in range(5):
        transfer(rates, FIRST, 10 * PART, 10.0)
    assert rates.of(FIRST) < 1.5 * PART


def test_a_large_transfer_counts_for_more_than_a_small_one(rates: TransferRates) -> None:
    transfer(rates, FIRST, 100 * PART, 1.0)
    transfer(rates, FIRST, PART, 1.0)
    assert rates.of(FIRST) > 40 * PART


@pytest.mark.parametrize(("size_bytes", "seconds"), [(PART - 1, 1.0), (0, 1.0), (10 * PART, 0.0), (10 * PART, -1.0)])
def test_what_says_nothing_about_the_link_does_not_count(rates: TransferRates, size_bytes: int, seconds: float) -> None:
    """Small objects, and clocks that do not go on or go back."""
    transfer(rates, FIRST, size_bytes, seconds)
    assert rates.of(FIRST) == ASSUMED and not rates.holders


def test_a_worker_that_is_gone_is_forgotten_and_what_it_taught_is_not(rates: TransferRates) -> None:
    transfer(rates, FIRST, 10 * PART, 1.0)
    rates.begin(FIRST, 20.0)
    rates.forget(FIRST)
    rates.complete(FIRST, 10 * PART, 30.0)
    rates.forget(SECOND)
    assert not rates.holders
    assert rates.of(FIRST) == 10 * PART


def test_a_transfer_that_does_not_end_takes_no_time_from_others(rates: TransferRates) -> None:
    rates.begin(FIRST, 0.0)
    rates.begin(FIRST, 3600.0)
    rates.complete(FIRST, 10 * PART, 3602.0, began_at=3600.0)
    assert rates.of(FIRST) == 5 * PART
