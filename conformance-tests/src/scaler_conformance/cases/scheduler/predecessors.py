"""Tasks that need other tasks: they wait, get results, and share failures and cancels."""

from __future__ import annotations

from typing import Any, List, Sequence

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.cases.scheduler.graphs import with_results
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient

FEATURE = "predecessors"


def client_of(bench: RoleBench) -> PlayedClient:
    """A client of a scheduler whose Welcome lists the feature."""
    client: PlayedClient = bench.client(features=[FEATURE])
    check(FEATURE in client.welcome.features, f"the feature {FEATURE} in the Welcome", client.welcome.features)
    return client


def submit_after(client: PlayedClient, payload: bytes, needed: Sequence[int], **fields: Any) -> int:
    """Submit a task that needs other tasks, and return its id once it is there, before a worker says anything."""
    (id_,) = client.submit_payloads([payload], predecessorCounts=[len(needed)], predecessors=list(needed), **fields)
    client.fence()
    return id_


@case(covers=["SCL-SCH-039"], features=[FEATURE])
def tasks_wait_for_all_predecessors(bench: RoleBench) -> None:
    """A task is sent to a worker once all its predecessors have succeeded, with their results in the order it names."""
    client, worker = client_of(bench), bench.worker(slots=9)
    first, second = client.submit_payloads([b"0", b"1"])
    last = submit_after(client, b"2", [second, first])
    task = worker.expect_task(b"0")
    other = worker.expect_task(b"1")
    worker.succeed(task, payload=b"a")
    client.expect_outcome(first, "success")
    bench.quiet(client, worker)
    worker.expect_nothing_more(expected="no task before its predecessors have succeeded")
    worker.succeed(other, payload=b"")
    client.expect_outcome(second, "success")
    worker.succeed(worker.expect_task(with_results([b"", b"a"], b"2")), payload=b"c")
    outcome = client.expect_outcome(last, "success")
    check(outcome.payload == b"c", "the task's own result b'c'", outcome.payload)


@case(covers=["SCL-SCH-039"], features=[FEATURE])
def large_results_of_predecessors_are_dependencies(bench: RoleBench) -> None:
    """A predecessor's result that is an object is marked in the payload, becomes the last dependency, and is kept."""
    client, worker = client_of(bench), bench.worker(slots=9)
    value = client.create(b"value")
    first = client.submit_payloads([b"0"])[0]
    submit_after(client, b"1", [first], dependencyCounts=[1], dependencies=[value])
    content = b"L" * 70_000
    worker.succeed_large(worker.expect_task(b"0"), content)
    result = client.expect_outcome(first, "success").object
    client.send("ObjectInstruction", action="delete", ids=[result])
    task = worker.expect_task(with_results([None], b"1"))
    check(task.dependencies == [value, result], "the task's own dependency, then the result", task.dependencies)
    check(worker.fetch(result) == content, "the result's content", "other bytes")


@case(covers=["SCL-SCH-040"], features=[FEATURE])
def failures_propagate_to_dependent_tasks(bench: RoleBench) -> None:
    """A task that needs a failed or lost task, directly or indirectly, ends the same way and names it in causes."""
    client, worker = client_of(bench), bench.worker(slots=9)
    for status, name, kind in ((1, "failed", "taskRaised"), (3, "lost", "processorDied")):
        failing = client.submit_payloads([b"0"])[0]
        other = client.submit_payloads([b"1"])[0]
        direct = submit_after(client, b"2", [other, failing])
        indirect = submit_after(client, b"3", [direct])
        worker.fail(worker.expect_task(b"0"), status, kind, "the cause")
        for id_, cause in ((failing, 0), (direct, failing + 1), (indirect, failing + 1)):
            outcome = client.expect_outcome(id_, name)
            check(outcome.failure.message == "the cause", "the Failure of the failed task", outcome.failure)
            check(outcome.cause == cause, f"the cause {cause}", outcome.cause)
        worker.succeed(worker.expect_task(b"1"))
        client.expect_outcome(other, "success")
    client.expect_nothing_more()
    worker.expect_nothing_more()


@case(covers=["SCL-SCH-040"], features=[FEATURE])
def cancels_propagate_to_dependent_tasks(bench: RoleBench) -> None:
    """Tasks that need a cancelled task end as cancelled, once; cancelling a task does not cancel its predecessors."""
    client, worker = client_of(bench), bench.worker(slots=9)
    first, other = client.submit_payloads([b"0", b"1"])
    ids: List[int] = [first]
    for _ in range(2):
        ids.append(submit_after(client, b"2", ids[-1:]))
    alone = submit_after(client, b"3", [other])
    client.cancel(alone)
    client.expect_confirmation(alone, "cancelled")
    task = worker.expect_task(b"0")
    client.cancel(first)
    worker.expect_cancel(task.id)
    worker.confirm(task.id, 0)
    for id_ in ids:
        client.expect_confirmation(id_, "cancelled")
    worker.succeed(worker.expect_task(b"1"))
    client.expect_outcome(other, "success")
    client.expect_nothing_more()


@case(covers=["SCL-SCH-041"], features=[FEATURE])
def tasks_with_unknown_predecessors_are_lost(bench: RoleBench) -> None:
    """A task that needs one whose outcome was already reported, or that is unknown, is lost with predecessorGone."""
    client, worker = client_of(bench), bench.worker(slots=9)
    first, other = client.submit_payloads([b"0", b"1"])
    worker.succeed(worker.expect_task(b"0"))
    client.expect_outcome(first, "success")
    waiting = worker.expect_task(b"1")
    client.next_id += 10
    for needed in ([first], [other, first], [client.next_id - 5]):
        client.expect_loss(submit_after(client, b"2", needed), "predecessorGone")
    worker.succeed(waiting)
    client.expect_outcome(other, "success")
    client.expect_nothing_more()
    worker.expect_nothing_more(expected="no task whose predecessor is unknown")


@case(covers=["SCL-SCH-002"], features=[FEATURE])
def inconsistent_predecessors_are_malformed(bench: RoleBench) -> None:
    """Inconsistent columns of predecessors, and tasks that need themselves, later tasks or one twice, are refused."""
    worker, client = bench.worker(slots=9), client_of(bench)
    for counts, offsets in (
        ([1], []),
        ([], [-1]),
        ([2], [-1]),
        ([1, 0], [-1]),
        ([1], [0]),
        ([1], [1]),
        ([2], [-1, -1]),
    ):
        (first,) = client.submit_payloads([b"0"])
        task = worker.expect_task(b"0")
        id_ = client.next_id
        needed = [first if each < 0 else id_ + each for each in offsets]
        client.submit_payloads([b"1"], predecessorCounts=counts, predecessors=needed)
        client.expect_refusal("malformed", f"predecessorCounts {counts} with predecessors {needed} of task {id_}")
        worker.expect_cancel(task.id)
        worker.confirm(task.id, 0)
        bench.quiet(worker)
        worker.expect_nothing_more(expected="no task of a malformed batch")
        client.greet(features=[FEATURE])
