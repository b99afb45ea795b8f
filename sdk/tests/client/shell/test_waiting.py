"""Waiting for another thread."""

from __future__ import annotations

import threading
import time
from typing import List

import pytest

from scaler.client.shell import waiting
from scaler.client.shell.waiting import LONGEST_CALL_SECONDS, Waiter


class Lock:
    """Plays the lock of a waiter, and a clock: each call takes as long as it may, until the lock is freed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, freed_at: float) -> None:
        self.now = 0.0
        self.calls: List[float] = []
        self._freed_at = freed_at
        monkeypatch.setattr(waiting, "time", self)

    def monotonic(self) -> float:
        return self.now

    def acquire(self, timeout: float) -> bool:
        self.calls.append(timeout)
        self.now += min(timeout, max(0.0, self._freed_at - self.now))
        return self.now >= self._freed_at


def waiter_with(lock: Lock) -> Waiter:
    waiter = Waiter()
    waiter._lock = lock  # type: ignore[assignment]  # it is played
    return waiter


@pytest.mark.parametrize("timeout", [None, 100.0])
def test_no_call_waits_for_long_as_a_signal_may_come_just_before_it(
    monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    lock = Lock(monkeypatch, freed_at=3.5)
    assert waiter_with(lock).wait(timeout)
    assert lock.now == 3.5 and max(lock.calls) == LONGEST_CALL_SECONDS


@pytest.mark.parametrize("timeout", [0.0, 0.25, 1.0, 2.5])
def test_it_ends_in_time(monkeypatch: pytest.MonkeyPatch, timeout: float) -> None:
    lock = Lock(monkeypatch, freed_at=1000.0)
    assert not waiter_with(lock).wait(timeout)
    assert lock.now == timeout


def test_a_time_that_has_passed_is_none() -> None:
    assert not Waiter().wait(-1.0)


def test_it_ends_when_it_is_woken() -> None:
    waiter = Waiter()
    threading.Timer(0.01, waiter.wake).start()
    began = time.monotonic()
    assert waiter.wait(60.0)
    assert time.monotonic() - began < 30.0
