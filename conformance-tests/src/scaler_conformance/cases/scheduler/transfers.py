"""Workers that fetch objects from one another: what the scheduler tells them."""

from __future__ import annotations

from typing import Tuple

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.cases.scheduler.objects import KEPT_RESULTS
from scaler_conformance.codec.schema_codec import SCHEMA
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedWorker

PEER_FETCH = "peerFetch"
HELD = SCHEMA.enum("ObjectStorage").index("held")
CONTENT = b"large" * 14_000


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
