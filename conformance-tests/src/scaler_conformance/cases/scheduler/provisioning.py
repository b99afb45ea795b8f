"""Provisioners: what they are sent, and which of their units are drained."""

from __future__ import annotations

from typing import Any, Dict, List

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import Message
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient

FEATURE = "provisioning"


def provisioner_of(bench: RoleBench) -> PlayedClient:
    """A provisioner of a scheduler whose Welcome lists the feature."""
    client: PlayedClient = bench.client(features=[FEATURE])
    check(FEATURE in client.welcome.features, f"the feature {FEATURE} in the Welcome", client.welcome.features)
    return client


def missing(demand: Message) -> int:
    """How many slots a Demand says are missing."""
    return sum(each.slotsMissing for each in demand.demands)


def unit(name: str, state: str) -> Dict[str, Any]:
    return {"unit": name, "pool": "a pool", "state": state, "slots": 1}


def release(client: PlayedClient, request: int, units: List[str], count: int, **fields: Any) -> List[str]:
    """Ask that units go; returns those that do."""
    client.send("ReleaseRequest", requestId=request, units=units, count=count, **fields)
    return list(client.expect("Release", requestId=request).units)


@case(covers=["SCL-SCH-049"], features=[FEATURE])
def demand_follows_the_tasks(bench: RoleBench) -> None:
    """A provisioner is sent the demand at first, when a task comes, and when the last one has ended."""
    provisioner = provisioner_of(bench)
    provisioner.expect("Demand", where=lambda each: not each.demands)
    client = bench.client()
    client.submit()
    demand = provisioner.expect("Demand", where=lambda each: len(each.demands) > 0)
    check(missing(demand) == 1 and demand.demands[0].tasks == 1, "one task for which one slot is missing", demand)
    worker = bench.worker(unit="a unit", slots=3)
    task = worker.expect_task()
    demand = provisioner.expect("Demand", where=lambda each: len(each.units) > 0 and not missing(each))
    check([(each.unit, each.slots) for each in demand.units] == [("a unit", 3)], "the unit with 3 slots", demand)
    worker.succeed(task)
    client.expect_outcome(1, "success")
    provisioner.expect("Demand", where=lambda each: not sum(demand.tasks for demand in each.demands))


@case(covers=["SCL-SCH-049"], features=[FEATURE])
def other_clients_are_sent_no_demand(bench: RoleBench) -> None:
    """A client that does not list the feature is sent no Demand."""
    provisioner, client = provisioner_of(bench), bench.client()
    client.submit()
    provisioner.expect("Demand", where=lambda each: missing(each) == 1)
    bench.quiet(client)
    client.expect_nothing_more(expected="no Demand without the feature")


@case(covers=["SCL-SCH-050"], features=[FEATURE])
def units_to_come_are_not_missing(bench: RoleBench) -> None:
    """A unit that starts is no missing slot, although no worker of it is connected yet."""
    provisioner, client = provisioner_of(bench), bench.client()
    client.submit()
    provisioner.expect("Demand", where=lambda each: missing(each) == 1)
    provisioner.send("Units", units=[unit("a unit", "starting")])
    demand = provisioner.expect("Demand", where=lambda each: len(each.demands) > 0 and not missing(each))
    check(sum(each.slotsWanted for each in demand.demands) == 1, "one slot is wanted", demand)


@case(covers=["SCL-SCH-050"], features=[FEATURE])
def units_that_fail_are_missing_again(bench: RoleBench) -> None:
    """A pending unit that has failed is a missing slot again."""
    provisioner, client = provisioner_of(bench), bench.client()
    provisioner.send("Units", units=[unit("a unit", "pending")])
    client.submit()
    provisioner.expect("Demand", where=lambda each: len(each.demands) > 0 and each.demands[0].tasks == 1)
    provisioner.send("Units", units=[unit("a unit", "failed")])
    provisioner.expect("Demand", where=lambda each: missing(each) == 1)


@case(covers=["SCL-SCH-053"], features=[FEATURE])
def demand_names_the_units_that_it_counts(bench: RoleBench) -> None:
    """Each Units is followed by a Demand with its sequence, also if nothing else has changed."""
    provisioner = provisioner_of(bench)
    for sequence in (1, 2, 3):
        provisioner.send("Units", sequence=sequence)
        provisioner.expect("Demand", unitsSequence=sequence)


@case(covers=["SCL-SCH-051"], features=[FEATURE])
def released_units_drain(bench: RoleBench) -> None:
    """Of three units as many drain as were asked for, and get no more tasks; unknown units are not named."""
    provisioner = provisioner_of(bench)
    workers = {name: bench.worker(unit=name) for name in ("a", "b", "c")}
    released = release(provisioner, 1, ["x", "a", "b"], count=1)
    check(len(released) == 1 and released[0] in ("a", "b"), "one of the two units that have workers", released)
    leaver = workers.pop(released[0])
    leaver.expect("DisconnectRequest", reason="draining")
    client = bench.client()
    client.submit(2)
    for worker in workers.values():
        worker.succeed(worker.expect_task())
    bench.quiet(leaver)
    leaver.expect_nothing_more(expected="no task for a worker of a released unit")


@case(covers=["SCL-SCH-052"], features=[FEATURE])
def idle_units_go_first(bench: RoleBench) -> None:
    """A unit with a task goes only if it may, and after one without."""
    provisioner, client = provisioner_of(bench), bench.client()
    busy = bench.worker(unit="busy")
    client.submit()
    task = busy.expect_task()
    check(not release(provisioner, 1, ["busy"], count=1), "no unit without mayBeBusy", "busy")
    bench.worker(unit="idle")
    chosen = release(provisioner, 2, ["busy", "idle"], count=1, mayBeBusy=True)
    check(chosen == ["idle"], "the idle unit", chosen)
    check(release(provisioner, 3, ["busy"], count=1, mayBeBusy=True) == ["busy"], "the busy unit", "none")
    busy.expect("DisconnectRequest", reason="draining")
    busy.succeed(task)
    client.expect_outcome(1, "success")


@case(covers=["SCL-SCH-055"], features=[FEATURE])
def unit_of_another_provisioner_is_refused(bench: RoleBench) -> None:
    """The second provisioner that names a unit is refused, and the first keeps its session."""
    first, second = provisioner_of(bench), bench.client(features=[FEATURE], host="another host", processId=1)
    first.send("Units", units=[unit("a unit", "pending")], sequence=1)
    first.expect("Demand", unitsSequence=1)
    second.send("Units", units=[unit("b unit", "pending")], sequence=1)
    second.expect("Demand", unitsSequence=1)
    second.send("Units", units=[unit("b unit", "pending"), unit("a unit", "pending")], sequence=1)
    second.expect("Refusal", reason="protocolViolation")
    check(not release(first, 1, ["a unit"], count=1), "a Release for the first one, whose unit has no worker", "a unit")


@case(covers=["SCL-SCH-055"], features=[FEATURE])
def provisioner_that_connects_again_keeps_its_units(bench: RoleBench) -> None:
    """A second session of the same process may name the units of the first one."""
    first, second = (bench.client(features=[FEATURE], host="a host", processId=7) for _ in range(2))
    first.send("Units", units=[unit("a unit", "pending")], sequence=1)
    first.expect("Demand", unitsSequence=1)
    second.send("Units", units=[unit("a unit", "pending")], sequence=1)
    second.expect("Demand", unitsSequence=1)
