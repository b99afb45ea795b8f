"""Calls of actors: where they go, in which order, and how they end."""

from __future__ import annotations

from typing import Any, Iterable, List

import pytest
from scheduler_harness import Client, Harness, Worker, options, task

from scaler_appliance.core.actor_calls import actor_placement
from scaler_appliance.core.peers import worker_session
from scaler_appliance.core.placement import task_placement
from scaler_protocol import messages as m

ACTORS = "actors"


def worker_of(harness: Harness, slots: int = 1, **fields: Any) -> Worker:
    """A worker that runs actors."""
    return harness.worker(slots, features=[ACTORS], **fields)


def make(client: Client, number: int = 1, first_id: int = 0, **given: Any) -> int:
    """An actor with its first call; returns its object's id."""
    function = client.create(number, b"class")
    call(client, function, [first_id], **given)
    return function


def call(client: Client, function: int, ids: Iterable[int], **given: Any) -> None:
    client.submit(ids, function=function, options=options(actor=True, **given))


def held(worker: Worker) -> List[int]:
    """The instances that the worker took and has not finished."""
    instances: List[int] = vars(worker).setdefault("held", [])
    return instances


def taken(worker: Worker) -> List[int]:
    """The payloads of the calls that a worker was sent; they are their ids."""
    payloads: List[int] = []
    while worker.inbox:
        message, _ = worker.inbox[0]
        if isinstance(message, m.Task):
            held(worker).extend(worker.take_tasks())
            payloads += map(int, worker.payloads)
        else:
            worker.inbox.popleft()
    return payloads


def finish(worker: Worker, microseconds: int = 10) -> None:
    """All that the worker was sent has run."""
    instances = held(worker)[:]
    held(worker).clear()
    if instances:
        worker.finish(instances, busy_microseconds=microseconds * len(instances))


def lost(client: Client) -> List[str]:
    """The reasons of calls that are lost."""
    reasons = []
    while client.inbox:
        for failure in client.take_losses().values():
            assert failure.kind == m.FailureKind.ACTOR_LOST, failure
            reasons.append(failure.message)
    return reasons


def test_all_calls_go_to_the_worker_of_the_first_in_their_order(harness: Harness) -> None:
    client, workers = harness.client(), [worker_of(harness, slots=2) for _ in range(3)]
    function = make(client)
    (home,) = [worker for worker in workers if worker.inbox]
    call(client, function, range(1, 4))
    call(client, function, range(4, 100))
    order = taken(home)
    while len(order) < 100:
        finish(home)
        order += taken(home)
    assert order == list(range(100))
    assert not any(worker.inbox for worker in workers if worker is not home), "the others are idle"
    finish(home)


def test_an_actor_takes_one_slot_however_many_of_its_calls_wait(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness, slots=2)
    function = make(client)
    taken(worker)
    finish(worker)
    call(client, function, range(1, 500))
    assert taken(worker), "some calls are there"
    client.submit([500])
    assert taken(worker) == [500], "another slot is free for it"
    assert harness.state.workers[worker.session].assigned == 2


def test_a_worker_without_the_feature_is_never_chosen(harness: Harness) -> None:
    client, older = harness.client(), harness.worker(slots=9)
    make(client)
    assert not older.inbox
    newer = worker_of(harness)
    harness.tick()
    harness.wait(1.0)
    assert taken(newer) == [0]


def test_capabilities_are_in_use_while_the_actor_exists_and_not_by_its_calls(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness, slots=4, gpu=1)
    function = make(client, gpu=1)
    assert taken(worker) == [0]
    finish(worker)
    call(client, function, [1], gpu=1)
    assert taken(worker) == [1], "its calls need no other gpu"
    finish(worker)
    make(client, 2, 2, gpu=1)
    assert taken(worker) == []
    client.delete(function)
    harness.wait(1.0)
    assert taken(worker) == [2], "the first one is closed"


def test_an_actor_goes_where_its_memory_is_free_and_then_where_fewest_are(harness: Harness) -> None:
    client, workers = harness.client(), [worker_of(harness) for _ in range(3)]
    for worker, free_bytes in zip(workers, (100, 10_000, 10_000)):
        worker.send(m.Heartbeat(free_bytes=free_bytes))
    for number in (1, 2, 3):
        make(client, number, number, memory_limit_bytes=1000)
        for worker in workers:
            taken(worker)
            finish(worker)
    counts = [len(harness.state.workers[worker.session].actors) for worker in workers]
    assert counts in ([0, 2, 1], [0, 1, 2])


def test_an_actor_leaves_to_others_what_it_does_not_need(harness: Harness) -> None:
    client, gpu, plain = harness.client(), worker_of(harness, gpu=1), worker_of(harness)
    make(client)
    assert (taken(gpu), taken(plain)) == ([], [0])
    make(client, 2, 1, gpu=1)
    assert (taken(gpu), taken(plain)) == ([1], [])


def test_clients_take_turns_and_each_keeps_its_order(harness: Harness) -> None:
    owner, other, worker = harness.client(), harness.client(), worker_of(harness)
    function = make(owner)
    taken(worker)
    call(owner, function, range(1, 30))
    call(other, function, range(100, 130))
    finish(worker, 100_000)
    order: List[int] = []
    for _ in range(100):
        order += taken(worker)
        finish(worker, 100_000)
    assert [each for each in order if each < 100] == list(range(1, 30))
    assert [each for each in order if each >= 100] == list(range(100, 130))
    assert order.index(100) < 10, "the other client did not wait for all calls of the first"


def test_calls_of_a_lost_worker_are_lost_and_so_are_those_that_wait_and_later_ones(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness, queue_size=2)
    worker_of(harness)
    function = make(client)
    home = worker if worker.inbox else harness.peers[sorted(harness.peers)[-1]]
    assert isinstance(home, Worker)
    call(client, function, range(1, 50))
    home.vanish()
    reasons = lost(client)
    assert len(reasons) == 50 and all("its connection was lost" in each for each in reasons)
    call(client, function, [50])
    assert len(lost(client)) == 1
    home.inbox.clear()
    harness.nothing_else_was_sent()


def test_a_worker_that_leaves_by_itself_loses_its_actors_as_well(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness)
    function = make(client)
    taken(worker)
    finish(worker)
    client.take_results()
    worker.send(m.DisconnectRequest(message="it is told to stop"))
    call(client, function, [1])
    (reason,) = lost(client)
    assert "it is told to stop" in reason


@pytest.mark.parametrize("is_congested", [False, True])
def test_an_actor_whose_first_call_was_not_sent_begins_elsewhere(
    harness: Harness, is_congested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, first = harness.client(), worker_of(harness, gpu=1)
    function = client.create(1, b"class")
    with monkeypatch.context() as patch:
        patch.setattr(task_placement, "BURST_BYTES", 0)  # the message waits for the next tick
        client.post(*task([0], function=function, options=options(actor=True, gpu=1)))
        harness.step()
    assert harness.state.actors.find(function).worker == first.session and taken(first) == []
    if is_congested:
        harness.core.on_congestion(harness.now, first.name, True)
    else:
        harness.core.on_peer_gone(harness.now, first.name)
    second = worker_of(harness, gpu=1)
    call(client, function, [1])
    assert taken(second)[:1] == [0] and lost(client) == []
    assert harness.state.actors.find(function).worker == second.session


def test_calls_are_not_given_back(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness)
    make(client)
    taken(worker)
    worker.give_back(held(worker))
    assert "calls of an actor" in worker.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)
    assert len(lost(client)) == 1


def test_a_closed_actor_ends_after_the_calls_that_were_submitted_before(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness)
    function = make(client)
    call(client, function, [1, 2])
    client.delete(function)
    call(client, function, [3])
    (reason,) = lost(client)
    assert "closed" in reason
    done: List[int] = []
    while len(done) < 3:
        done += taken(worker)
        finish(worker)
    assert done == [0, 1, 2]
    deleted = [each for each, _ in worker.inbox if isinstance(each, m.ObjectInstruction)]
    assert [list(each.ids) for each in deleted] == [[function]] and not len(harness.state.actors)


def test_an_actor_of_another_tenant_does_not_exist(harness: Harness) -> None:
    client, other = harness.client("a"), harness.client("b")
    worker_of(harness, tenant="a")
    function = make(client)
    texts = set()
    for wanted in (function, function + 1000):
        call(other, wanted, [wanted])
        ((_, failure),) = other.take_losses().items()
        assert failure.kind == m.FailureKind.ACTOR_LOST
        texts.add(failure.message.replace(f"{wanted:016x}", "ID"))
    assert len(texts) == 1


def test_other_clients_can_call_an_actor_and_not_begin_one(harness: Harness) -> None:
    owner, other, worker = harness.client(), harness.client(), worker_of(harness)
    function = owner.create(1, b"class")
    call(other, function, [7])
    assert len(lost(other)) == 1
    call(owner, function, [0])
    call(other, function, [8])
    order = taken(worker)
    finish(worker)
    assert [*order, *taken(worker)] == [0, 8]


def test_a_caller_that_goes_away_does_not_end_the_actor(harness: Harness) -> None:
    owner, other, worker = harness.client(), harness.client(), worker_of(harness)
    function = make(owner)
    taken(worker)
    finish(worker)
    owner.take_results()
    call(other, function, [8])
    (running,) = worker.take_tasks()
    other.vanish()
    cancel = worker.take(m.TaskCancel)
    assert list(cancel.ids) == [running] and not cancel.force
    call(owner, function, [1])
    assert taken(worker) == [1]


def test_an_actor_ends_with_the_client_that_made_it(harness: Harness) -> None:
    owner, other, worker = harness.client(), harness.client(), worker_of(harness)
    function = make(owner)
    taken(worker)
    owner.vanish()
    call(other, function, [1])
    assert len(lost(other)) == 1
    assert any(isinstance(each, m.ObjectInstruction) for each, _ in worker.inbox), "the worker ends it"
    assert not len(harness.state.actors)


def test_a_worker_that_drains_keeps_its_actors_and_gets_no_others() -> None:
    harness = Harness(protected=False)
    client, worker = harness.client(), worker_of(harness)
    function = make(client)
    taken(worker)
    finish(worker)
    client.send(m.WorkerShutdown(session=worker.session, is_draining=True))
    client.inbox.clear()
    assert worker.take(m.DisconnectRequest).reason == m.DisconnectReason.DRAINING
    call(client, function, [1])
    assert taken(worker) == [1]
    make(client, 2, 2)
    assert taken(worker) == []
    finish(worker)


def test_a_cancelled_call_that_waits_is_left_out_and_the_actor_lives(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness)
    function = make(client)
    call(client, function, range(1, 6))
    client.cancel(4, force=True)
    assert client.take_confirms() == {4: m.CancelOutcome.CANCELLED}
    order: List[int] = []
    for _ in range(6):
        order += taken(worker)
        finish(worker, 100_000)
    assert order == [0, 1, 2, 3, 5]


def test_calls_of_a_throttled_client_go_on_when_it_reads_again(harness: Harness) -> None:
    owner, worker = harness.client(), worker_of(harness)
    function = make(owner)
    taken(worker)
    finish(worker)
    owner.congest()
    call(owner, function, [1])
    assert taken(worker) == []
    owner.congest(False)
    assert taken(worker) == [1]


def test_calls_of_a_throttled_client_end_with_the_actor_when_it_reads_again(harness: Harness) -> None:
    owner, worker = harness.client(), worker_of(harness)
    function = make(owner)
    taken(worker)
    finish(worker)
    owner.take_results()
    owner.congest()
    call(owner, function, [1])
    worker.vanish()
    assert not owner.inbox
    owner.congest(False)
    assert len(lost(owner)) == 1


def test_rebalancing_goes_on_while_calls_wait(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness)
    function = make(client)
    taken(worker)
    finish(worker, 100_000)
    client.submit([100, 101])
    assert taken(worker) == [100, 101], "one waits there behind the other"
    call(client, function, range(102, 130))
    assert taken(worker) and len(harness.state.ready) > 0, "calls wait here"
    harness.worker(slots=1)
    harness.wait(1.0)
    assert worker.take(m.BalanceRequest).count > 0


def test_each_client_may_have_so_many_actors(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_placement, "MAXIMUM_ACTORS_OF_CLIENT", 3)
    client = harness.client()
    functions = [make(client, number, number) for number in (1, 2, 3)]
    make(client, 4, 4)
    ((_, failure),) = client.take_losses().items()
    assert failure.kind == m.FailureKind.REJECTED and "3 actors" in failure.message
    client.delete(functions[0])
    client.cancel(1)
    client.take_confirms()
    make(client, 5, 5)
    harness.nothing_else_was_sent()


def test_each_worker_has_at_most_so_many_and_the_others_wait(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_session, "MAXIMUM_ACTORS_OF_WORKER", 3)
    client, worker = harness.client(), worker_of(harness, slots=1)
    for number in (1, 2, 3, 4):
        make(client, number, number)
        taken(worker)
        finish(worker)
    assert len(harness.state.workers[worker.session].actors) == 3
    client.inbox.clear()
    client.send(m.ExplanationRequest(request_id=1, task_id=4))
    assert "fewer than" in client.take(m.Explanation).text


def looked_at(monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """The names of the actors that a worker is looked for, from now on."""
    names: List[str] = []
    choose = actor_placement.ActorPlacement._choose

    def note(self: Any, actor: Any) -> Any:
        names.append(actor.name)
        return choose(self, actor)

    monkeypatch.setattr(actor_placement.ActorPlacement, "_choose", note)
    return names


def test_actors_without_room_are_not_looked_at_while_nothing_changes_for_them(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, full, lacking = harness.client(), worker_of(harness, gpu=1), worker_of(harness)
    for number in range(1, 101):
        make(client, number, number, gpu=1)
    assert taken(full) == [1]
    looked = looked_at(monkeypatch)
    for _ in range(5):
        full.send(m.Heartbeat())
        lacking.send(m.Heartbeat())
        client.send(m.Heartbeat())
        harness.wait(1.0)
    assert looked == []
    worker_of(harness)
    client.submit([200])
    assert len(looked) <= 4, "one of all that wait, for each worker that has got room"


def test_one_actor_of_each_kind_is_looked_at_when_there_is_room(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = harness.client(), worker_of(harness, slots=9, gpu=3, fpga=1)
    first = make(client, 1, 1, gpu=3)
    make(client, 2, 2, fpga=1)
    assert taken(worker) == [1, 2]
    finish(worker)
    for number in range(3, 50, 2):
        make(client, number, number, gpu=1)
        make(client, number + 1, number + 1, fpga=1)
    looked = looked_at(monkeypatch)
    client.delete(first)
    harness.wait(0.1)
    assert taken(worker) == [3, 5, 7], "in the order in which they have waited"
    assert len(looked) <= 3 + 4, "those, and one of each kind that finds no place; at most twice"


def test_an_actor_that_comes_does_not_overtake_those_of_its_kind(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness, slots=9, gpu=1)
    functions = [make(client, number, number, gpu=1) for number in (1, 2, 3)]
    assert taken(worker) == [1]
    finish(worker)
    client.post(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=[functions[0]]))
    make(client, 4, 4, gpu=1)
    assert taken(worker) == [2]


@pytest.mark.parametrize("how", ["closed", "cancelled", "client"])
def test_an_actor_that_ends_while_it_waits_is_forgotten(harness: Harness, how: str) -> None:
    client, other, worker = harness.client(), harness.client(), worker_of(harness, slots=9, gpu=1)
    first, second = make(client, gpu=1), make(other, gpu=1)
    call(other, second, [1], gpu=1)
    third = make(client, 3, 3, gpu=1)
    assert taken(worker) == [0]
    finish(worker)
    if how == "client":
        other.vanish()
    else:
        other.cancel(0)
        other.cancel(1)
    if how == "closed":
        other.delete(second)
    harness.wait(1.0)
    client.delete(first)
    harness.wait(1.0)
    assert taken(worker) == [3]
    finish(worker)
    if how == "cancelled":
        call(other, second, [2], gpu=1)
        client.delete(third)
        harness.wait(1.0)
        assert taken(worker) == [2], "it waits again with its next call"


def test_calls_have_no_predecessors_and_are_no_nodes_of_graphs(harness: Harness) -> None:
    client = harness.client()
    function = client.create(1, b"class")
    message, payload = task([1], function=function, options=options(actor=True))
    message.predecessor_counts.append(1)
    message.predecessors.append(0)
    client.send(message, payload)
    assert "predecessors" in client.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "no worker"), ({"gpu": 3}, "gpu"), ({"older": True}, "runs actors")],
)
def test_what_a_call_waits_for_is_explained(harness: Harness, given: Any, expected: str) -> None:
    client = harness.client()
    if "older" in given:
        harness.worker()
        given = {}
    elif given:
        worker_of(harness, gpu=1)
    make(client, **given)
    harness.wait(1.0)
    client.inbox.clear()
    client.send(m.ExplanationRequest(request_id=1, task_id=0))
    assert expected in client.take(m.Explanation).text


def test_a_call_that_waits_for_the_calls_before_is_explained(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness)
    function = make(client)
    call(client, function, range(1, 100))
    taken(worker)
    client.inbox.clear()
    client.send(m.ExplanationRequest(request_id=1, task_id=99))
    text = client.take(m.Explanation).text
    assert "its actor" in text and "before it" in text


def test_an_actor_that_its_quota_keeps_waiting_uses_nothing_and_says_why() -> None:
    harness = Harness(tenants=[["a", 1.0, -1, 1, -1]])
    worker = worker_of(harness, slots=3, gpu=1, tenant="*")
    alice, bob = harness.client("a"), harness.client("b")
    alice.submit([0])
    make(alice, 1, 1, gpu=1)
    assert len(taken(worker)) == 1, "as many as its tenant may have"
    alice.inbox.clear()
    alice.send(m.ExplanationRequest(request_id=1, task_id=1))
    assert "tenant" in alice.take(m.Explanation).text
    make(bob, 1, 2, gpu=1)
    assert len(taken(worker)) == 1, "another tenant's actor uses what the first one needs"
    bob.delete(bob.object_id(1))
    finish(worker)
    harness.wait(1.0)
    assert len(taken(worker)) == 1, "then it begins"


def test_calls_of_a_lost_actor_end_however_little_a_call_of_the_core_may_do() -> None:
    harness = Harness(work_per_call=1)
    client, worker = harness.client(), worker_of(harness)
    function = make(client)
    call(client, function, range(1, 30))
    worker.vanish()
    assert len(lost(client)) == 30


def test_actors_that_end_while_it_is_looked_for_why_their_calls_wait_are_passed_over(harness: Harness) -> None:
    client, told = harness.client(), harness.core._explanations
    functions = [make(client, number, first_id=number) for number in range(1, 4)]
    told.watch(100.0)
    told.go_on(100.0, 1)
    begun, told._round = told._round, None  # other work comes first
    assert begun is not None, "it is at the first of them"
    worker = worker_of(harness, slots=3)
    harness.wait(1.0)
    assert sorted(taken(worker)) == [1, 2, 3]
    finish(worker)
    client.delete(*functions)
    assert not len(harness.state.actors)
    told._round = begun
    told.go_on(100.0, 1000)
    assert not told.is_unfinished
