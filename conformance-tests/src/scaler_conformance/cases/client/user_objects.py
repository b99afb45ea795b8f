"""Objects that the user creates once, for many tasks."""

from __future__ import annotations

from functools import partial

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.client_session import CHUNK_BYTES, ClientObject, ClientSession, SentTask
from scaler_conformance.playing.conversation import check

SMALL, LARGE = 1000, 5 * CHUNK_BYTES + 17


def created_object(bench: RoleBench, session: ClientSession, count: int = 1) -> ClientObject:
    """The newest of `count` objects that the user has created."""
    session.wait_until(lambda: len(session.values()) >= count, f"{count} objects of kind value")
    check(len(session.values()) == count, f"{count} objects of kind value", session.values())
    return session.values()[-1]


def end(bench: RoleBench, session: ClientSession, sent: SentTask, task: int) -> None:
    """End a task with an outcome that the client can read whatever the codec is."""
    session.fail(sent, f"the end of task {task}")
    bench.expect_error(task, f"the end of task {task}")


def sent_or_ended(bench: RoleBench, session: ClientSession, task: int) -> bool:
    return bench.outcome(task) is not None or bool(session.tasks)


@case(covers=["SCL-CLT-006"])
def objects_are_created_before_their_tasks(bench: RoleBench) -> None:
    """Objects that the user creates are sent, with their contents, before the task that has them as dependencies."""
    bench.need("object")
    session = bench.welcomed()
    task = bench.call(bench.create_object(SMALL), bench.create_object(LARGE))
    sent = session.expect_call(1)
    created_object(bench, session, 2)
    sizes = sorted(each.size for each in session.values())
    check(sizes[0] >= SMALL and sizes[1] >= LARGE, f"objects of at least {SMALL} and {LARGE} bytes", sizes)
    wanted = sorted(each.id for each in session.values())
    check(sorted(sent.dependencies) == wanted, "both objects as dependencies", sent.message)
    end(bench, session, sent, task)


@case(covers=["SCL-CLT-006"])
def objects_serve_many_tasks(bench: RoleBench) -> None:
    """An object stays available for several tasks, one after the other."""
    bench.need("object")
    session = bench.welcomed()
    value = bench.create_object(SMALL)
    for count in (1, 2, 3):
        task = bench.call(value)
        sent = session.expect_call(count)
        check(len(sent.dependencies) == 1, "one dependency", sent.message)
        end(bench, session, sent, task)
    session.fence()


@case(covers=["SCL-OBJ-009"])
def large_objects_are_served_in_chunks(bench: RoleBench) -> None:
    """Requests for a large remote object are answered in order, each with exactly the requested bytes."""
    bench.need("object")
    session = bench.welcomed()
    bench.create_object(LARGE)
    made = created_object(bench, session)
    if made.storage != "remote":
        raise NotApplicable("the client does not use storage remote for large objects")
    whole = session.content(made.id)
    wanted = [(0, CHUNK_BYTES), (CHUNK_BYTES - 1, 2), (made.size - 5, 100), (3, 1), (made.size, 1)]
    for offset, length in wanted:
        session.send("ObjectRequest", id=made.id, offset=offset, length=length)
    for offset, length in wanted:
        piece = session.expect_chunk(made.id, offset, length).payload
        check(piece == whole[offset : offset + length], f"the bytes from offset {offset}", f"{piece[:20]!r}")


@case(covers=["SCL-OBJ-001", "SCL-CLT-006"])
def cleared_objects_are_not_used_again(bench: RoleBench) -> None:
    """When the user clears the client, its objects are deleted; later objects have new ids, which later tasks use."""
    bench.need("object", "clear")
    session = bench.welcomed()
    task = bench.call(bench.create_object(SMALL))
    sent = session.expect_call(1)
    old = created_object(bench, session)
    end(bench, session, sent, task)
    bench.clear()
    session.wait_until(lambda: old.id in session.deleted, "the deletion of the object", "SCL-CLT-006")
    task = bench.call(bench.create_object(SMALL))
    sent = session.expect_call(2)
    check(
        sent.dependencies == [created_object(bench, session).id], "the new object as the only dependency", sent.message
    )
    end(bench, session, sent, task)


@case(covers=["SCL-SES-021", "SCL-CLT-006"])
def objects_are_created_again_in_a_new_session(bench: RoleBench) -> None:
    """In a new session, a task depends on no object of the previous one: its objects are created again, or it fails."""
    bench.need("object")
    session = bench.welcomed(session=41)
    value = bench.create_object(SMALL)
    task = bench.call(value)
    session.expect_call(1)
    bench.restart_scheduler()
    renewed = bench.rejoined(session=42)
    assert renewed is not None
    later = bench.call(value)
    for each in (task, later):
        bench.any_session.wait_until(
            partial(sent_or_ended, bench, renewed, each), f"task {each} to be sent again, or its outcome"
        )
    renewed.fence()
    bench.ping()
    named = {object_id for sent in renewed.tasks for object_id in sent.dependencies}
    check(all(each >> 40 == 42 for each in named), "dependencies of session 42 only", [f"{each:x}" for each in named])


@case(covers=["SCL-CLT-010"])
def map_is_batched(bench: RoleBench) -> None:
    """Tasks of the client's call for many tasks are not sent one by one, and each has its own result."""
    bench.need("map")
    session = bench.welcomed()
    tasks = bench.map(200)
    sent = session.expect_tasks(tasks)
    messages = len({each.message.position for each in sent})
    check(messages <= 100, "200 tasks in at most 100 Task messages", messages)
    session.succeed(*sent)
    for task in tasks:
        bench.expect_result(task)


@case(covers=["SCL-CLT-005"])
def wait_ends_with_the_last_outcome(bench: RoleBench) -> None:
    """A wait for several tasks ends when all have their outcomes, in whatever order, and not before."""
    bench.need("await")
    session = bench.welcomed()
    first, second, third = tasks = bench.submit(3)
    sent = session.expect_tasks(tasks)
    bench.adapter.tell("await", tasks=tasks)
    bench.ping()
    session.succeed(sent[2])
    bench.expect_result(third)
    session.fail(sent[0], "no")
    bench.expect_error(first, "no")
    session.fence()
    bench.ping()
    check(not bench.has_event("awaited"), "no event `awaited` while a task has no outcome", "one")
    session.succeed(sent[1])
    bench.expect_result(second)
    bench.expect_event("awaited")
