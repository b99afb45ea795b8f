"""Workers that fetch objects from one another, and from clients: what the scheduler tells them, and what it fetches."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.cases.scheduler.objects import KEPT_RESULTS
from scaler_conformance.codec.schema_codec import SCHEMA
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient, PlayedWorker

PEER_FETCH = "peerFetch"
HELD = SCHEMA.enum("ObjectStorage").index("held")
CONTENT = b"large" * 14_000
KEPT_ARGUMENTS = "keptArguments"
KEPT = 3
PLACE: Dict[str, Any] = {"dataAddress": "tcp://127.0.0.1:99", "dataKey": bytes([9]) * 32}


def serving_worker(bench: RoleBench, number: int) -> PlayedWorker:
    """A worker that serves others, at a scheduler whose Welcome lists the feature."""
    address, key = f"tcp://127.0.0.1:{9 + number}", bytes([number]) * 32
    worker: PlayedWorker = bench.worker(features=[KEPT_RESULTS, PEER_FETCH], dataAddress=address, dataKey=key)
    listed = worker.welcome.features
    check(PEER_FETCH in listed, f"the feature {PEER_FETCH} in the Welcome", listed)
    return worker


def shared_result(bench: RoleBench, is_new: bool = True) -> Tuple[PlayedWorker, PlayedWorker, int]:
    """A worker that keeps a result, another one that needs it, and the result.

    Parameters:
        is_new: the other one can fetch from workers.
    """
    client, maker = bench.client(), serving_worker(bench, 1)
    client.graph([[], [0], [0]], [1, 2])
    first = maker.expect_task()
    other = serving_worker(bench, 2) if is_new else bench.worker(features=[KEPT_RESULTS])
    made = maker.keep_large(first, CONTENT)
    maker.expect_task()
    other.expect_task()
    return maker, other, made


def storage_at(worker: PlayedWorker, object_id: int) -> int:
    """As what an object was announced to a worker."""
    _, message, _ = worker.announced[object_id]
    return int(dict(zip(message.ids, message.storages))[object_id])


@case(covers=["SCL-OBJ-026", "SCL-OBJ-025"], features=["peer-fetch"])
def ticket_is_told_to_both_ends(bench: RoleBench) -> None:
    """A worker that needs what another one has is told where to fetch it, with a secret that only the two are told."""
    maker, other, made = shared_result(bench)
    storage = storage_at(other, made)
    check(storage == HELD, f"object {made:x} to be announced as held ({HELD})", storage)
    third = serving_worker(bench, 3)
    other.send("TicketRequest", id=made)
    ticket = other.expect("Ticket", id=made)
    told = maker.expect("Ticket", id=made)
    wanted = (maker.number, "tcp://127.0.0.1:10", bytes([1]) * 32)
    check((ticket.holder, ticket.address, ticket.key) == wanted, f"the place of the holder, {wanted}", ticket)
    check(ticket.secret and ticket.lifetimeMilliseconds, "a secret and a lifetime", ticket)
    check(
        (told.holder, told.secret, told.key) == (maker.number, ticket.secret, bytes([2]) * 32),
        "the same secret, and the key of the fetcher, at the holder",
        told,
    )
    bench.quiet(maker, other, third)
    leaked = third.waiting("Ticket")
    check(not leaked, "no Ticket for a worker that has nothing to do with it", leaked)


@case(covers=["SCL-OBJ-025"], features=["peer-fetch"])
def ticket_request_is_always_answered(bench: RoleBench) -> None:
    """A TicketRequest is answered also when no worker can be named, as for an unknown object or a failed holder."""
    maker, other, made = shared_result(bench)
    other.send("TicketRequest", id=other.new_object())
    check(other.expect("Ticket").holder == 0, "a Ticket without a holder for an unknown object", "another one")
    other.send("TicketRequest", id=made)
    named = other.expect("Ticket", id=made).holder
    check(named == maker.number, f"a Ticket that names session {maker.number}", named)
    other.send("TicketRequest", id=made, failedHolder=named)
    other.expect("Ticket", id=made)


@case(covers=["SCL-OBJ-046"], features=["peer-fetch"])
def copy_without_a_ticket_counts(bench: RoleBench) -> None:
    """A worker may find the bytes on its host, and say that it holds them, without having asked where they are."""
    _, other, made = shared_result(bench)
    other.send("ObjectInstruction", action="hold", ids=[made])
    bench.quiet(other)
    refused = other.waiting("Refusal")
    check(not refused, f"no Refusal of hold for object {made:x}, which was announced", refused)


@case(covers=["SCL-OBJ-035"], features=["peer-fetch"])
def ticket_of_a_lost_fetcher_is_taken_back(bench: RoleBench) -> None:
    """When a worker with a Ticket is gone, the holder is told that it is valid no longer."""
    maker, other, made = shared_result(bench)
    other.send("TicketRequest", id=made)
    secret = other.expect("Ticket", id=made).secret
    other.cut()
    taken = maker.expect("Ticket", where=lambda each: not each.lifetimeMilliseconds, id=made)
    told, wanted = (taken.holder, taken.secret), (maker.number, secret)
    check(told == wanted, "a Ticket with the same secret, for the same holder, and a lifetime of 0", taken)


@case(covers=["SCL-OBJ-033"], features=["peer-fetch"])
def older_worker_knows_of_no_transfers(bench: RoleBench) -> None:
    """A worker that does not list the feature gets the announcement that it has always got, and no Ticket."""
    _, other, made = shared_result(bench, is_new=False)
    storage = storage_at(other, made)
    check(storage != HELD, f"object {made:x} not to be announced as held ({HELD})", storage)
    bench.quiet(other)
    tickets = other.waiting("Ticket")
    check(not tickets, "no Ticket for a worker without the feature", tickets)
    other.send("TicketRequest", id=made)
    other.expect_refusal("protocolViolation", "a TicketRequest of a worker without the feature")


# From clients --------------------------------------------------------------------------------------------------------


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
