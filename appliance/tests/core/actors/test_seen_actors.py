"""What clients and monitors see of actors: where they are, their calls, whether they are lost and why."""

from __future__ import annotations

from array import array
from typing import Any, List, Tuple

import pytest
from scheduler_harness import Client, Harness, Worker, options
from status_model import StatusModel, StatusMonitor, publication, view_of_publication

from scaler_appliance.core.monitoring import info_requests, status_columns
from scaler_appliance.core.tasks import worker_reports
from scaler_protocol import encode_struct
from scaler_protocol import messages as m

WAITING, ALIVE, LOST = m.ActorState.WAITING, m.ActorState.ALIVE, m.ActorState.LOST
Row = Tuple[Any, ...]


def worker_of(harness: Harness, slots: int = 2, **fields: Any) -> Worker:
    """A worker that runs actors."""
    return harness.worker(slots, features=["actors"], **fields)


def named(client: Client, number: int, name: str) -> int:
    """An object with a name."""
    function = client.object_id(number)
    columns = {"ids": array("Q", [function]), "sizes": array("Q", [1]), "storages": bytes(1)}
    client.send(m.ObjectInstruction(**columns, names=[name]), b"f")  # type: ignore[arg-type]  # named as the fields are
    return function


def call(client: Client, function: int, *ids: int) -> None:
    client.submit(ids, function=function, options=options(actor=True))


def taken(worker: Worker) -> List[int]:
    """The calls that a worker was sent, once it has heard of their objects."""
    instances: List[int] = []
    while worker.inbox:
        if isinstance(worker.inbox[0][0], m.Task):
            instances += worker.take_tasks()
        else:
            worker.inbox.popleft()
    return instances


def lose(worker: Worker, instances: List[int], payload: bytes, status: int = m.TaskStatus.LOST) -> None:
    """A worker reports calls with the same failure."""
    worker.send(
        m.TaskResult(
            ids=instances, payload_sizes=[len(payload)] * len(instances), statuses=bytes([status]) * len(instances)
        ),
        payload * len(instances),
    )


class Seen(StatusMonitor):
    """What a monitor of all, and clients who ask, see."""

    def __init__(self, harness: Harness, client: Client) -> None:
        super().__init__(harness)
        self.client = client

    def row(self, function: int) -> Row:
        """Its worker, calls that wait and are at the worker, those that ended and failed, its state and why."""
        self.look()
        row: Row = self.model.tables["actors"][function][1:]
        why = self.model.tables["actor_losses"].get(function, "")
        actor = next(each for each in ask(self.client).actors if each.id == function)
        told = (actor.worker, actor.calls_waiting, actor.calls_running, actor.calls_finished, actor.calls_failed)
        assert (*told, actor.state, actor.why_lost) == (*row, why)
        assert self.model.tables["actor_names"][function].name == actor.name
        return (*row, why)


def ask(client: Client, most: int = 10) -> m.Info:
    client.send(m.InfoRequest(request_id=1, maximum_actors=most))
    while not isinstance(client.inbox[0][0], m.Info):
        client.inbox.popleft()  # outcomes, which other tests look at
    return client.take(m.Info)


def test_an_actor_is_seen_from_its_first_call_to_its_end(harness: Harness) -> None:
    client = harness.client()
    seen = Seen(harness, client)
    function = named(client, 1, "Counter 'visits'")
    call(client, function, 0)
    assert seen.row(function) == (0, 1, 0, 0, 0, WAITING, "")
    worker = worker_of(harness, name="home")
    harness.wait(1.0)
    assert seen.row(function) == (worker.session, 0, 1, 0, 0, ALIVE, "")
    worker.finish(taken(worker))
    call(client, function, 1, 2)
    worker.finish(taken(worker))
    assert seen.row(function)[2:4] == (0, 3)
    actor = ask(client).actors[0]
    assert (actor.name, actor.client, actor.worker_name) == ("Counter 'visits'", client.session, "home")
    client.delete(function)
    assert list(seen.look().actors_gone) == [function]
    assert (ask(client).actor_count, ask(client).actors) == (0, [])
    assert not seen.look().actors.ids, "nothing happened"


def test_a_method_that_raises_is_a_failed_call_of_a_living_actor(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness)
    seen, function = Seen(harness, client), named(client, 1, "Counter")
    call(client, function, 0)
    worker.finish(taken(worker))
    call(client, function, 1)
    lose(worker, taken(worker), encode_struct(m.Failure(message="raised")), m.TaskStatus.FAILED)
    assert seen.row(function) == (worker.session, 0, 0, 2, 1, ALIVE, "")


def test_an_actor_that_was_lost_with_its_worker_says_which(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness, name="home")
    seen, function = Seen(harness, client), named(client, 1, "Counter 'visits'")
    call(client, function, 0)
    taken(worker)
    worker.vanish()
    *row, why = seen.row(function)
    assert row == [0, 0, 0, 1, 1, LOST]
    assert why.startswith("the actor Counter 'visits' was lost with its worker, ") and "home" in why


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (encode_struct(m.Failure(kind=m.FailureKind.ACTOR_LOST, message="its process was killed")), "its process was"),
        (encode_struct(m.Failure(kind=m.FailureKind.ACTOR_LOST)), "the actor Counter has ended"),
        (b"garbage", "the actor Counter has ended"),
        (bytes(worker_reports.LARGEST_REASON_BYTES + 8), "the actor Counter has ended"),
        (encode_struct(m.Failure(message="y" * 5000)), "y" * worker_reports.MAXIMUM_TEXT),
    ],
    ids=["a reason", "none", "garbage", "a large one", "a long text"],
)
def test_what_its_worker_says_of_a_lost_call_is_why_an_actor_is_lost(
    harness: Harness, payload: bytes, why: str
) -> None:
    client, worker = harness.client(), worker_of(harness)
    seen, function = Seen(harness, client), named(client, 1, "Counter")
    call(client, function, 0)
    worker.finish(taken(worker))
    call(client, function, 1)
    lose(worker, taken(worker), payload)
    *row, told = seen.row(function)
    assert row == [worker.session, 0, 0, 2, 1, LOST] and told.startswith(why)
    assert len(told) <= worker_reports.MAXIMUM_TEXT
    call(client, function, 2)
    assert taken(worker), "later calls still go there, and end there with the reason"


def test_an_actor_whose_first_call_failed_could_not_be_made(harness: Harness) -> None:
    client, worker = harness.client(), worker_of(harness)
    seen, function = Seen(harness, client), named(client, 1, "Broken")
    call(client, function, 0, 1)
    failure = encode_struct(m.Failure(message="no such model"))
    lose(worker, taken(worker), failure, m.TaskStatus.FAILED)
    assert seen.row(function)[5:] == (LOST, "no such model")


def test_calls_of_one_who_may_not_call_it_are_not_counted(harness: Harness) -> None:
    client, foreign, worker = harness.client("a"), harness.client("b"), worker_of(harness, tenant="*")
    function = named(client, 1, "Counter")
    call(client, function, 0)
    worker.finish(taken(worker))
    call(foreign, function, 0)
    call(foreign, 0, 1)
    (actor,) = ask(client).actors
    assert (actor.calls_finished, actor.calls_failed) == (1, 0)


@pytest.mark.parametrize("is_snapshot", [True, False])
def test_tenants_see_their_own_actors_alone(harness: Harness, is_snapshot: bool) -> None:
    clients = {tenant: harness.client(tenant) for tenant in ("a", "b")}
    models = {tenant: StatusModel() for tenant in clients}

    def look(is_snapshot: bool) -> None:
        publication(harness.core, is_snapshot)
        for tenant, model in models.items():
            model.apply(view_of_publication(harness.core, tenant))
            model.assert_is_true(harness.core, tenant)

    harness.core.watch(True, True)
    look(is_snapshot=True)
    functions = {tenant: named(client, 1, f"secret of {tenant}") for tenant, client in clients.items()}
    for tenant, client in clients.items():
        call(client, functions[tenant], 0)
    look(is_snapshot)
    for tenant, client in clients.items():
        assert [each.name for each in models[tenant].tables["actor_names"].values()] == [f"secret of {tenant}"]
        info = ask(client)
        assert (info.actor_count, [each.id for each in info.actors]) == (1, [functions[tenant]])
    everything = ask(harness.client())
    assert (everything.actor_count, len(everything.actors)) == (2, 2)


def test_as_many_are_listed_as_were_asked_for_and_a_scheduler_lists(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = harness.client()
    functions = [named(client, number, "Counter") for number in range(1, 6)]
    for number, function in enumerate(functions):
        call(client, function, number)
    assert [each.id for each in ask(client, 3).actors] == functions[:3]
    monkeypatch.setattr(info_requests, "MAXIMUM_ACTORS", 2)
    info = ask(client, 1 << 32 - 1)
    assert (info.actor_count, [each.id for each in info.actors]) == (5, functions[:2])


def test_a_long_name_is_cut_and_one_without_a_name_is_an_actor(harness: Harness) -> None:
    client = harness.client()
    long, none = named(client, 1, "x" * 1000), named(client, 2, "")
    call(client, long, 0)
    call(client, none, 1)
    assert [each.name for each in ask(client).actors] == ["x" * 256, ""]
    assert harness.state.actors.known[none].label == "the actor"


def test_actors_that_all_change_take_turns_in_the_increments(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_columns, "ACTORS_AT_ONCE", 2)
    client, worker = harness.client(), worker_of(harness, slots=9)
    harness.core.watch(True, True)
    publication(harness.core, is_snapshot=True)
    functions = [named(client, number, "Counter") for number in range(1, 6)]
    for number, function in enumerate(functions):
        call(client, function, number)
    told: List[int] = []
    while len(told) < 5:
        ids = list(publication(harness.core, is_snapshot=False).actors.ids)
        assert 0 < len(ids) <= 2
        told += ids
    assert sorted(told) == sorted(functions)
    worker.finish(taken(worker))
    harness.core.watch(False, False)
    assert not harness.state.changes.actors.dirty and not harness.state.changes.actors.gone


def test_an_actor_that_waits_is_published_once(harness: Harness) -> None:
    client = harness.client()
    seen, function = Seen(harness, client), named(client, 1, "Counter")
    call(client, function, 0)
    assert list(seen.look().actors.ids) == [function]
    for _ in range(3):
        harness.worker(slots=1)  # which runs no actors: the scheduler looks again for a place
        harness.wait(1.0)
        assert not seen.look().actors.ids
