"""Large objects that a client keeps, for workers to fetch them from it."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.cases.client.user_objects import created_object
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.client_session import CHUNK_BYTES, ClientObject, ClientSession
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.data_ends import PlayedFetcher

KEPT_ARGUMENTS = "keptArguments"
SECRET = bytes(range(32))
SIZE = 2 << 20


def keeper_with_object(bench: RoleBench) -> Tuple[ClientSession, PlayedFetcher, ClientObject]:
    """A client that keeps an object, a worker's connection to its data address, and the object."""
    bench.need("object")
    session = bench.welcomed(features=[KEPT_ARGUMENTS])
    if KEPT_ARGUMENTS not in session.hello.features:
        raise NotApplicable("the client does not list the feature keptArguments")
    check(session.hello.dataAddress, "a dataAddress in the Hello of a client with the feature", session.hello)
    bench.create_object(SIZE)
    made = created_object(bench, session)
    if made.storage != "kept":
        raise NotApplicable("the client does not use storage kept for large objects")
    return session, fetcher_from(bench, session), made


def fetcher_from(bench: RoleBench, session: ClientSession) -> PlayedFetcher:
    hello = session.hello
    fetcher = PlayedFetcher(hello.dataAddress, hello.dataKey, bench.settings.deadline_seconds)
    bench.at_end(fetcher.close)
    return fetcher


def issue(session: ClientSession, fetcher: PlayedFetcher, object_id: int, milliseconds: int = 30_000) -> None:
    """Tell the client what a worker may fetch."""
    fields: Dict[str, Any] = {"id": object_id, "secret": SECRET, "key": fetcher.key}
    session.send("Ticket", holder=session.number, lifetimeMilliseconds=milliseconds, **fields)
    session.fence()


def expect_refusal(fetcher: PlayedFetcher, reason: str) -> None:
    answer = fetcher.answer()
    came = answer.reason if answer.type == "Refusal" else answer
    check(came == reason, f"a Refusal of reason {reason}", came)


def expect_bytes(fetcher: PlayedFetcher, made: ClientObject, offset: int, wanted: bytes) -> None:
    """Request a part with the ticket, and get it."""
    fetcher.request(made.id, offset, len(wanted), SECRET)
    answer = fetcher.answer()
    came = answer.payload == wanted and answer.size == made.size
    check(answer.type == "ObjectResponse" and came, f"the bytes from offset {offset}", answer)


@case(covers=["SCL-OBJ-042", "SCL-OBJ-043"], features=["kept-arguments"])
def ticket_opens_a_kept_object(bench: RoleBench) -> None:
    """A worker with a ticket gets the bytes of an object, and so does the scheduler, which needs none."""
    session, fetcher, made = keeper_with_object(bench)
    whole = session.content(made.id)
    issue(session, fetcher, made.id)
    for offset in (0, CHUNK_BYTES, made.size - 5):
        expect_bytes(fetcher, made, offset, whole[offset : offset + CHUNK_BYTES])


@case(covers=["SCL-OBJ-042"], features=["kept-arguments"])
def unknown_ticket_gets_no_kept_object(bench: RoleBench) -> None:
    """Without a ticket that the scheduler has announced there are no bytes, but a Refusal."""
    _, fetcher, made = keeper_with_object(bench)
    fetcher.request(made.id, 0, 10, SECRET)
    expect_refusal(fetcher, "ticketUnknown")


@case(covers=["SCL-OBJ-042"], features=["kept-arguments"])
def foreign_ticket_gets_no_kept_object(bench: RoleBench) -> None:
    """A ticket is for one object: another one is refused."""
    session, fetcher, made = keeper_with_object(bench)
    issue(session, fetcher, made.id + 1)
    fetcher.request(made.id, 0, 10, SECRET)
    expect_refusal(fetcher, "ticketForeign")


@case(covers=["SCL-OBJ-042"], features=["kept-arguments"])
def used_ticket_gets_no_kept_object(bench: RoleBench) -> None:
    """A ticket that was used on one connection is refused on another one."""
    session, fetcher, made = keeper_with_object(bench)
    part = session.fetch(made.id, 0, 10).payload
    issue(session, fetcher, made.id)
    expect_bytes(fetcher, made, 0, part)
    thief = fetcher_from(bench, session)
    thief.request(made.id, 0, 10, SECRET)
    expect_refusal(thief, "ticketForeign")


@case(covers=["SCL-OBJ-042"], features=["kept-arguments"])
def late_ticket_gets_no_kept_object(bench: RoleBench) -> None:
    """A ticket that was not used within its lifetime is refused."""
    session, fetcher, made = keeper_with_object(bench)
    issue(session, fetcher, made.id, milliseconds=0)
    fetcher.request(made.id, 0, 10, SECRET)
    expect_refusal(fetcher, "ticketExpired")


@case(covers=["SCL-OBJ-043"], features=["kept-arguments"])
def kept_object_stays_until_it_has_ended(bench: RoleBench) -> None:
    """An object that the user has deleted is there, for tasks of others, until the scheduler says that it has ended."""
    bench.need("clear")
    session, fetcher, made = keeper_with_object(bench)
    part = session.fetch(made.id, 5, 10).payload
    bench.clear()
    session.expect_deleted(made.id)
    issue(session, fetcher, made.id)
    expect_bytes(fetcher, made, 5, part)
    check(session.fetch(made.id, 5, 10).payload == part, "the same bytes for the scheduler", "others")


@case(covers=["SCL-OBJ-038"], features=["kept-arguments"])
def older_scheduler_is_asked_to_keep_nothing(bench: RoleBench) -> None:
    """At a scheduler that does not list the feature, large objects are created as ever."""
    bench.need("object")
    session = bench.welcomed()
    bench.create_object(SIZE)
    made = created_object(bench, session)
    check(made.storage != "kept", "another storage than kept at a scheduler without the feature", made.message)
