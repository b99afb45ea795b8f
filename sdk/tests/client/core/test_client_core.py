"""How futures end when several would end them at once."""

from __future__ import annotations

import itertools
from array import array
from typing import Any, List, Tuple

from scaler import ScalerFuture
from scaler.client.core import commands as c
from scaler.client.core.client_core import ClientCore
from scaler.client.core.effects import CancelAnswered, Cancelled, Effect, Send, SettleResults
from scaler.values.named_functions import NamedFunction
from scaler_protocol.wire import messages as m

ECHO = NamedFunction("scaler.conformance/echo")


def unfinished() -> Tuple[ClientCore, ScalerFuture[Any]]:
    """A core with one task that was sent."""
    core = ClientCore(m.Welcome(session=1), itertools.count(1))
    future: ScalerFuture[Any] = ScalerFuture(None)  # type: ignore[arg-type]  # of no client
    core.apply([(future, ECHO, b"", None)])
    assert [type(effect) for effect in core.take_effects()] == [Send]
    return core, future


def answer(future: ScalerFuture[Any], outcome: m.CancelOutcome) -> m.TaskCancelConfirm:
    return m.TaskCancelConfirm(ids=array("Q", [future._task_id]), outcomes=bytes([outcome]))


def result(future: ScalerFuture[Any]) -> m.TaskResult:
    return m.TaskResult(ids=array("Q", [future._task_id]), payload_sizes=array("I", [1]))


def effects_of(core: ClientCore, message: m.Member, payload: bytes = b"") -> List[Effect]:
    core.on_message(message, payload)
    return core.take_effects()


def test_a_task_that_ends_while_it_is_stopped_has_its_result() -> None:
    core, future = unfinished()
    core.apply([c.Cancel([future], True)])
    ((request, _),) = core.take_effects()
    assert isinstance(request, m.TaskCancel) and list(request.ids) == [future._task_id]
    running = m.CancelOutcome.RUNNING
    assert effects_of(core, answer(future, running)) == [CancelAnswered(future, running)]
    (settled,) = effects_of(core, result(future), b"7")
    assert isinstance(settled, SettleResults) and settled.futures == [future]
    assert effects_of(core, answer(future, m.CancelOutcome.CANCELLED)) == []


def test_a_future_that_was_given_up_hears_of_nothing_more() -> None:
    core, future = unfinished()
    core.apply([c.GiveUp([future])])
    assert core.take_effects() == [Cancelled([future])]
    assert effects_of(core, answer(future, m.CancelOutcome.CANCELLED)) == []
    (settled,) = effects_of(core, result(future), b"7")
    assert isinstance(settled, SettleResults) and settled.futures == [None]


def test_a_task_is_cancelled_at_once_while_there_is_no_scheduler() -> None:
    core, future = unfinished()
    core.on_lost()
    core.apply([c.Cancel([future], False)])
    assert core.take_effects() == [Cancelled([future])]


def test_a_cancel_that_was_not_answered_before_the_session_ended_is_granted() -> None:
    core, future = unfinished()
    core.apply([c.Cancel([future], False)])
    core.take_effects()
    core.on_lost()
    assert core.take_effects() == [Cancelled([future])]


def test_what_comes_after_the_end_is_refused() -> None:
    core, future = unfinished()
    core.on_end()
    late: ScalerFuture[Any] = ScalerFuture(None)  # type: ignore[arg-type]  # of no client
    core.apply([(late, ECHO, b"", None)])
    assert core.take_effects() == [Cancelled([future]), Cancelled([late])]
