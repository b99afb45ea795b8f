"""Large results that stay with the workers that made them: used there, fetched when needed, handed over."""

from __future__ import annotations

from array import array
from typing import List

import pytest
from keeper import KEPT, REMOTE, SIZE, Keeper, nothing_is_kept, stored, submit
from scheduler_harness import Client, Harness

from scaler_protocol import messages as m


@pytest.fixture
def harness() -> Harness:
    return Harness(chunk_bytes=10)


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


# Used where they are ------------------------------------------------------------------------------------------------


def test_a_chain_on_one_worker_moves_no_byte(harness: Harness, client: Client) -> None:
    worker = Keeper(harness)
    submit(client, {1: [], 2: [1], 3: [2], 4: [3]}, [4])
    before: List[int] = []
    for number in (1, 2, 3):
        assert worker.read() == [number]
        assert worker.tasks[number][1] == before, "it gets the result of the node before by its id"
        before = [worker.keep(number)]
    assert worker.read() == [4]
    worker.finish(4)
    assert client.take_results() == {4: b"small"}
    worker.read()

    assert worker.deleted == {worker.peer.object_id(number) for number in (1, 2, 3)}
    assert not worker.asked and not stored(harness)
    assert set(worker.announced) == {client.object_id(1000)}, "what it made itself is not announced to it"
    nothing_is_kept(harness)


def test_a_result_that_another_worker_needs_is_fetched_once_and_then_served_to_all(
    harness: Harness, client: Client
) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1], 3: [1], 4: [1]}, [2, 3, 4])
    maker.read()
    others = [Keeper(harness, slots=1), Keeper(harness, slots=1)]
    result = maker.keep(1)
    assert len(maker.read()) >= 1
    for other in others:
        assert len(other.read()) == 1
        assert other.announced[result] == REMOTE
        other.ask(result)
    maker.read()
    assert [(each.id, each.offset) for each in maker.asked] == [(result, 0), (result, 10), (result, 20)]
    maker.serve()
    assert stored(harness) == SIZE
    assert not maker.asked


def test_a_task_goes_to_the_free_worker_that_keeps_its_input(harness: Harness, client: Client) -> None:
    first, second = Keeper(harness, slots=1), Keeper(harness, slots=1)
    submit(client, {1: [], 2: [], 3: [1], 4: [2]}, [3, 4])
    makers = {number: worker for worker in (first, second) for number in worker.read()}
    assert set(makers) == {1, 2}
    for number in (1, 2):
        makers[number].peer.post(
            m.ObjectInstruction(
                ids=array("Q", [makers[number].peer.object_id(1)]),
                sizes=array("Q", [SIZE]),
                storages=bytes([KEPT]),
            )
        )
    for number in (2, 1):  # in one burst, so that both are free when the others are placed
        message, payload = makers[number].peer.result(
            [makers[number].tasks[number][0]], [b""], objects=[makers[number].peer.object_id(1)]
        )
        makers[number].peer.post(message, payload)
    harness.tick()

    assert makers[1].read() == [3] and makers[2].read() == [4]


# What clients wait for ----------------------------------------------------------------------------------------------


def test_a_client_learns_of_a_result_when_the_scheduler_has_it(harness: Harness, client: Client) -> None:
    worker = Keeper(harness)
    client.submit([5])
    assert worker.read() == [5]
    result = worker.keep(5)
    worker.read()
    assert [each.offset for each in worker.asked] == [0, 10, 20], "it is fetched at once"
    assert not client.inbox
    worker.serve()

    message = client.take(m.TaskResult)
    assert (list(message.ids), list(message.objects)) == ([5], [result])
    worker.peer.vanish()
    client.send(m.ObjectRequest(id=result, offset=0, length=10))
    assert stored(harness) == SIZE  # and it is sent from there
    client.delete(result)
    nothing_is_kept(harness)


def test_other_outcomes_of_a_message_do_not_wait_for_a_large_one(harness: Harness, client: Client) -> None:
    worker = Keeper(harness)
    client.submit([5, 6, 7])
    worker.read()
    instances = [worker.tasks[number][0] for number in (5, 6, 7)]
    result = worker.make()
    worker.peer.finish(instances, [b"five", b"", b"seven"], objects=[0, result, 0], busy_microseconds=3000)

    assert client.take_results() == {5: b"five", 7: b"seven"}
    worker.serve()
    assert client.take_results() == {6: b""}


def test_a_held_outcome_that_is_told_twice_is_told_once(harness: Harness, client: Client) -> None:
    worker = Keeper(harness)
    client.submit([5])
    worker.read()
    instance, result = worker.tasks[5][0], worker.make()
    for _ in range(2):
        worker.peer.finish([instance], [b""], objects=[result])
    worker.serve()
    worker.peer.finish([instance], [b""], objects=[result])

    assert client.take_results() == {5: b""}
    assert not client.inbox
    worker.read()
    assert worker.deleted == set()


def test_one_result_of_two_tasks_is_an_error_also_while_it_is_held(harness: Harness, client: Client) -> None:
    worker = Keeper(harness)
    client.submit([5, 6])
    worker.read()
    result = worker.make()
    for number in (5, 6):
        worker.peer.finish([worker.tasks[number][0]], [b""], objects=[result])
    while isinstance(worker.peer.inbox[0][0], m.ObjectRequest):
        worker.peer.inbox.popleft()
    assert "each the result of one task" in worker.peer.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)
    assert not client.inbox
    client.cancel(5, 6)
    assert set(client.take_confirms()) == {5, 6}
    nothing_is_kept(harness)


@pytest.mark.parametrize("force", [False, True])
def test_a_held_outcome_wins_over_a_cancel(harness: Harness, client: Client, force: bool) -> None:
    worker = Keeper(harness)
    client.submit([5])
    worker.read()
    instance = worker.tasks[5][0]
    worker.keep(5)
    client.cancel(5, force=force)
    worker.peer.confirm(instance, m.CancelOutcome.NOT_FOUND)
    assert client.take_confirms() == {5: m.CancelOutcome.RUNNING}
    worker.serve()

    assert client.take_results() == {5: b""}


def test_a_worker_lost_while_its_result_is_fetched_has_not_finished_the_task(harness: Harness, client: Client) -> None:
    worker = Keeper(harness)
    client.submit([5])
    worker.read()
    worker.keep(5)
    worker.read()
    worker.peer.send(m.ObjectResponse(id=worker.asked[0].id, offset=0, size=SIZE), b"x" * 10)
    other = Keeper(harness)
    worker.peer.vanish()

    assert other.read() == [5]
    other.finish(5)
    assert client.take_results() == {5: b"small"}
    nothing_is_kept(harness)


def test_a_result_that_its_worker_has_lost_loses_its_task(harness: Harness, client: Client) -> None:
    worker = Keeper(harness)
    client.submit([5])
    worker.read()
    result = worker.keep(5)
    worker.peer.send(m.ObjectResponse(id=result, status=m.ObjectResponseStatus.MISSING))

    failure = client.take_losses()[5]
    assert failure.kind == m.FailureKind.OBJECT_MISSING
    assert "disappeared at its worker before it was fetched" in failure.message
    nothing_is_kept(harness)


def test_a_result_that_cannot_be_stored_is_reported_and_remains_with_its_worker(
    harness: Harness, client: Client
) -> None:
    worker = Keeper(harness)
    client.submit([5])
    worker.read()
    result = worker.keep(5)
    worker.read()
    first = worker.asked.pop(0)
    worker.peer.send(m.ObjectResponse(id=first.id, offset=0, size=SIZE), b"x" * 10)
    harness.core.on_object_unreadable(harness.now, result, "the disk is full", lacks_room=True)
    harness.core.on_object_unreadable(harness.now, result, "its earlier parts could not be stored", lacks_room=False)
    assert harness.state.objects.find(result).missing_reason == m.MissingReason.NO_ROOM
    assert not client.inbox
    worker.serve()
    assert client.take_results() == {5: b""}
    stored(harness)
    client.send(m.ObjectRequest(id=result, offset=0, length=10))  # there is room again
    worker.serve()
    assert stored(harness) == SIZE


# Leaving ------------------------------------------------------------------------------------------------------------


def test_a_worker_that_drains_hands_over_what_is_needed(harness: Harness, client: Client) -> None:
    harness = Harness(chunk_bytes=10, protected=False)
    client = harness.client()
    maker = Keeper(harness, slots=2)
    submit(client, {1: [], 2: [], 3: [1, 2]}, [3])
    maker.read()
    first = maker.keep(1)
    client.send(m.WorkerShutdown(request_id=1, session=maker.peer.session, is_draining=True))
    assert client.take(m.WorkerShutdownResponse).accepted
    maker.peer.inbox = type(maker.peer.inbox)(
        each for each in maker.peer.inbox if not isinstance(each[0], m.DisconnectRequest)
    )
    maker.serve()
    second = maker.keep(2)
    maker.serve()
    assert stored(harness) == 2 * SIZE
    maker.peer.send(m.DisconnectResponse())
    other = Keeper(harness, slots=1)

    assert other.read() == [3]
    assert other.tasks[3][1] == [first, second]
    assert other.announced[first] == other.announced[second] == m.ObjectStorage.SHARED
    other.finish(3)
    assert client.take_results() == {3: b"small"}
    nothing_is_kept(harness)


# Others -------------------------------------------------------------------------------------------------------------


def test_only_workers_that_said_so_keep_results(harness: Harness, client: Client) -> None:
    worker = harness.worker()
    for peer in (client, worker):
        peer.announce(1, SIZE, KEPT)
        assert "unknown storage" in peer.take_refusal(m.RefusalReason.MALFORMED)
