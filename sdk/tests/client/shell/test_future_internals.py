"""What `concurrent.futures` makes of our futures, whose private fields are set by us, on the Python that runs this."""

from __future__ import annotations

import threading
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, Future, as_completed, wait
from types import SimpleNamespace
from typing import Any, List, Tuple

import pytest

from scaler import ScalerFuture
from scaler.client.shell.settling import Settling

TIMEOUT_SECONDS = 30.0


def futures_of(count: int) -> Tuple[Settling, List[ScalerFuture[Any]]]:
    settling = Settling()
    client: Any = SimpleNamespace(_shell=SimpleNamespace(condition=settling.condition, serializer=None))
    return settling, [ScalerFuture(client) for _ in range(count)]


def test_the_base_class_still_has_the_fields_that_are_set() -> None:
    fields = {"_state", "_result", "_exception", "_waiters", "_done_callbacks", "_condition"}
    assert fields <= vars(Future()).keys()
    assert fields <= {name for kind in ScalerFuture.__mro__ for name in vars(kind)}


def test_one_that_waits_for_all_is_woken_once_by_each() -> None:
    settling, futures = futures_of(3)
    done: List[Any] = []
    waiting = threading.Thread(target=lambda: done.append(wait(futures, TIMEOUT_SECONDS, ALL_COMPLETED)))
    settling.cancelled(futures[:1])
    settling.notify()
    waiting.start()
    for future in futures[1:]:
        settling.failed([future], ValueError("broken"))
        settling.notify()
        settling.cancelled([future])  # which comes too late
        settling.notify()
    waiting.join(TIMEOUT_SECONDS)
    assert done[0].done == set(futures)
    assert [future.cancelled() for future in futures] == [True, False, False]


def test_one_that_waits_for_a_failure_is_woken_by_it() -> None:
    settling, futures = futures_of(2)
    settling.failed(futures[:1], ValueError("broken"))
    settling.notify()
    assert wait(futures, TIMEOUT_SECONDS, FIRST_EXCEPTION).done == {futures[0]}
    with pytest.raises(ValueError, match="broken"):
        futures[0].result()


def test_futures_come_as_they_are_completed() -> None:
    settling, futures = futures_of(3)
    settling.cancelled(futures[2:])
    settling.notify()
    completed = as_completed(futures, TIMEOUT_SECONDS)
    assert next(completed) is futures[2]
    settling.cancelled(futures[:1])
    settling.notify()
    assert next(completed) is futures[0]
    settling.cancelled(futures[1:])
    settling.notify()
    assert list(completed) == futures[1:2]


def test_callbacks_run_once_each() -> None:
    settling, (future,) = futures_of(1)
    called = [threading.Event(), threading.Event()]
    future.add_done_callback(lambda _: called[0].set())
    settling.cancelled([future])
    settling.notify()
    future.add_done_callback(lambda _: called[1].set())
    assert all(each.wait(TIMEOUT_SECONDS) for each in called)
    settling.close()
