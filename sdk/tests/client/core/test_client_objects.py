"""The objects of a client: kept, let go, served to the scheduler; and large results that are fetched."""

from __future__ import annotations

import itertools
from array import array
from typing import Any, List, Tuple

from scaler import ScalerFuture
from scaler.client.core import commands as c
from scaler.client.core.client_core import ClientCore
from scaler.client.core.effects import (
    Cancelled,
    DiscardObject,
    Effect,
    Failed,
    FollowToDisk,
    OpenResult,
    Send,
    SendChunk,
    SettleOutcomes,
)
from scaler.client.core.kept_objects import KeptObject
from scaler.exceptions import MissingObjects, ObjectStorageFullError
from scaler.values.named_functions import NamedFunction
from scaler_protocol.wire import messages as m

ECHO = NamedFunction("scaler.conformance/echo")
CHUNK_BYTES = 10
RESULT_ID = 5 << 40 | 1
OF_ANOTHER_PEER = 3 << 40 | 1


def make_core() -> ClientCore:
    return ClientCore(m.Welcome(session=1, limits=m.Limits(chunk_bytes=CHUNK_BYTES)), itertools.count(1))


def effects_of(core: ClientCore, *commands: Any) -> List[Effect]:
    core.apply(commands)
    return core.take_effects()


def effects_of_message(core: ClientCore, message: m.Member, payload: bytes = b"") -> List[Effect]:
    core.on_message(message, payload)
    return core.take_effects()


def held(core: ClientCore, number: int = 7, size: int = 3) -> KeptObject:
    kept = KeptObject(number, 1 << 40 | number, "data", m.ObjectKind.VALUE, size, "cloudpickle", b"abc")
    core.apply([c.HoldObject(kept)])
    core.take_effects()
    return kept


def is_deletion(effect: Effect, object_id: int) -> bool:
    return (
        isinstance(effect, Send)
        and isinstance(effect.message, m.ObjectInstruction)
        and effect.message.action == m.ObjectAction.DELETE
        and list(effect.message.ids) == [object_id]
    )


# Objects of this client -----------------------------------------------------------------------------------------------


def test_an_object_is_discarded_when_it_is_let_go_and_no_task_needs_it() -> None:
    core = make_core()
    kept = held(core)
    future: ScalerFuture[Any] = ScalerFuture(None)  # type: ignore[arg-type]  # of no client
    effects_of(core, c.SubmitTask(future, ECHO, b"", dependencies=[kept.object_id, OF_ANOTHER_PEER]))
    (deletion,) = effects_of(core, c.LetGo([kept.object_id]))
    assert is_deletion(deletion, kept.object_id)
    assert effects_of(core, c.GiveUp([future])) == [Cancelled([future]), DiscardObject(kept)]


def test_a_copy_keeps_the_content_that_it_shares() -> None:
    core = make_core()
    kept = held(core)
    copy = core.objects.copy(kept)
    effects_of(core, c.HoldObject(copy))
    assert not any(isinstance(effect, DiscardObject) for effect in effects_of(core, c.LetGo([kept.object_id])))
    assert DiscardObject(copy) in effects_of(core, c.LetGo([copy.object_id]))


def test_what_another_peer_has_is_let_go_by_the_scheduler_alone() -> None:
    core = make_core()
    (deletion,) = effects_of(core, c.LetGo([OF_ANOTHER_PEER]))
    assert is_deletion(deletion, OF_ANOTHER_PEER)
    assert core.objects.is_own(1 << 40 | 7) and not core.objects.is_own(OF_ANOTHER_PEER)


def test_a_file_that_the_scheduler_has_moved_to_disk_follows() -> None:
    core = make_core()
    kept = held(core)
    spilled = m.ObjectInstruction(action=m.ObjectAction.SPILL, ids=array("Q", [kept.object_id, OF_ANOTHER_PEER]))
    assert effects_of_message(core, spilled) == [FollowToDisk(kept, kept.object_id)]
    assert effects_of_message(core, m.ObjectInstruction(action=m.ObjectAction.CLEAR)) == []


def test_the_scheduler_fetches_what_is_here_and_hears_what_is_not() -> None:
    core = make_core()
    kept = held(core)
    request = m.ObjectRequest(id=kept.object_id, offset=0, length=3)
    assert effects_of_message(core, request) == [SendChunk(kept, request)]
    for missing in (m.ObjectRequest(id=kept.object_id, offset=4), m.ObjectRequest(id=OF_ANOTHER_PEER)):
        (sent,) = effects_of_message(core, missing)
        assert isinstance(sent, Send) and isinstance(sent.message, m.ObjectResponse)
        assert (sent.message.id, sent.message.status) == (missing.id, m.ObjectResponseStatus.MISSING)


def test_a_client_that_has_ended_keeps_nothing() -> None:
    core = make_core()
    held(core)
    core.objects.close()
    assert core.objects.kept() == []


# Large results --------------------------------------------------------------------------------------------------------


def fetching(core: ClientCore) -> ScalerFuture[Any]:
    """A task whose result is a file that is not on this host."""
    future: ScalerFuture[Any] = ScalerFuture(None)  # type: ignore[arg-type]  # of no client
    core.apply([(future, ECHO, b"", None)])
    core.take_effects()
    opened = ended_large(core, future)
    core.on_result_opened(opened.object_id, opened.outcome, None)
    (sent,) = core.take_effects()
    assert isinstance(sent, Send) and isinstance(sent.message, m.ObjectRequest)
    assert (sent.message.id, sent.message.offset) == (RESULT_ID, 0)
    return future


def ended_large(core: ClientCore, future: ScalerFuture[Any]) -> OpenResult:
    result = m.TaskResult(ids=array("Q", [future._task_id]), payload_sizes=array("I", [0]))
    result.objects = array("Q", [RESULT_ID])
    (opened,) = effects_of_message(core, result)
    assert isinstance(opened, OpenResult)
    return opened


def response(offset: int, size: int) -> m.ObjectResponse:
    return m.ObjectResponse(id=RESULT_ID, offset=offset, size=size)


def requested(effects: List[Effect]) -> List[Tuple[int, int]]:
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    return [(message.offset, message.length) for message in messages if isinstance(message, m.ObjectRequest)]


def test_a_large_result_is_fetched_in_chunks() -> None:
    core = make_core()
    future = fetching(core)
    assert requested(effects_of_message(core, response(0, 25), b"a" * 10)) == [(10, 10), (20, 5)]
    assert effects_of_message(core, response(20, 25), b"c" * 5) == []
    deletion, settled = effects_of_message(core, response(10, 25), b"b" * 10)
    assert is_deletion(deletion, RESULT_ID)
    assert isinstance(settled, SettleOutcomes)
    (outcome,) = settled.outcomes
    assert (outcome.future, bytes(outcome.payload or b"")) == (future, b"a" * 10 + b"b" * 10 + b"c" * 5)
    assert effects_of_message(core, response(10, 25), b"b" * 10) == []  # nothing is being fetched any more


def test_a_large_result_that_is_lost_while_it_is_fetched_fails() -> None:
    core = make_core()
    future = fetching(core)
    lost = m.ObjectResponse(id=RESULT_ID, status=m.ObjectResponseStatus.MISSING)
    deletion, failed = effects_of_message(core, lost)
    assert is_deletion(deletion, RESULT_ID)
    assert isinstance(failed, Failed) and failed.futures == [future] and isinstance(failed.error, MissingObjects)


def test_a_large_result_that_the_scheduler_had_no_room_for_fails_with_that_reason() -> None:
    core = make_core()
    future = fetching(core)
    missing = m.ObjectResponseStatus.MISSING
    lost = m.ObjectResponse(id=RESULT_ID, status=missing, missing_reason=m.MissingReason.NO_ROOM)
    deletion, failed = effects_of_message(core, lost)
    assert is_deletion(deletion, RESULT_ID)
    assert isinstance(failed, Failed) and failed.futures == [future]
    assert isinstance(failed.error, ObjectStorageFullError) and "the scheduler had no room" in str(failed.error)


def test_a_large_result_that_does_not_fit_in_memory_fails() -> None:
    core = make_core()
    future = fetching(core)
    deletion, failed = effects_of_message(core, response(0, 1 << 63), b"a" * 10)
    assert is_deletion(deletion, RESULT_ID)
    assert isinstance(failed, Failed) and failed.futures == [future]
    assert isinstance(failed.error, ObjectStorageFullError) and f"({1 << 63} bytes)" in str(failed.error)


def test_a_large_result_of_a_task_that_has_ended_meanwhile_is_let_go() -> None:
    core = make_core()
    future = fetching(core)
    assert effects_of(core, c.GiveUp([future])) == [Cancelled([future])]
    (deletion,) = effects_of_message(core, response(0, 5), b"a" * 5)
    assert is_deletion(deletion, RESULT_ID)

    core = make_core()
    (future,) = [ScalerFuture(None)]  # type: ignore[arg-type]  # of no client
    core.apply([(future, ECHO, b"", None)])
    core.take_effects()
    opened = ended_large(core, future)
    effects_of(core, c.GiveUp([future]))
    core.on_result_opened(opened.object_id, opened.outcome, b"content")
    (deletion,) = core.take_effects()
    assert is_deletion(deletion, RESULT_ID)


def test_former_sessions_are_known_as_long_as_there_are_objects_of_them() -> None:
    core = make_core()
    kept = held(core)
    for session in range(2, 12):
        core.on_lost()
        core.on_welcome(m.Welcome(session=session))
    assert core.objects.find(kept.object_id) is kept and core.objects.wire_id(kept.object_id) == 11 << 40 | 7
    assert core.objects._sessions == {1, 11}
    core.apply([c.LetGo([kept.object_id])])
    core.take_effects()
    del kept
    late = KeptObject(8, 11 << 40 | 8, "late", m.ObjectKind.VALUE, 3, "cloudpickle", b"abc")
    core.on_lost()
    core.on_welcome(m.Welcome(session=12))
    assert core.objects._sessions == {12}
    core.apply([c.HoldObject(late)])
    assert core.objects.find(late.object_id) is late and core.objects.wire_id(late.object_id) == 12 << 40 | 8
