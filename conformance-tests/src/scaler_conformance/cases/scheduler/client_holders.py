"""Clients that keep large objects, for workers to fetch them: what the scheduler tells both, and what it fetches."""

from __future__ import annotations

from typing import Any, Dict

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.cases.scheduler.transfers import CONTENT, HELD, serving_worker, storage_at
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient

KEPT_ARGUMENTS = "keptArguments"
KEPT = 3
PLACE: Dict[str, Any] = {"dataAddress": "tcp://127.0.0.1:99", "dataKey": bytes([9]) * 32}


def keeping_client(bench: RoleBench) -> PlayedClient:
    """A client from which workers can fetch, at a scheduler whose Welcome lists the feature."""
    client = bench.client(features=[KEPT_ARGUMENTS], **PLACE)
    listed = client.welcome.features
    check(KEPT_ARGUMENTS in listed, f"the feature {KEPT_ARGUMENTS} in the Welcome", listed)
    return client


def keep(client: PlayedClient) -> int:
    return client.create_remote(len(CONTENT), storages=[KEPT])


def use(client: PlayedClient, object_id: int) -> int:
    """Submit a task that needs an object; its id."""
    return client.submit(dependencyCounts=[1], dependencies=[object_id])[0]


@case(covers=["SCL-OBJ-041", "SCL-OBJ-026"], features=["kept-arguments"])
def kept_argument_is_fetched_from_its_client(bench: RoleBench) -> None:
    """A worker is told to fetch an argument from the client that keeps it, which learns when the object has ended."""
    client, worker = keeping_client(bench), serving_worker(bench, 1)
    made = keep(client)
    task = use(client, made)
    given = worker.expect_task()
    storage = storage_at(worker, made)
    check(storage == HELD, f"object {made:x} to be announced as held ({HELD})", storage)
    worker.send("TicketRequest", id=made)
    ticket, told = worker.expect("Ticket", id=made), client.expect("Ticket", id=made)
    place = (client.number, PLACE["dataAddress"], PLACE["dataKey"])
    check((ticket.holder, ticket.address, ticket.key) == place, f"the place of the client, {place}", ticket)
    at_client = (told.holder, told.secret, told.key)
    check(at_client == (client.number, ticket.secret, bytes([1]) * 32), "the same secret at the client", told)
    worker.send("ObjectInstruction", action="hold", ids=[made])
    worker.succeed(given)
    client.expect_outcome(task, "success")
    client.delete(made)
    client.expect(
        "ObjectInstruction",
        where=lambda each: each.action == "delete" and made in each.ids,
        expected=f"the deletion of object {made:x} when its client needs it no longer",
        requirement="SCL-OBJ-041",
    )


@case(covers=["SCL-OBJ-040"], features=["kept-arguments"])
def kept_argument_of_another_client_is_fetched(bench: RoleBench) -> None:
    """What a task of another client needs is fetched, and is there when the client that made it has left."""
    client, other = keeping_client(bench), bench.client()
    worker = serving_worker(bench, 1)
    made = keep(client)
    client.fence()
    use(other, made)
    client.serve(made, CONTENT, "SCL-OBJ-040")
    worker.expect_task()
    client.leave()
    worker.send("ObjectRequest", id=made, offset=0, length=100)
    answer = worker.expect("ObjectResponse", id=made, requirement="SCL-OBJ-040")
    check(answer.payload == CONTENT[:100], "the bytes that the client had, after it has left", answer, "SCL-OBJ-040")


@case(covers=["SCL-OBJ-039"], features=["kept-arguments"])
def client_that_no_worker_reaches_is_named_once(bench: RoleBench) -> None:
    """A worker that could not fetch one object from a client is not told to fetch another one there."""
    client, worker = keeping_client(bench), serving_worker(bench, 1)
    first, second = keep(client), keep(client)
    client.submit(dependencyCounts=[2], dependencies=[first, second])
    worker.expect_task()
    worker.send("TicketRequest", id=first)
    check(worker.expect("Ticket", id=first).holder == client.number, "a Ticket that names the client", "another one")
    worker.send("TicketRequest", id=first, failedHolder=client.number)
    worker.send("TicketRequest", id=second)
    bench.quiet(worker)
    named = [each for each in worker.waiting("Ticket") if each.holder == client.number]
    check(not named, "no Ticket that names the client after a failure, for whichever object", named, "SCL-OBJ-039")
