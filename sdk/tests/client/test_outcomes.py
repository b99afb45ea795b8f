"""How futures end when several would end them at once."""

from __future__ import annotations

import threading
from array import array
from types import SimpleNamespace
from typing import Any, Dict, Optional, Tuple

import pytest

from scaler import ScalerFuture
from scaler.client.core.kept_objects import ObjectChannel
from scaler.client.core.pending_futures import Outcomes
from scaler_protocol import messages as m

TIMEOUT_SECONDS = 30.0
TASK_ID = 5


def unfinished() -> Tuple[Outcomes, ScalerFuture]:
    """Outcomes of a client with one task."""
    outcomes = Outcomes(threading.Lock(), ObjectChannel(m.Welcome(session=1)), lambda message: None)
    client: Any = SimpleNamespace(_core=SimpleNamespace(outcomes=outcomes))
    future: ScalerFuture = ScalerFuture(client, TASK_ID)
    outcomes.futures[TASK_ID] = future
    return outcomes, future


def answer(outcome: m.CancelOutcome) -> m.TaskCancelConfirm:
    return m.TaskCancelConfirm(ids=array("Q", [TASK_ID]), outcomes=bytes([outcome]))


def test_a_task_that_ends_while_it_is_stopped_is_done_when_its_cancel_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, future = unfinished()
    result = m.TaskResult(ids=array("Q", [TASK_ID]), payload_sizes=array("I", [1]))
    events = iter(
        [
            lambda: outcomes.on_cancel_confirm(answer(m.CancelOutcome.RUNNING)),
            lambda: outcomes.on_task_result(result, b"7"),
        ]
    )
    monkeypatch.setattr(outcomes.condition, "wait", lambda seconds: next(events)())

    assert not outcomes.await_cancel(future, TIMEOUT_SECONDS, force=True)
    assert future.done() and not future.cancelled()


def test_a_running_task_that_is_not_to_be_stopped_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, future = unfinished()
    events = iter([lambda: outcomes.on_cancel_confirm(answer(m.CancelOutcome.RUNNING))])
    monkeypatch.setattr(outcomes.condition, "wait", lambda seconds: next(events)())

    assert not outcomes.await_cancel(future, TIMEOUT_SECONDS, force=False)
    assert not future.done()


def test_a_future_that_clear_takes_in_the_middle_of_an_answer_is_left_to_it() -> None:
    class TakenAsSoonAsSeen(Dict[int, Any]):
        def get(self, task_id: int, default: Optional[Any] = None) -> Any:
            return self.pop(task_id, default)

    outcomes, future = unfinished()
    outcomes.futures = TakenAsSoonAsSeen(outcomes.futures)
    outcomes.on_cancel_confirm(answer(m.CancelOutcome.CANCELLED))
    assert not future.done()
