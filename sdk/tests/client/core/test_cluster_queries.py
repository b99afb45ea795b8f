"""Queries to the scheduler, its unsolicited messages, and commands that are refused after the client has ended."""

from __future__ import annotations

import itertools
from array import array
from typing import Any, List, Optional, Sequence

from scaler import ScalerFuture
from scaler.client.core import commands as c
from scaler.client.core.client_core import ClientCore
from scaler.client.core.deferring import PREDECESSORS, DeferredTask
from scaler.client.core.effects import Cancelled, Effect, Failed, NoteStack, Send, SendDeferred, Tell, Warn
from scaler.client.core.handles import REFUSED
from scaler.client.core.kept_objects import KeptObject
from scaler.values.named_functions import NamedFunction
from scaler_protocol.wire import messages as m

ECHO = NamedFunction("scaler.conformance/echo")
FUNCTION_ID = 1 << 40 | 9


class SomeAsker:
    """One thread that waits for an answer."""

    def put(self, answer: Any) -> None:
        raise AssertionError("the core never answers an asker itself")


def make_core(*features: str) -> ClientCore:
    return ClientCore(m.Welcome(session=1, features=features), itertools.count(1))


def make_future() -> ScalerFuture[Any]:
    return ScalerFuture(None)  # type: ignore[arg-type]  # of no client


def submitted(core: ClientCore) -> ScalerFuture[Any]:
    future = make_future()
    core.apply([(future, ECHO, b"", None)])
    assert [type(effect) for effect in core.take_effects()] == [Send]
    return future


def effects_of(core: ClientCore, *commands: Any) -> List[Effect]:
    core.apply(commands)
    return core.take_effects()


def effects_of_message(core: ClientCore, message: m.Member, payload: bytes = b"") -> List[Effect]:
    core.on_message(message, payload)
    return core.take_effects()


def sent(effects: Sequence[Effect]) -> List[Any]:
    assert all(isinstance(effect, Send) for effect in effects), effects
    return [effect.message for effect in effects if isinstance(effect, Send)]


# Queries --------------------------------------------------------------------------------------------------------------


def test_each_question_gets_its_own_answer() -> None:
    core, first, second = make_core(), SomeAsker(), SomeAsker()
    questions = sent(effects_of(core, c.Ask(m.InfoRequest(), first), c.Ask(m.WorkerShutdown(name="a"), second)))
    numbers = [question.request_id for question in questions]
    assert len(set(numbers)) == 2

    refusal = m.WorkerShutdownResponse(request_id=numbers[1])
    assert effects_of_message(core, refusal) == [Tell(second, refusal)]
    info = m.Info(request_id=numbers[0])
    assert effects_of_message(core, info) == [Tell(first, info)]
    assert effects_of_message(core, info) == []


def test_requests_to_stop_the_cluster_are_answered_in_order() -> None:
    core, first, second, impatient = make_core(), SomeAsker(), SomeAsker(), SomeAsker()
    effects_of(core, *(c.Ask(m.ClientShutdown(), asker) for asker in (impatient, first, second)))
    assert effects_of(core, c.ForgetQuery(impatient)) == []

    no, yes = m.ClientShutdownResponse(message="protected"), m.ClientShutdownResponse(accepted=True)
    assert effects_of_message(core, no) == [Tell(first, no)]
    assert effects_of_message(core, yes) == [Tell(second, yes)]
    assert effects_of_message(core, yes) == []


def test_an_answer_that_comes_too_late_is_dropped() -> None:
    core, asker = make_core(), SomeAsker()
    (question,) = sent(effects_of(core, c.Ask(m.InfoRequest(), asker)))
    assert effects_of(core, c.ForgetQuery(asker)) == []
    assert effects_of_message(core, m.Info(request_id=question.request_id)) == []


def test_who_waits_for_room_and_gives_up_is_not_told_later() -> None:
    limits = m.Limits(tasks_in_flight=1)
    core = ClientCore(m.Welcome(session=1, limits=limits), itertools.count(1))
    future, patient, impatient = make_future(), SomeAsker(), SomeAsker()
    core.apply([(future, ECHO, b"", None)])
    core.take_effects()
    assert effects_of(core, c.AwaitRoom(impatient), c.AwaitRoom(patient), c.ForgetQuery(impatient)) == []
    assert effects_of_message(core, m.TaskEcho(tasks_in_flight=1, tasks_released=1)) == [Tell(patient, True)]


# Explanations ---------------------------------------------------------------------------------------------------------


def test_the_scheduler_is_asked_where_a_task_is() -> None:
    core, asker = make_core(), SomeAsker()
    future = submitted(core)
    (question,) = sent(effects_of(core, c.Explain(future, asker)))
    assert question.task_id == future._task_id
    answer = m.Explanation(request_id=question.request_id, text="it runs on worker 7")
    assert effects_of_message(core, answer) == [Tell(asker, answer)]


def test_the_client_knows_itself_where_a_task_is_that_the_scheduler_does_not_have() -> None:
    core, asker = make_core(), SomeAsker()
    needed = submitted(core)
    waiting, ended = make_future(), make_future()
    core.apply([c.SubmitTask(waiting, ECHO, b"", predecessors=[needed])])
    assert core.take_effects() == []
    assert effects_of(core, c.Explain(waiting, asker)) == [Tell(asker, waiting._source)]
    assert effects_of(core, c.Explain(ended, asker)) == [Tell(asker, None)]
    core.on_lost()
    assert effects_of(core, c.Explain(needed, asker)) == [Tell(asker, c.NOT_CONNECTED)]


def test_what_the_scheduler_says_of_its_own_accord_is_a_warning() -> None:
    text = "no worker has a gpu"
    assert effects_of_message(make_core(), m.Explanation(text=text)) == [Warn(text)]


def test_the_stack_of_a_cancelled_task_is_recorded() -> None:
    core = make_core()
    future = submitted(core)
    assert effects_of_message(core, m.TaskLog(id=future._task_id, text="at line 3")) == [NoteStack(future, "at line 3")]
    assert effects_of_message(core, m.TaskLog(id=99, text="at line 3")) == []


def test_messages_that_are_not_for_clients_are_ignored() -> None:
    assert effects_of_message(make_core(), m.BalanceRequest(request_id=1, count=1)) == []


# The end --------------------------------------------------------------------------------------------------------------


def test_commands_after_the_end_are_answered() -> None:
    core, asker = make_core(), SomeAsker()
    core.on_end()
    task, target = make_future(), make_future()
    graph = c.SubmitGraph(None, [], {0: target})  # type: ignore[arg-type]  # it is not looked at
    effects = effects_of(core, c.SubmitTask(task, ECHO, b"", asker=asker), graph, c.LetGo([1]))
    assert effects == [Cancelled([task, target]), Tell(asker, None)]


def test_who_waits_for_room_when_the_client_leaves_is_told() -> None:
    limits = m.Limits(tasks_in_flight=1)
    core = ClientCore(m.Welcome(session=1, limits=limits), itertools.count(1))
    running, waiting, asker = make_future(), make_future(), SomeAsker()
    core.apply([(running, ECHO, b"", None), c.SubmitTask(waiting, ECHO, b"", asker=asker)])
    core.take_effects()
    core.on_leaving()
    assert core.take_effects() == [Cancelled([waiting]), Tell(asker, None)]


def test_a_future_can_be_given_up_while_the_client_leaves() -> None:
    core = make_core()
    future = submitted(core)
    core.on_leaving()
    assert effects_of(core, c.GiveUp([future])) == [Cancelled([future])]


def test_all_futures_end_with_the_reason_that_ends_the_client() -> None:
    core, reason = make_core(), ConnectionError("refused")
    future = submitted(core)
    core.on_end(reason)
    assert core.take_effects() == [Failed([future], reason)]
    core.on_end(reason)
    assert core.take_effects() == []


# Tasks that wait here -------------------------------------------------------------------------------------------------


def deferred(core: ClientCore) -> ScalerFuture[Any]:
    """A task whose predecessor has ended, and that is about to be sent."""
    needed, future = submitted(core), make_future()
    core.apply([c.SubmitTask(future, ECHO, b"", predecessors=[needed])])
    result = m.TaskResult(ids=array("Q", [needed._task_id]), payload_sizes=array("I", [1]))
    assert effects_of_message(core, result, b"7")[-1] == SendDeferred(future._source)
    return future


def test_a_waiting_task_whose_arguments_cannot_be_made_fails() -> None:
    core, error = make_core(), MemoryError("full")
    future = deferred(core)
    assert effects_of(core, c.EndDeferred(future._source, error=error)) == [Failed([future], error)]


def test_a_waiting_task_that_was_cancelled_ends_once() -> None:
    core = make_core()
    future = deferred(core)
    task: DeferredTask = future._source
    assert effects_of(core, c.Cancel([future], True)) == [Cancelled([future])]
    assert effects_of(core, c.EndDeferred(task, failed=make_future()), c.EndDeferred(task)) == []
    (instruction,) = sent(effects_of(core, c.SubmitDeferred(task, b"", [], [1 << 40 | 5])))
    assert (instruction.action, list(instruction.ids)) == (m.ObjectAction.DELETE, [1 << 40 | 5])


def test_a_task_that_is_lost_for_another_reason_than_its_predecessor_does_not_wait_here() -> None:
    core = make_core(PREDECESSORS)
    needed, future = submitted(core), make_future()
    core.apply([c.SubmitTask(future, ECHO, b"", predecessors=[needed])])
    assert [type(message) for message in sent(core.take_effects())] == [m.Task]
    result = m.TaskResult(ids=array("Q", [future._task_id]), payload_sizes=array("I", [3]))
    result.statuses = bytes([m.TaskStatus.LOST])
    (settled,) = effects_of_message(core, result, b"???")
    (outcome,) = settled.outcomes  # type: ignore[union-attr]  # SettleOutcomes
    assert (outcome.future, outcome.payload, outcome.has_failed) == (future, b"???", True)


# Functions that were let go -------------------------------------------------------------------------------------------


def hold_function(core: ClientCore) -> KeptObject:
    kept = KeptObject(9, FUNCTION_ID, "f", m.ObjectKind.FUNCTION, 1, "cloudpickle", b"f")
    core.apply([c.HoldObject(kept)])
    core.take_effects()
    return kept


def refused(core: ClientCore, future: ScalerFuture[Any], task: Optional[Any] = None) -> bool:
    core.apply([task or (future, FUNCTION_ID, b"", None)])
    return future._task_id == REFUSED and future not in core.futures.values()


def test_a_task_whose_function_was_let_go_is_to_be_submitted_again() -> None:
    core = make_core()
    hold_function(core)
    effects_of(core, c.LetGo([FUNCTION_ID]))
    assert refused(core, make_future())
    asker, future = SomeAsker(), make_future()
    assert refused(core, future, c.SubmitTask(future, FUNCTION_ID, b"", asker=asker))
    assert core.take_effects() == [Tell(asker, True)]


def test_so_is_one_that_comes_while_others_are_sent_again() -> None:
    core = make_core()
    hold_function(core)
    tasks = [(make_future(), FUNCTION_ID, b"", None) for _ in range(2)]
    core.apply(tasks)
    core.take_effects()
    core.on_lost()
    assert core.on_welcome(m.Welcome(session=2, limits=m.Limits(tasks_in_flight=1))) == 2
    core.take_effects()
    assert effects_of(core, c.LetGo([FUNCTION_ID])) == []  # the tasks that are to be sent again need it
    assert refused(core, make_future())


def test_a_barrier_is_passed_when_what_came_before_was_taken() -> None:
    core, asker, future = make_core(), SomeAsker(), make_future()
    task, told = sorted(
        effects_of(core, (future, ECHO, b"", None), c.Barrier(asker)), key=lambda each: type(each) is Tell
    )
    assert isinstance(task, Send) and told == Tell(asker, True)
    assert future in core.futures.values()
