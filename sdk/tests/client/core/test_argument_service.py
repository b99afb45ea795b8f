"""What a client keeps for workers: how it is placed, for how long it stays, and who gets it."""

from __future__ import annotations

import itertools
from array import array
from typing import Any, List, Sequence

from scaler import ScalerFuture
from scaler.client.core import commands as c
from scaler.client.core.argument_service import ArgumentService, SendPart
from scaler.client.core.client_core import ClientCore
from scaler.client.core.effects import DiscardObject, Effect, PlaceObject, Send, SendChunk
from scaler.client.core.kept_objects import KeptObject
from scaler.data_serving.data_effects import CloseData, SendData
from scaler.data_serving.ticket_service import IDLE_SECONDS, TICKET_WAIT_SECONDS
from scaler.values.named_functions import NamedFunction
from scaler.values.sizes import DIRECT_BYTES, INLINE_BYTES
from scaler_protocol.session.features import KEPT_ARGUMENTS
from scaler_protocol.wire import messages as m

ECHO = NamedFunction("scaler.conformance/echo")
KEPT, REMOTE = m.ObjectStorage.KEPT, m.ObjectStorage.REMOTE
SECRET, KEY = b"s" * 32, b"key of a worker"


def welcome(session: int = 1, features: Sequence[str] = (KEPT_ARGUMENTS,)) -> m.Welcome:
    return m.Welcome(session=session, features=list(features), limits=m.Limits(chunk_bytes=10))


def make_core(features: Sequence[str] = (KEPT_ARGUMENTS,), direct_bytes: int = DIRECT_BYTES) -> ClientCore:
    return ClientCore(welcome(features=features), itertools.count(1), direct_bytes=direct_bytes)


def hold(core: ClientCore, size: int = DIRECT_BYTES, kind: m.ObjectKind = m.ObjectKind.VALUE) -> KeptObject:
    number = next(core.objects._numbers)
    kept = KeptObject(number, 1 << 40 | number, "data", kind, size, "cloudpickle", bytes(size))
    core.apply([c.HoldObject(kept)])
    return kept


def storage_of(effects: List[Effect]) -> int:
    (placed,) = [each for each in effects if isinstance(each, PlaceObject)]
    (storage,) = placed.instruction.storages
    return storage


def ended(core: ClientCore, *object_ids: int) -> List[Effect]:
    """The scheduler says that objects have ended."""
    core.on_message(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", object_ids)), b"")
    return core.take_effects()


# Placing ------------------------------------------------------------------------------------------------------------


def test_what_is_large_enough_is_kept_if_both_sides_know_of_it() -> None:
    core = make_core()
    hold(core)
    assert storage_of(core.take_effects()) == KEPT
    hold(core, DIRECT_BYTES - 1)
    assert storage_of(core.take_effects()) == REMOTE
    hold(core, kind=m.ObjectKind.FUNCTION)
    assert storage_of(core.take_effects()) == REMOTE
    old = make_core(features=())
    hold(old)
    assert storage_of(old.take_effects()) == REMOTE


def test_the_user_says_what_is_large_enough_and_what_is_small_is_sent_all_the_same() -> None:
    core = make_core(direct_bytes=0)
    hold(core, INLINE_BYTES)
    assert storage_of(core.take_effects()) == KEPT
    hold(core, INLINE_BYTES - 1)
    (sent,) = core.take_effects()
    assert isinstance(sent, Send)


# For how long -------------------------------------------------------------------------------------------------------


def test_what_is_let_go_stays_until_the_scheduler_says_that_it_has_ended() -> None:
    core = make_core()
    kept = hold(core)
    core.take_effects()
    core.apply([c.LetGo([kept.object_id])])
    assert not any(isinstance(each, DiscardObject) for each in core.take_effects())
    assert core.objects.served(kept.object_id) is kept
    core.on_message(m.ObjectRequest(id=kept.object_id, offset=0, length=10), b"")
    assert core.take_effects() == [SendChunk(kept, m.ObjectRequest(id=kept.object_id, offset=0, length=10))]
    assert ended(core, kept.object_id) == [DiscardObject(kept)]
    assert core.objects.served(kept.object_id) is None and not core.objects.kept()


def test_what_has_ended_for_the_scheduler_stays_while_a_task_here_needs_it() -> None:
    core = make_core()
    kept = hold(core)
    future: ScalerFuture[Any] = ScalerFuture(None)  # type: ignore[arg-type]  # of no client
    core.apply([c.SubmitTask(future, ECHO, b"", dependencies=[kept.object_id]), c.LetGo([kept.object_id])])
    core.take_effects()
    assert ended(core, kept.object_id) == []
    core.apply([c.GiveUp([future])])
    assert DiscardObject(kept) in core.take_effects()


def test_a_new_session_serves_what_it_has_placed_and_no_more() -> None:
    core = make_core()
    held, gone = hold(core), hold(core)
    core.take_effects()
    core.apply([c.LetGo([gone.object_id])])
    core.take_effects()
    core.on_lost()
    core.on_welcome(welcome(session=2))
    effects = core.take_effects()
    assert DiscardObject(gone) in effects and storage_of(effects) == KEPT
    assert core.objects.served(2 << 40 | held.number) is held
    assert core.objects.served(1 << 40 | held.number) is None
    core.on_lost()
    core.on_welcome(welcome(session=3, features=()))
    assert storage_of(core.take_effects()) == REMOTE
    assert core.objects.served(3 << 40 | held.number) is None


# Serving ------------------------------------------------------------------------------------------------------------


def service_of(core: ClientCore) -> ArgumentService:
    service = ArgumentService(core.objects)
    service.on_accepted(-1, KEY, 0.0)
    return service


def ticket(object_id: int, lifetime_milliseconds: int = 30_000) -> m.Ticket:
    return m.Ticket(id=object_id, secret=SECRET, key=KEY, lifetime_milliseconds=lifetime_milliseconds)


def request(object_id: int, offset: int = 0) -> m.ObjectRequest:
    return m.ObjectRequest(id=object_id, offset=offset, length=10, ticket=SECRET)


def taken(service: ArgumentService) -> List[Any]:
    effects = service.effects[:]
    service.effects.clear()
    return effects


def test_a_worker_with_a_ticket_gets_parts_and_one_without_a_refusal() -> None:
    core = make_core()
    kept = hold(core)
    core.take_effects()
    service = service_of(core)
    service.on_ticket(ticket(kept.object_id), 0.1)
    service.on_message(-1, request(kept.object_id), 0.2)
    assert taken(service) == [SendPart(-1, kept, request(kept.object_id))]
    service.on_accepted(-2, KEY, 0.2)
    service.on_message(-2, request(kept.object_id), 0.3)
    refusal, close = taken(service)
    assert refusal.message.reason == m.RefusalReason.TICKET_FOREIGN and close == CloseData(-2)


def test_a_request_that_comes_before_its_ticket_is_answered_with_it() -> None:
    core = make_core()
    kept = hold(core)
    core.take_effects()
    service = service_of(core)
    service.on_message(-1, request(kept.object_id), 0.0)
    assert taken(service) == [], "the ticket may be on its way"
    service.on_ticket(ticket(kept.object_id), 0.5)
    assert taken(service) == [SendPart(-1, kept, request(kept.object_id))]
    service.on_accepted(-2, KEY, 1.0)
    service.on_message(-2, m.ObjectRequest(id=kept.object_id, length=10, ticket=b"unknown"), 1.0)
    service.watch(1.0 + TICKET_WAIT_SECONDS)
    refusal, close = taken(service)
    assert refusal.message.reason == m.RefusalReason.TICKET_UNKNOWN and close == CloseData(-2)


def test_what_is_not_kept_any_more_is_missing_and_its_ticket_ends_with_it() -> None:
    core = make_core()
    kept = hold(core)
    core.take_effects()
    service = service_of(core)
    service.on_ticket(ticket(kept.object_id), 0.0)
    service.on_message(-1, request(kept.object_id, offset=kept.size + 1), 0.1)
    (answer,) = taken(service)
    assert isinstance(answer, SendData) and isinstance(answer.message, m.ObjectResponse)
    assert answer.message.status == m.ObjectResponseStatus.MISSING
    instruction = m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", [kept.object_id]))
    service.on_instruction(instruction)
    service.on_message(-1, request(kept.object_id), 0.2)
    refusal, _ = taken(service)
    assert refusal.message.reason == m.RefusalReason.TICKET_UNKNOWN


def test_callers_are_watched_and_end_with_the_session() -> None:
    core = make_core()
    kept = hold(core)
    service = service_of(core)
    assert service.next_time == 1.0
    service.on_ticket(ticket(kept.object_id), 0.0)
    service.on_message(-1, request(kept.object_id), 0.0)
    taken(service)
    service.watch(IDLE_SECONDS)
    assert taken(service) == [CloseData(-1)]
    service.on_accepted(-2, KEY, 40.0)
    service.on_message(-2, m.Heartbeat(), 40.0)
    assert taken(service) == [CloseData(-2)], "only requests are answered"
    service.on_accepted(-3, KEY, 40.0)
    service.end_session()
    assert taken(service) == [CloseData(-3)] and not len(service) and service.next_time == float("inf")
