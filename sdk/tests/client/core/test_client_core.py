"""How futures end when several would end them at once."""

from __future__ import annotations

import itertools
from array import array
from typing import Any, List, Tuple

from scaler import ScalerFuture
from scaler.client.core import commands as c
from scaler.client.core.client_core import ClientCore
from scaler.client.core.effects import CancelAnswered, Cancelled, Effect, Send, SettleResults
from scaler.client.core.kept_objects import KeptObject
from scaler.values.named_functions import NamedFunction
from scaler_protocol.session.ids import object_id_of
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
    (sent,) = core.take_effects()
    assert isinstance(sent, Send) and isinstance(sent.message, m.TaskCancel)
    assert list(sent.message.ids) == [future._task_id]
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


def test_an_answer_to_a_first_cancel_does_not_answer_one_by_force() -> None:
    core, future = unfinished()
    core.apply([c.Cancel([future], False), c.Cancel([future], True)])
    core.take_effects()
    running = m.CancelOutcome.RUNNING
    assert effects_of(core, answer(future, running)) == [CancelAnswered(future, running)]
    core.on_lost()
    assert core.take_effects() == [Cancelled([future])]
    assert not core.pending.forced


def test_what_comes_after_the_end_is_refused() -> None:
    core, future = unfinished()
    core.on_end()
    late: ScalerFuture[Any] = ScalerFuture(None)  # type: ignore[arg-type]  # of no client
    core.apply([(late, ECHO, b"", None)])
    assert core.take_effects() == [Cancelled([future]), Cancelled([late])]


def sent_tasks(core: ClientCore) -> List[int]:
    """The ids of the tasks that are sent now."""
    messages = [effect.message for effect in core.take_effects() if isinstance(effect, Send)]
    return [task_id for message in messages if isinstance(message, m.Task) for task_id in message.ids]


def submitted(core: ClientCore, count: int) -> List[ScalerFuture[Any]]:
    futures: List[ScalerFuture[Any]] = [ScalerFuture(None) for _ in range(count)]  # type: ignore[arg-type]  # of no client
    core.apply([(future, ECHO, b"", None) for future in futures])
    return futures


def recovering() -> Tuple[ClientCore, List[ScalerFuture[Any]]]:
    """A core with four unfinished tasks whose new scheduler takes two at a time, and has been sent two."""
    core = ClientCore(m.Welcome(session=1), itertools.count(1))
    futures = submitted(core, 4)
    assert sent_tasks(core) == [0, 1, 2, 3]
    core.on_lost()
    assert core.on_welcome(m.Welcome(session=2, limits=m.Limits(tasks_in_flight=2))) == 4
    assert sent_tasks(core) == [0, 1]
    return core, futures


def released(core: ClientCore, count: int) -> List[int]:
    """The tasks that are sent when the scheduler has released so many in all."""
    core.on_message(m.TaskEcho(tasks_in_flight=2, tasks_released=count), b"")
    return sent_tasks(core)


def test_no_more_is_sent_again_than_the_new_scheduler_takes() -> None:
    core, _ = recovering()
    assert released(core, 1) == [2]
    assert released(core, 4) == [3]


def test_new_tasks_come_after_those_that_are_sent_again() -> None:
    core, _ = recovering()
    (future,) = submitted(core, 1)
    assert future._task_id == 4 and sent_tasks(core) == [] and core.room == 0
    assert released(core, 1) == [2]
    assert released(core, 3) == [3, 4]


def test_a_task_that_is_not_sent_again_yet_is_cancelled_at_once() -> None:
    core, futures = recovering()
    core.apply([c.Cancel(futures[1:3], False)])
    request, cancelled = sorted(core.take_effects(), key=lambda effect: isinstance(effect, Cancelled))
    assert isinstance(request, Send) and isinstance(request.message, m.TaskCancel) and list(request.message.ids) == [1]
    assert cancelled == Cancelled([futures[2]])
    assert released(core, 1) == [3]


def test_arguments_count_when_they_are_deleted_though_their_task_has_ended_before_all_were_sent_again() -> None:
    core = ClientCore(m.Welcome(session=1), itertools.count(1))
    place = object_id_of(1, 1)
    first: ScalerFuture[Any] = ScalerFuture(None)  # type: ignore[arg-type]  # of no client
    # Only the core refers to the object, which is gone with its task.
    core.apply([c.HoldObject(KeptObject(1, place, "", m.ObjectKind.ARGUMENTS, 1000, "", bytes(1000)))])
    core.apply([c.SubmitTask(first, ECHO, b"", None, [place], (), 1000)])
    (second,) = submitted(core, 1)
    core.take_effects()
    core.on_lost()
    core.on_welcome(m.Welcome(session=2, limits=m.Limits(tasks_in_flight=1, bytes_in_flight=5000)))
    assert sent_tasks(core) == [first._task_id]
    effects_of(core, result(first), b"7")
    core.on_message(m.TaskEcho(tasks_in_flight=1, bytes_in_flight=5000, tasks_released=1), b"")
    task, deletion = [effect.message for effect in core.take_effects() if isinstance(effect, Send)]
    assert isinstance(task, m.Task) and list(task.ids) == [second._task_id]
    assert isinstance(deletion, m.ObjectInstruction) and list(deletion.ids) == [object_id_of(2, 1)]
    assert core.credit.bytes_left == 5000 - 1000


def test_a_task_that_waits_for_credit_is_dropped_when_it_was_cancelled() -> None:
    """And its arguments, which only it holds."""
    core = ClientCore(m.Welcome(session=1, limits=m.Limits(tasks_in_flight=1)), itertools.count(1))
    first, cancelled, last = (ScalerFuture[Any](None) for _ in range(3))  # type: ignore[arg-type]  # of no client
    kept = KeptObject(1, object_id_of(1, 1), "", m.ObjectKind.ARGUMENTS, 1000, "", b"a" * 1000)
    core.apply([c.HoldObject(kept), c.SubmitTask(first, ECHO, b"")])
    core.apply([c.SubmitTask(cancelled, ECHO, b"", None, [kept.object_id], (), 1000), c.SubmitTask(last, ECHO, b"")])
    core.take_effects()
    core.apply([c.Cancel([cancelled], True)])
    assert core.take_effects() == [] and cancelled._task_id < 0 and core.objects.find(kept.object_id) is kept
    core.on_message(result(first), b"7")
    core.on_message(m.TaskEcho(tasks_released=1, tasks_in_flight=1), b"")
    effects = core.take_effects()
    assert Cancelled([cancelled]) in effects and list(core.objects.kept()) == []
    sent = [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, m.Task)]
    assert [list(message.ids) for message in sent] == [[last._task_id]] and list(core.futures.values()) == [last]
