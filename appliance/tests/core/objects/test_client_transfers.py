"""Clients that keep their large objects: workers fetch from them, and what outlives a client does not depend on it."""

from __future__ import annotations

from array import array
from typing import Any, Dict, List

import pytest
from keeper import KEPT, SIZE, Keeper, stored
from scheduler_harness import Client, Harness

from scaler_appliance.core.objects.object_transfers import COPIES_PER_HOLDER
from scaler_protocol import messages as m
from scaler_protocol.session.features import KEPT_ARGUMENTS

ADDRESS, KEY = "tcp://laptop:1", b"key of the client"
HELD, REMOTE = m.ObjectStorage.HELD, m.ObjectStorage.REMOTE


@pytest.fixture
def harness() -> Harness:
    return Harness(chunk_bytes=10, protected=False)


def keeping_client(harness: Harness, **fields: Any) -> Client:
    """A client from which workers can fetch."""
    places = {"data_address": ADDRESS, "data_key": KEY}
    return harness.client(features=[KEPT_ARGUMENTS], places=places, **fields)


@pytest.fixture
def client(harness: Harness) -> Client:
    return keeping_client(harness)


def serving(harness: Harness, number: int, slots: int = 1) -> Keeper:
    return Keeper(harness, slots, data_address=f"tcp://host{number}:1", data_key=b"key of %d" % number)


def use(client: Client, object_id: int, *numbers: int) -> None:
    """Submit tasks that need an object."""
    client.submit(numbers, dependency_counts=[1] * len(numbers), dependencies=[object_id] * len(numbers))


def taken(client: Client, kind: Any) -> List[Any]:
    """The messages of a kind that a client has been sent."""
    found = [message for message, _ in client.inbox if isinstance(message, kind)]
    client.inbox.clear()
    return found


def deletions(client: Client) -> List[int]:
    return [each for message in taken(client, m.ObjectInstruction) for each in message.ids]


def scene(harness: Harness, client: Client, users: int) -> tuple[int, List[Keeper]]:
    """An object of the client, and workers that need it, each for one task."""
    workers = [serving(harness, number) for number in range(users)]
    made = client.announce(1, SIZE, KEPT)
    use(client, made, *range(1, 1 + users))
    assert sorted(number for worker in workers for number in worker.read()) == list(range(1, 1 + users))
    return made, workers


def answer(client: Client, content: bytes = b"x" * SIZE) -> None:
    """Send the scheduler the bytes that it requests."""
    requests = taken(client, m.ObjectRequest)
    while requests:
        for each in requests:
            chunk = content[each.offset : each.offset + each.length]
            client.send(m.ObjectResponse(id=each.id, offset=each.offset, size=len(content)), chunk)
        requests = taken(client, m.ObjectRequest)


def test_a_worker_fetches_an_argument_from_its_client_and_no_byte_passes_the_scheduler(
    harness: Harness, client: Client
) -> None:
    made, (worker,) = scene(harness, client, 1)
    assert worker.announced[made] == HELD
    worker.ask_ticket(made)
    ticket = worker.take_ticket()
    (for_client,) = taken(client, m.Ticket)

    assert (ticket.holder, ticket.address, ticket.key) == (client.session, ADDRESS, KEY)
    assert (for_client.id, for_client.holder, for_client.address) == (made, client.session, "")
    assert (for_client.secret, for_client.key) == (ticket.secret, b"key of 0")
    worker.hold(made)
    worker.finish(1)
    client.delete(made)
    assert deletions(client) == [made] and worker.read() == [] and worker.deleted == {made}
    assert not stored(harness) and not harness.state.objects.records()


def test_an_argument_that_many_workers_need_leaves_its_client_twice(harness: Harness, client: Client) -> None:
    made, workers = scene(harness, client, 8)
    for worker in workers:
        worker.ask_ticket(made)
    for _ in workers:
        for worker in workers:
            worker.read()
            if [each for each in worker.tickets if each.address]:
                worker.hold(made)
    sources = [next(each.holder for each in worker.tickets if each.address) for worker in workers]
    assert sources.count(client.session) == COPIES_PER_HOLDER
    assert max(map(sources.count, sources)) <= COPIES_PER_HOLDER and not stored(harness)


@pytest.mark.parametrize("places", [{}, {"features": [KEPT_ARGUMENTS]}, {"places": {"data_address": ADDRESS}}])
def test_a_client_that_does_not_serve_cannot_keep(harness: Harness, places: Dict[str, Any]) -> None:
    client = harness.client(**places)
    client.announce(1, SIZE, KEPT)
    client.take_refusal(m.RefusalReason.MALFORMED)


def test_who_is_no_worker_can_neither_ask_for_a_ticket_nor_say_that_it_holds(harness: Harness) -> None:
    for message in (
        m.TicketRequest(id=1),
        m.ObjectInstruction(action=m.ObjectAction.HOLD, ids=array("Q", [1])),
        m.ObjectInstruction(action=m.ObjectAction.DROP, ids=array("Q", [1])),
    ):
        client = keeping_client(harness)
        client.send(message)
        assert taken(client, m.Refusal)


# Who cannot fetch ---------------------------------------------------------------------------------------------------


def test_without_workers_that_could_fetch_the_bytes_come_at_once(harness: Harness, client: Client) -> None:
    Keeper(harness)
    made = client.announce(1, SIZE, KEPT)
    answer(client)
    assert stored(harness) == SIZE
    client.delete(made)
    assert deletions(client) == [made], "it keeps the object until it learns of its end"


def test_before_there_are_workers_the_bytes_stay_with_their_client(harness: Harness, client: Client) -> None:
    made = client.announce(1, SIZE, KEPT)
    use(client, made, 1)
    assert not taken(client, m.ObjectRequest)
    worker = serving(harness, 0)
    worker.read()
    assert worker.announced[made] == HELD


def test_an_old_worker_gets_the_bytes_from_the_scheduler_which_fetches_them_once(
    harness: Harness, client: Client
) -> None:
    serving(harness, 0)
    old = [Keeper(harness, name=f"old {number}", old=1) for number in range(2)]
    made = client.announce(1, SIZE, KEPT)
    assert not taken(client, m.ObjectRequest)
    needs = m.TaskOptions(capabilities=[m.Capability(name="old", amount=1)])
    client.submit([1, 2], dependency_counts=[1, 1], dependencies=[made] * 2, options=needs)
    for worker in old:
        worker.read()
        assert worker.announced[made] == REMOTE
        worker.ask(made)
    answer(client)
    assert stored(harness) == SIZE


def test_a_client_that_no_worker_reaches_is_tried_once(harness: Harness, client: Client) -> None:
    made, workers = scene(harness, client, 3)
    for worker in workers:
        worker.ask_ticket(made)
    first, second, third = workers
    assert [len(each.tickets) for each in workers] == [1, 1, 0]
    first.ask_ticket(made, failed=client.session)
    third.read()
    assert [each.holder for each in (first.tickets[-1], third.tickets[-1])] == [0, 0]
    second.ask_ticket(made, failed=client.session)
    assert second.tickets[-1].holder == 0
    for worker in workers:
        worker.ask(made)
    answer(client)
    assert stored(harness) == SIZE

    late = serving(harness, 9)
    another = client.announce(2, SIZE, KEPT)
    answer(client)
    assert stored(harness) == SIZE, "its next objects are fetched as they are made"
    use(client, another, 4, 5, 6, 7)
    late.read()
    assert late.announced[another] != HELD


def test_a_worker_that_cannot_reach_a_client_that_others_reach_is_the_only_one_that_tries_no_more(
    harness: Harness, client: Client
) -> None:
    made, (near, far) = scene(harness, client, 2)
    near.ask_ticket(made)
    near.hold(made)
    near.drop(made)
    far.ask_ticket(made)
    far.ask_ticket(made, failed=client.session)
    assert far.tickets[-1].holder == 0

    another = client.announce(2, SIZE, KEPT)
    near.finish(1)
    far.finish(2)
    use(client, another, 3, 4)
    for worker, holder in ((near, client.session), (far, 0)):
        worker.read()
        worker.tickets.clear()
        worker.ask_ticket(another)
        assert worker.take_ticket().holder == holder


def test_a_worker_that_was_not_told_to_fetch_from_a_client_closes_it_to_no_one(
    harness: Harness, client: Client
) -> None:
    made, (first, second, liar) = scene(harness, client, 3)
    for worker in (first, second, liar):
        worker.ask_ticket(made)
    liar.ask_ticket(made, failed=client.session)
    assert not harness.state.transfers.reach.is_closed(client.session)


# Ends ---------------------------------------------------------------------------------------------------------------


def test_what_tasks_of_another_client_need_is_fetched_and_outlives_its_client(harness: Harness, client: Client) -> None:
    worker = serving(harness, 0)
    made = client.announce(1, SIZE, KEPT)
    assert not taken(client, m.ObjectRequest)
    other = harness.client()
    use(other, made, 1)
    answer(client)
    assert stored(harness) == SIZE
    client.vanish()
    worker.read()
    worker.ask_ticket(made)
    assert worker.take_ticket().holder == 0
    worker.finish(1)
    assert list(other.take_results()) == [1]


def test_an_object_of_a_client_that_dies_before_another_ones_task_has_it_is_missing_with_a_reason(
    harness: Harness, client: Client
) -> None:
    worker = serving(harness, 0)
    made = client.announce(1, SIZE, KEPT)
    other = harness.client()
    use(other, made, 1)
    worker.read()
    worker.ask_ticket(made)
    client.vanish()
    worker.ask_ticket(made, failed=worker.take_ticket().holder)
    assert worker.take_ticket().holder == 0
    worker.ask(made)
    worker.read()
    assert worker.missing == [made]
    use(other, made, 2)
    (failure,) = other.take_losses().values()
    assert failure.kind == m.FailureKind.OBJECT_MISSING


def test_a_copy_at_a_worker_outlives_its_client(harness: Harness, client: Client) -> None:
    worker, idle = serving(harness, 0), serving(harness, 1)
    made = client.announce(1, SIZE, KEPT)
    other = harness.client()
    use(client, made, 1)
    worker.read()
    idle.read()
    holder = worker if worker.tasks else idle
    holder.ask_ticket(made)
    holder.hold(made)
    use(other, made, 2)
    harness.tick()
    client.vanish()
    record = harness.state.objects.find(made)
    assert record is not None and not record.is_broken
    assert set(record.copies.holders) == {holder.peer.session}


def test_a_client_that_is_gone_leaves_nothing(harness: Harness, client: Client) -> None:
    made, (first, second) = scene(harness, client, 2)
    first.ask_ticket(made)
    first.hold(made)
    second.ask_ticket(made)
    client.vanish()
    for worker in (first, second):
        worker.read()
        for number in list(worker.tasks):
            worker.finish(number)
    state = harness.state
    assert not state.objects.records() and not state.transfers.rates.holders - {first.peer.session}
    assert first.deleted == second.deleted == {made}


@pytest.mark.parametrize("has_arrived", [False, True])
def test_what_a_worker_says_of_a_client_that_is_being_released_is_not_kept(has_arrived: bool) -> None:
    for calls in range(12):  # of the scheduler, between the end of the session and what the worker says
        harness = Harness(chunk_bytes=10, protected=False, work_per_call=1)
        client = keeping_client(harness)
        made, (first, second) = scene(harness, client, 2)
        for worker in (first, second):
            worker.ask_ticket(made)
            assert worker.take_ticket().holder == client.session
        first.hold(made)
        use(harness.client(), made, 3)  # so that a copy outlives the client
        harness.core.on_peer_gone(harness.now, client.name)
        for _ in range(calls):
            harness.step()
        if has_arrived:
            second.hold(made)
        else:
            second.ask_ticket(made, failed=client.session)
        harness.tick()
        assert client.session not in harness.state.clients


def test_a_client_that_has_lost_the_bytes_has_its_tasks_fail(harness: Harness, client: Client) -> None:
    Keeper(harness)
    made = client.announce(1, SIZE, KEPT)
    client.inbox.clear()
    client.send(m.ObjectResponse(id=made, offset=0, status=m.ObjectResponseStatus.MISSING))
    assert deletions(client) == [made]
    use(client, made, 1)
    (failure,) = client.take_losses().values()
    assert failure.kind == m.FailureKind.OBJECT_MISSING
