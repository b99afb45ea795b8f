"""Large results that stay with the workers that made them: used there, fetched when needed, made again when lost."""

from __future__ import annotations

from array import array
from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

import pytest
from scheduler_harness import Client, Harness, Worker, options

from scaler_appliance.core.effects import StoreChunk
from scaler_protocol import decode_struct
from scaler_protocol import messages as m
from scaler_protocol.session.features import KEPT_RESULTS

KEPT, REMOTE = m.ObjectStorage.KEPT, m.ObjectStorage.REMOTE
SIZE = 30


@pytest.fixture
def harness() -> Harness:
    return Harness(chunk_bytes=10)


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


class Keeper:
    """A worker that keeps large results.

    Parameters:
        slots: how many tasks it runs at once.
    """

    def __init__(self, harness: Harness, slots: int = 4, **fields: Any) -> None:
        self.peer: Worker = harness.worker(slots=slots, features=[KEPT_RESULTS], **fields)
        self.tasks: Dict[int, Tuple[int, List[int]]] = {}  # instance and dependencies, by number of the node
        self.announced: Dict[int, int] = {}  # storage by object
        self.deleted: Set[int] = set()
        self.asked: List[m.ObjectRequest] = []
        self.missing: List[int] = []
        self.made = 0

    def read(self) -> List[int]:
        """Read what has come; returns the numbers of the nodes among it."""
        came: List[int] = []
        while self.peer.inbox:
            message, payload = self.peer.inbox.popleft()
            if isinstance(message, m.ObjectInstruction):
                if message.action == m.ObjectAction.DELETE:
                    self.deleted.update(message.ids)
                else:
                    self.announced.update(zip(message.ids, message.storages))
            elif isinstance(message, m.ObjectRequest):
                self.asked.append(message)
            elif isinstance(message, m.ObjectResponse):
                assert message.status == m.ObjectResponseStatus.MISSING
                self.missing.append(message.id)
            elif isinstance(message, m.Task):
                start = place = 0
                counts = message.dependency_counts or [0] * len(message.ids)
                for instance, size, count in zip(message.ids, message.payload_sizes, counts):
                    number = int(payload[start + size - 1 : start + size])
                    start += size
                    self.tasks[number] = instance, list(message.dependencies[place : place + count])
                    place += count
                    came.append(number)
        return came

    def make(self) -> int:
        """Make an object that it keeps."""
        self.made += 1
        return self.peer.announce(self.made, SIZE, KEPT)

    def keep(self, number: int) -> int:
        """Finish a node with a large result; returns the object."""
        object_id = self.make()
        self.peer.finish([self.tasks.pop(number)[0]], [b""], objects=[object_id])
        return object_id

    def finish(self, number: int, content: bytes = b"small") -> None:
        self.peer.finish([self.tasks.pop(number)[0]], [content])

    def serve(self) -> None:
        """Answer all requests."""
        self.read()
        while self.asked:
            asked = self.asked.pop(0)
            response = m.ObjectResponse(id=asked.id, offset=asked.offset, size=SIZE)
            self.peer.send(response, b"x" * min(asked.length, SIZE - asked.offset))
            self.read()

    def ask(self, object_id: int) -> None:
        self.peer.send(m.ObjectRequest(id=object_id, offset=0, length=10))


def submit(client: Client, nodes: Mapping[int, Sequence[int]], targets: Sequence[int], **fields: Any) -> int:
    """Submit a graph of nodes by their predecessors, with numbers as payloads; returns its function's object."""
    function = client.create(1000, b"f")
    numbers = list(nodes)
    predecessors = [numbers.index(each) for number in numbers for each in nodes[number]]
    offsets = [0]
    for number in numbers:
        offsets.append(offsets[-1] + len(nodes[number]))
    message = m.GraphTask(
        ids=array("Q", numbers),
        payload_sizes=array("I", [1] * len(numbers)),
        functions=array("Q", [function] * len(numbers)),
        predecessor_offsets=array("I", offsets),
        predecessors=array("I", predecessors),
        targets=array("I", [numbers.index(target) for target in targets]),
        **fields,
    )
    client.send(message, b"".join(b"%d" % number for number in numbers))
    return function


def stored(harness: Harness) -> int:
    """How many bytes the scheduler has stored since it was last asked."""
    effects, harness.effects[:] = list(harness.effects), []
    return sum(len(each.chunk) for each in effects if isinstance(each, StoreChunk))


def nothing_is_kept(harness: Harness) -> None:
    """No object but functions that the client holds, and nothing that waits."""
    state = harness.state
    assert all(record.held and not record.references for record in state.objects.records())
    assert not state.objects.has_kept and not len(state.held_results) and not state.dispatches and not len(state.ready)


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
    assert not client.inbox
    worker.serve()
    assert client.take_results() == {5: b""}
    stored(harness)
    client.send(m.ObjectRequest(id=result, offset=0, length=10))  # there is room again
    worker.serve()
    assert stored(harness) == SIZE


# Lost with their makers ---------------------------------------------------------------------------------------------


def test_a_node_runs_again_whose_result_was_lost_with_its_worker(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1], 3: [2]}, [3])
    maker.read()
    first = maker.keep(1)
    assert maker.read() == [2]
    other = Keeper(harness, slots=1)
    maker.peer.vanish()

    assert other.read() == [1], "node 2 waits for it again"
    again = other.keep(1)
    assert other.read() == [2]
    assert other.tasks[2][1] == [again] != [first]
    other.finish(2)
    assert other.read() == [3]
    other.finish(3)
    assert client.take_results() == {3: b"small"}
    nothing_is_kept(harness)


def test_a_chain_of_results_that_were_lost_is_made_again_from_its_beginning(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1], 3: [2], 4: [3]}, [4])
    for number in (1, 2, 3):
        assert maker.read() == [number]
        maker.keep(number)
    other = Keeper(harness, slots=1)
    maker.peer.vanish()

    for number in (1, 2, 3):
        assert other.read() == [number]
        other.keep(number)
    assert other.read() == [4]
    other.finish(4)
    assert client.take_results() == {4: b"small"}
    nothing_is_kept(harness)


def test_results_that_are_still_there_are_not_made_again(harness: Harness, client: Client) -> None:
    lost, other = Keeper(harness, slots=1), Keeper(harness, slots=1)
    submit(client, {1: [], 2: [], 3: [1, 2]}, [3])
    numbers = {number: worker for worker in (lost, other) for number in worker.read()}
    lost_number = next(number for number, worker in numbers.items() if worker is lost)
    kept_number = 3 - lost_number
    lost.keep(lost_number)
    kept = other.keep(kept_number)
    lost.read()
    other.read()
    lost.peer.vanish()

    assert [number for number in other.read() if number != 3] == [lost_number]
    again = other.keep(lost_number)
    other.read()
    assert set(other.tasks[3][1]) == {kept, again}
    other.finish(3)
    assert client.take_results() == {3: b"small"}
    nothing_is_kept(harness)


def test_a_worker_that_waits_for_a_lost_result_is_freed_for_the_node_that_makes_it_again(
    harness: Harness, client: Client
) -> None:
    """Its one place is taken by a task that waits for the result: without taking that back, both would wait forever."""
    maker = Keeper(harness, slots=1, queue_size=1)
    submit(client, {1: [], 2: [1], 3: [1]}, [2, 3])
    maker.read()
    first = maker.keep(1)
    (number,) = maker.read()
    other = Keeper(harness, slots=1, queue_size=1)
    (waiting,) = other.read()
    other.ask(first)
    fenced = other.tasks[waiting][0]
    maker.peer.vanish()

    assert other.read() == [1]
    assert other.missing == [first] and other.deleted == {first}
    failure = m.Failure(kind=m.FailureKind.OBJECT_MISSING, message="deleted", attempts=1)
    other.peer.finish([fenced], [b"stale"], [m.TaskStatus.LOST])
    assert not client.inbox, failure
    other.keep(1)
    for _ in range(2):
        (each,) = other.read()
        other.finish(each)
    assert {**client.take_results(), **client.take_results()} == {2: b"small", 3: b"small"}
    assert {number, waiting} == {2, 3}
    nothing_is_kept(harness)


def test_small_results_that_were_dropped_are_made_again_with_what_needs_them(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1], 3: [2]}, [3])
    maker.read()
    maker.finish(1, b"a small result")
    assert maker.read() == [2]
    maker.keep(2)
    maker.read()
    other = Keeper(harness, slots=1)
    maker.peer.vanish()

    for number in (1, 2, 3):
        assert other.read() == [number]
        other.finish(number)
    assert client.take_results() == {3: b"small"}
    nothing_is_kept(harness)


def test_a_target_that_its_client_knows_is_made_again_for_others_and_not_told_again(
    harness: Harness, client: Client
) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1], 3: [2]}, [1, 3])
    maker.read()
    maker.finish(1, b"told")
    assert client.take_results() == {1: b"told"}
    assert maker.read() == [2]
    maker.keep(2)
    maker.read()
    other = Keeper(harness, slots=1)
    maker.peer.vanish()
    client.cancel(1)
    assert client.take_confirms() == {1: m.CancelOutcome.NOT_FOUND}

    for number in (1, 2, 3):
        assert other.read() == [number]
        other.finish(number)
    assert client.take_results() == {3: b"small"}
    assert not client.inbox
    nothing_is_kept(harness)


def test_a_node_runs_again_while_others_of_its_batch_are_unfinished(harness: Harness, client: Client) -> None:
    maker, other = Keeper(harness, slots=1), Keeper(harness, slots=2)
    submit(client, {1: [], 2: [1], 3: [1], 4: [1]}, [2, 3, 4])
    source = maker if maker.read() else other
    rest = other if source is maker else maker
    source.read()
    lost = source.keep(1)
    given = {number: worker for worker in (source, rest) for number in worker.read()}
    assert len(given) >= 2, "one batch is at two workers"
    assert lost not in rest.deleted
    source.peer.vanish()

    assert 1 in rest.read() + list(rest.tasks)
    rest.keep(1)
    for _ in range(3):
        for number in rest.read():
            rest.finish(number)
    outcomes: Dict[int, bytes] = {}
    while client.inbox:
        outcomes.update(client.take_results())
    assert outcomes == dict.fromkeys((2, 3, 4), b"small")
    nothing_is_kept(harness)


def losses(client: Client) -> Dict[int, m.Failure]:
    found: Dict[int, m.Failure] = {}
    while client.inbox:
        result = client.take(m.TaskResult)
        assert len(result.ids) == 1 and set(result.statuses) == {m.TaskStatus.LOST}
        found[result.ids[0]] = decode_struct(m.Failure, client.payload)
    return found


def test_a_node_that_may_run_at_most_once_is_lost_with_its_result(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    other = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1]}, [2], options=options(at_most_once=True))
    worker = maker if maker.read() else other
    worker.read()
    worker.keep(1)
    for each in (maker, other):
        each.read()
    client.inbox.clear()
    worker.peer.vanish()

    (failure,) = losses(client).values()
    assert failure.kind == m.FailureKind.WORKER_LOST
    assert "may run at most once" in failure.message or "lost with its worker" in failure.message
    nothing_is_kept(harness)


def test_a_node_whose_objects_are_gone_does_not_run_again_and_says_why(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    data = client.create(7, b"data")
    counts = array("H", [1, 0])
    submit(client, {1: [], 2: [1]}, [2], dependency_counts=counts, dependencies=array("Q", [data]))
    client.delete(data)
    maker.read()
    maker.keep(1)
    maker.read()
    assert data in maker.deleted
    Keeper(harness, slots=1)
    maker.peer.vanish()

    (failure,) = losses(client).values()
    assert failure.kind == m.FailureKind.OBJECT_MISSING
    assert "its result was lost with the worker" in failure.message and f"{data:016x}" in failure.message
    nothing_is_kept(harness)


def test_a_node_whose_result_is_lost_too_often_is_lost(client: Client, harness: Harness) -> None:
    submit(client, {1: [], 2: [1]}, [2])
    for _ in range(harness.state.settings.maximum_attempts):
        maker = Keeper(harness, slots=1)
        assert maker.read() == [1]
        maker.keep(1)
        maker.peer.send(m.DisconnectRequest())  # which is no fault, and no attempt of node 2

    (failure,) = losses(client).values()
    assert failure.kind == m.FailureKind.WORKER_LOST and "is not run again" in failure.message
    nothing_is_kept(harness)


def test_a_cancelled_node_stays_cancelled_when_what_it_needs_is_lost(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1]}, [2])
    maker.read()
    maker.keep(1)
    maker.read()
    client.cancel(2)
    other = Keeper(harness, slots=1)
    maker.peer.vanish()

    assert client.take_confirms() == {2: m.CancelOutcome.CANCELLED}
    assert other.read() == []
    nothing_is_kept(harness)


def test_a_client_that_leaves_takes_lost_results_along(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1]}, [2])
    maker.read()
    maker.keep(1)
    maker.read()
    maker.peer.vanish()
    client.vanish()

    assert not len(harness.state.objects)


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
