"""Workers that fetch objects from one another: as holder and as fetcher."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.cases.worker.large_results import CONTENT, KEPT_RESULTS, SIZE, announcement_of
from scaler_conformance.cases.worker.objects import arguments_task, text_of
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.data_ends import Lie, PlayedFetcher, PlayedHolder, tell_truth
from scaler_conformance.playing.quiet_ports import quiet_port
from scaler_conformance.playing.worker_session import CHUNK_BYTES, WorkerSession

PEER_FETCH = "peerFetch"
SECRET = bytes(range(32))
HOLDER = 5  # its session
FIRST_REQUESTS, LATER_REQUESTS = 4, 64


def fetching_worker(bench: RoleBench) -> WorkerSession:
    """A worker that lists the feature, at a scheduler that does."""
    worker = bench.welcomed(features=[KEPT_RESULTS, PEER_FETCH])
    if PEER_FETCH not in worker.hello.features:
        raise NotApplicable("the worker does not list the feature peerFetch")
    check(worker.hello.dataAddress, "a dataAddress in the Hello of a worker with the feature", worker.hello)
    return worker


def holder_with_result(bench: RoleBench) -> Tuple[WorkerSession, PlayedFetcher, int]:
    """A worker that keeps a result, a connection to its data address, and the result."""
    worker = fetching_worker(bench)
    worker.fetches_objects = False
    announced = announcement_of(worker, worker.submit("size", SIZE))
    if announced.storages != [3]:
        raise NotApplicable("the worker does not use storage kept for large results")
    return worker, fetcher_from(bench, worker), announced.ids[0]


def fetcher_from(bench: RoleBench, worker: WorkerSession) -> PlayedFetcher:
    """Another worker, with a connection to the data address of the one under test."""
    hello = worker.hello
    fetcher = PlayedFetcher(hello.dataAddress, hello.dataKey, bench.settings.deadline_seconds)
    bench.at_end(fetcher.close)
    return fetcher


def issue(worker: WorkerSession, fetcher: PlayedFetcher, object_id: int, milliseconds: int = 30_000) -> None:
    """Tell a holder what another worker may fetch."""
    fields: Dict[str, Any] = {"id": object_id, "secret": SECRET, "key": fetcher.key}
    worker.send("Ticket", holder=worker.number, lifetimeMilliseconds=milliseconds, **fields)
    worker.fence()


def name_holder(worker: WorkerSession, object_id: int, address: str, key: bytes) -> None:
    """Tell a fetcher where it can fetch an object."""
    fields: Dict[str, Any] = {"id": object_id, "secret": SECRET, "address": address, "key": key}
    worker.send("Ticket", holder=HOLDER, lifetimeMilliseconds=9000, **fields)


def begin_fetch(bench: RoleBench, text: str) -> Tuple[WorkerSession, PlayedHolder, int, int]:
    """A worker begins to fetch a text from a holder; its task will give that text back.

    Returns the worker, the holder, the object and the task.
    """
    worker = fetching_worker(bench)
    holder = PlayedHolder(worker.json([text]), bool(worker.hello.dataKey))
    bench.at_end(holder.close)
    wanted = worker.announce(holder.content, storage="held", is_served=False)
    task = arguments_task(worker, wanted)
    worker.expect("TicketRequest", id=wanted)
    name_holder(worker, wanted, holder.address, holder.key)
    return worker, holder, wanted, task


def expect_refusal(fetcher: PlayedFetcher, reason: str) -> None:
    """A request on a data connection must be refused."""
    answer = fetcher.answer()
    came = answer.reason if answer.type == "Refusal" else answer
    check(came == reason, f"a Refusal of reason {reason}", came)


@case(covers=["SCL-OBJ-030"], features=["peer-fetch"])
def ticket_opens_one_object(bench: RoleBench) -> None:
    """With a ticket, another worker fetches the object that it is for, in any number of parts."""
    worker, fetcher, made = holder_with_result(bench)
    issue(worker, fetcher, made)
    offsets = range(0, len(CONTENT), CHUNK_BYTES)
    for offset in offsets:
        fetcher.request(made, offset, CHUNK_BYTES, SECRET)
        answer = fetcher.answer()
        wanted = CONTENT[offset : offset + CHUNK_BYTES]
        check(answer.type == "ObjectResponse" and answer.payload == wanted, f"the bytes from offset {offset}", answer)
        check(answer.size == len(CONTENT), f"size = {len(CONTENT)}", answer)


@case(covers=["SCL-OBJ-030"], features=["peer-fetch"])
def ticket_that_is_unknown_is_refused(bench: RoleBench) -> None:
    """Without a ticket that the scheduler has announced there are no bytes, but a Refusal."""
    _, fetcher, made = holder_with_result(bench)
    fetcher.request(made, 0, 10, SECRET[::-1])
    expect_refusal(fetcher, "ticketUnknown")


@case(covers=["SCL-OBJ-030"], features=["peer-fetch"])
def ticket_for_another_object_is_refused(bench: RoleBench) -> None:
    """A ticket is for one object: another one is refused."""
    worker, fetcher, made = holder_with_result(bench)
    issue(worker, fetcher, made + 1)
    fetcher.request(made, 0, 10, SECRET)
    expect_refusal(fetcher, "ticketForeign")


@case(covers=["SCL-OBJ-030"], features=["peer-fetch"])
def ticket_of_another_connection_is_refused(bench: RoleBench) -> None:
    """A ticket that was used on one connection is refused on another one, and stays valid on the first."""
    worker, fetcher, made = holder_with_result(bench)
    issue(worker, fetcher, made)
    fetcher.request(made, 0, 10, SECRET)
    check(fetcher.answer().payload == CONTENT[:10], "the bytes for who uses a ticket first", "others")
    thief = fetcher_from(bench, worker)
    thief.request(made, 0, 10, SECRET)
    expect_refusal(thief, "ticketForeign")
    fetcher.request(made, 10, 10, SECRET)
    check(fetcher.answer().payload == CONTENT[10:20], "the next bytes for who uses a ticket first", "others")


@case(covers=["SCL-OBJ-030"], features=["peer-fetch"])
def ticket_that_has_expired_is_refused(bench: RoleBench) -> None:
    """A ticket that was not used within its lifetime is refused."""
    worker, fetcher, made = holder_with_result(bench)
    issue(worker, fetcher, made, milliseconds=0)
    fetcher.request(made, 0, 10, SECRET)
    expect_refusal(fetcher, "ticketExpired")


@case(covers=["SCL-OBJ-036"], features=["peer-fetch"])
def ticket_that_was_taken_back_is_refused(bench: RoleBench) -> None:
    """A ticket that was used in time is refused once a Ticket with its secret and a lifetime of 0 has come."""
    worker, fetcher, made = holder_with_result(bench)
    issue(worker, fetcher, made)
    fetcher.request(made, 0, 10, SECRET)
    check(fetcher.answer().payload == CONTENT[:10], "the bytes for who uses a ticket in time", "others")
    issue(worker, fetcher, made, milliseconds=0)
    fetcher.request(made, 10, 10, SECRET)
    answer = fetcher.answer()
    check(answer.type == "Refusal" and not answer.payload, "a Refusal", answer)


@case(covers=["SCL-OBJ-028", "SCL-OBJ-029"], features=["peer-fetch"])
def object_is_fetched_from_its_holder(bench: RoleBench) -> None:
    """An object announced as held is fetched from the holder of the Ticket; then the worker is a holder, too."""
    text = text_of(3 * CHUNK_BYTES)
    worker, holder, wanted, task = begin_fetch(bench, text)
    holder.serve(-(-len(holder.content) // CHUNK_BYTES), bench.settings.deadline_seconds)
    worker.expect_value(task, text)
    check(set(holder.tickets) == {SECRET}, "the secret of the Ticket in each ObjectRequest", holder.tickets)
    held = worker.expect("ObjectInstruction", where=lambda each: each.action == "hold")
    check(held.ids == [wanted], f"hold for object {wanted:x}", held)
    worker.send("ObjectRequest", id=wanted, length=10)
    served = worker.expect("ObjectResponse", id=wanted, requirement="SCL-OBJ-029")
    check(served.payload == holder.content[:10], "the bytes of what it holds", served, "SCL-OBJ-029")


@case(covers=["SCL-OBJ-045"], features=["peer-fetch"])
def copy_from_the_scheduler_counts(bench: RoleBench) -> None:
    """A worker that is told no holder fetches from the scheduler, and says then that it holds the object."""
    worker = fetching_worker(bench)
    wanted = worker.announce(b'["from the scheduler"]', storage="held")
    task = arguments_task(worker, wanted)
    worker.expect("TicketRequest", id=wanted)
    worker.send("Ticket", id=wanted)
    worker.expect_value(task, "from the scheduler")
    held = worker.expect("ObjectInstruction", where=lambda each: each.action == "hold")
    check(held.ids == [wanted], f"hold for object {wanted:x}", held)


@case(covers=["SCL-OBJ-044"], features=["peer-fetch"])
def requests_to_a_holder_are_few_and_then_not_many(bench: RoleBench) -> None:
    """A worker has at most four unanswered requests at a holder before the first answer, and at most 64 after it."""
    text = text_of(100 * CHUNK_BYTES)
    worker, holder, _, task = begin_fetch(bench, text)
    most, answered = FIRST_REQUESTS, 0
    while answered < len(holder.content):
        holder.gather(bench.settings.deadline_seconds)
        worker.fence()
        holder.gather(0.0)
        unanswered = len(holder.open)
        check(unanswered <= most, f"at most {most} unanswered ObjectRequests on a data connection", unanswered)
        answered += holder.answer_next()
        most = LATER_REQUESTS
    worker.expect_value(task, text)


@case(covers=["SCL-OBJ-028"], features=["peer-fetch"])
def holder_that_cannot_be_reached_is_replaced(bench: RoleBench) -> None:
    """A worker that cannot reach the holder asks again, and fetches from the scheduler if that names no other one."""
    worker = fetching_worker(bench)
    wanted = worker.announce(b'["from the scheduler"]', storage="held")
    task = arguments_task(worker, wanted)
    worker.expect("TicketRequest", id=wanted)
    nowhere = f"tcp://127.0.0.1:{quiet_port()}"
    name_holder(worker, wanted, nowhere, worker.hello.dataKey)
    again = worker.expect("TicketRequest", id=wanted)
    check(again.failedHolder == HOLDER, f"a TicketRequest with failedHolder = {HOLDER}", again)
    worker.send("Ticket", id=wanted)
    worker.expect_value(task, "from the scheduler")


@case(covers=["SCL-OBJ-034"], features=["peer-fetch"])
def holder_that_answers_too_little_is_replaced(bench: RoleBench) -> None:
    """An answer without all bytes that were requested ends the fetch from that holder."""
    replace_liar(bench, "too little", lambda content, size: (content[: len(content) // 2], size))


@case(covers=["SCL-OBJ-034"], features=["peer-fetch"])
def holder_that_answers_too_much_is_replaced(bench: RoleBench) -> None:
    """An answer with more bytes than were requested ends the fetch from that holder."""
    replace_liar(bench, "too much", lambda content, size: (content + b"!", size))


@case(covers=["SCL-OBJ-034"], features=["peer-fetch"])
def holder_that_contradicts_the_size_is_replaced(bench: RoleBench) -> None:
    """An answer with another size than the announced one ends the fetch from that holder."""
    replace_liar(bench, "another size", lambda content, size: (content, size - 1))


def replace_liar(bench: RoleBench, what: str, lie: Lie) -> None:
    worker = fetching_worker(bench)
    content = worker.json([text_of(2 * CHUNK_BYTES)])
    holder = PlayedHolder(content, bool(worker.hello.dataKey), lie)
    bench.at_end(holder.close)
    wanted = worker.announce(content, storage="held")
    arguments_task(worker, wanted)
    worker.expect("TicketRequest", id=wanted)
    name_holder(worker, wanted, holder.address, holder.key)
    holder.serve(1, bench.settings.deadline_seconds, tell_truth)
    holder.serve(1, bench.settings.deadline_seconds)
    holder.serve_rest()
    again = worker.expect("TicketRequest", id=wanted, requirement="SCL-OBJ-034")
    check(again.failedHolder == HOLDER, f"a TicketRequest with failedHolder = {HOLDER} after {what}", again)


@case(covers=["SCL-OBJ-032"], features=["peer-fetch"])
def fetch_goes_on_where_it_was(bench: RoleBench) -> None:
    """When a holder is gone in the middle, only the rest is requested from the scheduler."""
    worker = fetching_worker(bench)
    content = worker.json([text_of(3 * CHUNK_BYTES - 100)])
    holder = PlayedHolder(content, bool(worker.hello.dataKey))
    wanted = worker.announce(content, storage="held", is_served=False)
    task = arguments_task(worker, wanted)
    worker.expect("TicketRequest", id=wanted)
    name_holder(worker, wanted, holder.address, holder.key)
    holder.serve(2, bench.settings.deadline_seconds)
    holder.leave(-(-len(content) // CHUNK_BYTES))
    worker.expect("TicketRequest", id=wanted, failedHolder=HOLDER)
    worker.send("Ticket", id=wanted)
    requested = set()
    while True:
        asked = worker.wait_until(lambda: worker.waiting("ObjectRequest") or worker.outcomes, "an ObjectRequest")
        if asked is worker.outcomes:
            break
        request = worker.expect("ObjectRequest", id=wanted)
        requested.add(request.offset)
        worker.answer(request, content)
    worker.expect_outcome(task)
    check(0 not in requested, "no ObjectRequest for bytes that the worker has received", sorted(requested))
