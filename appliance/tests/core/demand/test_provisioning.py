"""Provisioners: what they are told, what they have started, and which units go."""

from __future__ import annotations

from typing import Any, List, Sequence

import pytest
from scheduler_harness import Client, Harness, Worker, hello, options
from status_model import publication, view_of_publication

from scaler_appliance.core.demand.unit_table import FOR_OTHERS
from scaler_protocol import messages as m
from scaler_protocol.session.features import PROVISIONING

GPU = [m.Capability(name="gpu", amount=1.0)]


def provisioner(
    harness: Harness, tenant: str = "", role: str = "provisioner", features: Sequence[str] = (), process_id: int = 7
) -> Client:
    client = Client(harness, f"peer {len(harness.peers)}".encode())
    harness.peers[client.name] = client
    if tenant:
        harness.core.on_authenticated(harness.now, client.name, role, tenant, "its key")
    greeting = hello(m.Role.CLIENT, features=features or [PROVISIONING])
    greeting.process_id = process_id
    welcome = client.greet(greeting)
    assert PROVISIONING in welcome.features
    harness.wait(1.0)
    if client.inbox:  # otherwise it may not be one
        client.take(m.Demand)
    return client


def demand(harness: Harness, client: Client, seconds: float = 1.0) -> m.Demand:
    _skip_demands(client)
    harness.wait(seconds)
    return client.take(m.Demand)


def unit_worker(harness: Harness, unit: str, **fields: Any) -> Worker:
    return harness.worker(places={"unit": unit}, **fields)


def release(client: Client, *units: str, count: int = 1, **fields: Any) -> List[str]:
    _skip_demands(client)
    client.send(m.ReleaseRequest(request_id=7, units=list(units), count=count, **fields))
    answer = client.take(m.Release)
    assert answer.request_id == 7
    return answer.units


def _skip_demands(client: Client) -> None:
    while client.inbox and isinstance(client.inbox[0][0], m.Demand):
        client.inbox.popleft()


def drained(worker: Worker) -> m.DisconnectRequest:
    while worker.inbox and not isinstance(worker.inbox[0][0], m.DisconnectRequest):
        worker.inbox.popleft()
    request = worker.take(m.DisconnectRequest)
    assert request.reason == m.DisconnectReason.DRAINING
    return request


def test_a_provisioner_gets_the_demand_and_then_what_has_changed() -> None:
    harness = Harness()
    client = provisioner(harness)
    harness.client().submit([0], options=options(gpu=1))
    (wanted,) = demand(harness, client).demands
    assert (wanted.capabilities, wanted.slots_wanted, wanted.slots_missing) == (GPU, 1, 1)

    harness.wait(1.0)
    assert not client.inbox


def test_other_clients_and_those_that_may_not_drain_get_none() -> None:
    harness = Harness()
    plain, submitter = harness.client(), provisioner(harness, tenant="a", role="client")
    plain.submit([0])
    harness.wait(1.0)
    assert not plain.inbox and not submitter.inbox

    submitter.send(m.Units())

    assert "role provisioner" in submitter.take_refusal(m.RefusalReason.NOT_ALLOWED)


def test_the_workers_of_units_are_known_by_their_hello() -> None:
    harness = Harness()
    client = provisioner(harness)
    unit_worker(harness, "job 1", slots=4)
    unit_worker(harness, "job 1", slots=2)
    harness.worker()

    assert demand(harness, client).units == [m.UnitUse(unit="job 1", slots=6)]


def test_a_worker_that_names_a_unit_of_any_length_makes_no_demand_long() -> None:
    harness = Harness()
    client = provisioner(harness)
    unit_worker(harness, "u" * 256, slots=2)
    unit_worker(harness, "u" * 257, slots=3)
    unit_worker(harness, "u" * 60_000)
    assert demand(harness, client).units == [m.UnitUse(unit="u" * 256, slots=2)]


def test_units_that_will_have_workers_are_slots_that_there_are_and_those_that_failed_are_not() -> None:
    harness = Harness()
    client = provisioner(harness)
    harness.client().submit([0], options=options(gpu=1))
    assert demand(harness, client).demands[0].slots_missing == 1

    client.send(m.Units(units=[m.Unit(unit="job 1", pool="gpu", slots=1, capabilities=GPU)]))
    wanted = demand(harness, client).demands[0]
    assert (wanted.slots_wanted, wanted.slots_missing) == (1, 0)

    for state in (m.UnitState.FAILED, m.UnitState.STOPPING, m.UnitState.RUNNING):
        client.send(m.Units(units=[m.Unit(unit="job 1", pool="gpu", state=state, slots=1, capabilities=GPU)]))
        harness.wait(1.0)
    (told,) = client.inbox
    assert isinstance(told[0], m.Demand) and told[0].demands[0].slots_missing == 1


def test_a_unit_whose_worker_is_connected_counts_once() -> None:
    harness = Harness()
    client = provisioner(harness)
    harness.client().submit(range(2), options=options(time_request_milliseconds=1000))
    client.send(m.Units(units=[m.Unit(unit="job 1", slots=1)]))
    assert demand(harness, client).demands[0].slots_missing == 0
    harness.client().submit([0], options=options(gpu=1))
    unit_worker(harness, "job 1")

    found = demand(harness, client)

    assert found.units == [m.UnitUse(unit="job 1", slots=1)]
    assert sorted(each.slots_missing for each in found.demands) == [0, 1]


def test_a_task_that_waits_is_explained_by_the_units_that_are_to_come() -> None:
    harness = Harness()
    client, user = provisioner(harness), harness.client()
    user.submit([0])
    pending = [m.Unit(unit=f"job {number}", pool="gpu", reason="Resources", slots=1) for number in range(2)]
    client.send(m.Units(units=pending, notes=["the pool cpu is paused for 60 s: sbatch failed"]))

    user.send(m.ExplanationRequest(request_id=1, task_id=0))

    text = user.take(m.Explanation).text
    assert "; 2 units of the pool gpu are pending (Resources); the pool cpu is paused for 60 s: sbatch failed" in text


def test_monitors_are_told_what_is_to_come_and_what_provisioners_note() -> None:
    harness = Harness()
    client, of_a_tenant = provisioner(harness), provisioner(harness, tenant="a")
    harness.core.watch(True, True)
    client.send(m.Units(units=[m.Unit(unit="job 1", pool="gpu", reason="Resources", slots=1)]))
    of_a_tenant.send(m.Units(notes=["the pool cpu is paused"]))

    status = publication(harness.core, is_snapshot=True)

    pending = "1 unit of the pool gpu is pending (Resources)"
    assert status.unit_notes == [pending, "the pool cpu is paused"]
    assert view_of_publication(harness.core, "a").unit_notes == [pending, "the pool cpu is paused"]
    assert view_of_publication(harness.core, "b").unit_notes == [pending]

    client.vanish()
    of_a_tenant.vanish()
    assert not publication(harness.core, is_snapshot=False).unit_notes


def test_what_a_provisioner_notes_of_the_tasks_of_several_tenants_is_told_to_none_of_them() -> None:
    harness = Harness()
    client = provisioner(harness, tenant="*")
    harness.core.watch(True, True)
    users = {tenant: harness.client(tenant=tenant) for tenant in ("a", "b")}

    def told(tenant: str) -> str:
        users[tenant].send(m.ExplanationRequest(request_id=1, task_id=0))
        text = users[tenant].take(m.Explanation).text
        publication(harness.core, is_snapshot=False)
        (noted,) = view_of_publication(harness.core, tenant).unit_notes
        assert text.endswith(f"; {noted}")
        return noted

    users["a"].submit([0], options=options(secret=1))
    assert demand(harness, client).demands
    note = "no pool has units for tasks that need secret=1"
    client.send(m.Units(notes=[note]))
    assert told("a") == note, "it knows no other tasks"

    users["b"].submit([0], options=options(gpu=1))
    demand(harness, client)
    client.send(m.Units(notes=[note], sequence=1))
    assert (told("a"), told("b")) == (FOR_OTHERS, FOR_OTHERS)
    assert publication(harness.core, is_snapshot=True).unit_notes == [note], "of all tenants"

    users["a"].vanish()
    harness.wait(2.0)
    client.send(m.Units(notes=[note], sequence=2))
    assert told("b") == FOR_OTHERS, "what a provisioner notes may be about tasks that have ended"


def test_units_of_a_provisioner_that_is_gone_are_forgotten() -> None:
    harness = Harness()
    client, other = provisioner(harness), provisioner(harness)
    harness.client().submit([0])
    client.send(m.Units(units=[m.Unit(unit="job 1", slots=1)]))
    assert demand(harness, other).demands[0].slots_missing == 0

    client.vanish()

    assert demand(harness, other).demands[0].slots_missing == 1


def test_an_idle_unit_goes_before_a_busy_one_and_drains() -> None:
    harness = Harness()
    client, user = provisioner(harness), harness.client()
    busy = unit_worker(harness, "a")
    user.submit([0])
    busy.take_tasks()
    idle = unit_worker(harness, "b")

    assert release(client, "a", "b", may_be_busy=True) == ["b"]
    assert drained(idle).drain_cause == m.DrainCause.IDLE
    assert release(client, "a", "b") == []

    assert release(client, "a", "b", may_be_busy=True) == ["a"]
    assert drained(busy).drain_cause == m.DrainCause.OPERATOR
    assert not idle.inbox


def test_the_unit_with_less_work_goes_before_one_with_more() -> None:
    harness = Harness()
    client, user = provisioner(harness), harness.client()
    much = unit_worker(harness, "much", slots=2)
    user.submit(range(2))
    much.take_all_tasks()
    little = unit_worker(harness, "little", slots=2)
    user.submit([2])
    little.take_tasks()

    assert release(client, "much", "little", may_be_busy=True) == ["little"]


def test_a_unit_must_have_been_idle_for_as_long_as_the_provisioner_wants() -> None:
    harness = Harness()
    client, user = provisioner(harness), harness.client()
    worker = unit_worker(harness, "a")
    harness.wait(2.0)
    user.submit([0])
    worker.finish(worker.take_tasks())
    assert release(client, "a", idle_milliseconds=2000) == []

    harness.wait(1.0)
    harness.wait(2.0)

    assert release(client, "a", idle_milliseconds=2000) == ["a"]


def test_the_idle_time_begins_when_the_tasks_have_ended_and_not_when_they_were_seen_last() -> None:
    harness = Harness()
    client, user = provisioner(harness), harness.client()
    worker = unit_worker(harness, "a")
    user.submit([0])
    tasks = worker.take_tasks()
    harness.wait(1.0)
    harness.now += 0.9
    worker.finish(tasks)
    harness.wait(0.1)

    assert release(client, "a", idle_milliseconds=1000) == []
    harness.wait(1.0)
    assert release(client, "a", idle_milliseconds=1000) == ["a"]


def test_only_units_that_are_named_and_have_workers_go_and_never_more_than_wanted() -> None:
    harness = Harness()
    client = provisioner(harness)
    workers = [unit_worker(harness, unit) for unit in "abcd"]

    assert release(client, "b", "c", "d", "x", "", "c", count=2) == ["b", "c"]
    assert release(client, "b", "c", "d", count=5) == ["d"]

    assert [bool(worker.inbox) for worker in workers] == [False, True, True, True]


def test_a_unit_that_is_chosen_gets_no_more_tasks_and_is_no_slot() -> None:
    harness = Harness()
    client = provisioner(harness)
    worker = unit_worker(harness, "a")
    assert release(client, "a") == ["a"]
    drained(worker)
    harness.client().submit([0])

    found = demand(harness, client)

    assert found.units == [m.UnitUse(unit="a", slots=1, is_leaving=True)]
    assert found.demands[0].slots_missing == 1 and not worker.inbox


def test_a_provisioner_of_a_tenant_sees_and_releases_what_is_its_own() -> None:
    harness = Harness()
    client = provisioner(harness, tenant="a")
    harness.client("b").submit([0])
    harness.worker(tenant="b", places={"unit": "theirs"}).take_tasks()
    harness.worker(tenant="a", places={"unit": "own"})

    assert demand(harness, client) == m.Demand(units=[m.UnitUse(unit="own", slots=1)])
    assert release(client, "theirs", "own", count=9, may_be_busy=True) == ["own"]


def test_amounts_of_units_and_pools_that_cannot_be_counted_are_an_error() -> None:
    negative = [m.Capability(name="gpu", amount=-1.0)]
    for units in (
        m.Units(units=[m.Unit(unit="a", capabilities=negative)]),
        m.Units(pools=[m.UnitPool(pool="a", capabilities=negative)]),
    ):
        client = provisioner(Harness())

        client.send(units)

        assert "gpu" in client.take_refusal(m.RefusalReason.MALFORMED)


def test_a_demand_names_the_last_units_that_it_counts() -> None:
    harness = Harness()
    client = provisioner(harness)

    client.send(m.Units(sequence=7))

    assert demand(harness, client) == m.Demand(units_sequence=7)


def test_a_unit_of_another_provisioner_is_refused_with_the_name_of_that_one() -> None:
    harness = Harness()
    first, second = provisioner(harness), provisioner(harness, process_id=8)
    first.send(m.Units(units=[m.Unit(unit="cpu-ab-1", pool="cpu", slots=1)], sequence=1))
    second.send(m.Units(units=[m.Unit(unit="cpu-cd-1", pool="cpu", slots=1)], sequence=1))

    second.send(m.Units(units=[m.Unit(unit="cpu-ab-1", pool="cpu", slots=1)], sequence=2))

    text = second.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)
    assert "unit 'cpu-ab-1' of the pool 'cpu' belongs to" in text and "(here, process 7)" in text
    first.send(m.Units(units=[m.Unit(unit="cpu-ab-1", pool="cpu", slots=1)], sequence=2))
    assert demand(harness, first).units_sequence == 2


def test_units_may_be_named_by_a_later_session_of_their_provisioner_by_its_successor_and_by_other_tenants() -> None:
    harness = Harness()
    unit = m.Unit(unit="cpu-ab-1", pool="cpu", slots=1)
    first = provisioner(harness)
    first.send(m.Units(units=[unit], sequence=1))
    again = provisioner(harness)
    again.send(m.Units(units=[unit], sequence=1))
    assert demand(harness, again).units_sequence == 1

    of_a_tenant = provisioner(harness, tenant="a", process_id=9)
    of_a_tenant.send(m.Units(units=[unit], sequence=1))
    assert demand(harness, of_a_tenant).units_sequence == 1

    first.vanish()
    again.vanish()
    successor = provisioner(harness, process_id=8)
    successor.send(m.Units(units=[unit], sequence=1))
    assert demand(harness, successor).units_sequence == 1


@pytest.mark.parametrize("own", ["", "*"], ids=["the owner's", "for all"])
def test_a_worker_of_another_tenant_is_refused_when_it_names_a_unit_of_a_provisioner_for_all(own: str) -> None:
    harness = Harness()
    client = provisioner(harness, tenant=own)
    client.send(m.Units(units=[m.Unit(unit="job 1", slots=1)]))
    rogue = Client(harness, b"rogue")
    harness.peers[rogue.name] = rogue
    harness.core.on_authenticated(harness.now, rogue.name, "worker", "b", "its key")

    rogue.send(hello(m.Role.WORKER, slots=1, queue_size=1, unit="job 1"))

    assert "--role worker --tenant '*'" in rogue.take_refusal(m.RefusalReason.NOT_ALLOWED)
    harness.worker(tenant="b", places={"unit": "job 2"})  # of which no provisioner has said anything
    for tenant in ("", "default", "*"):
        harness.worker(tenant=tenant, places={"unit": "job 1"})
    assert demand(harness, client).units == [m.UnitUse(unit="job 1", slots=3)]


@pytest.mark.parametrize("own", ["a", "", "*"], ids=["of a tenant", "the owner's", "for all"])
def test_a_worker_of_another_tenant_that_was_there_before_is_of_no_unit(own: str) -> None:
    harness = Harness()
    client = provisioner(harness, tenant=own)
    harness.worker(tenant="b", places={"unit": "job 1"})
    user = harness.client(tenant="" if own == "*" else own)
    user.submit([0], options=options(gpu=1))
    client.send(m.Units(units=[m.Unit(unit="job 1", slots=1, capabilities=GPU)]))

    found = demand(harness, client)

    assert [each.slots_missing for each in found.demands] == [0], "the unit is still to come"
    assert found.units == [] and release(client, "job 1") == []


def test_whether_a_provisioner_of_another_tenant_has_a_unit_is_not_told() -> None:
    harness = Harness()
    provisioner(harness, tenant="a").send(m.Units(units=[m.Unit(unit="job 1", slots=1)]))
    harness.worker(tenant="b", places={"unit": "job 1"})  # welcome, as with any name
