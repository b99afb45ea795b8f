"""Graphs: order, results for dependent nodes, failures and cancels that propagate, and what the client is told."""

from __future__ import annotations

import struct
from typing import Sequence

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check

DIAMOND = [[], [0], [0], [2, 1]]


def with_results(results: Sequence[object], payload: bytes) -> bytes:
    """A payload in the layout of messages.md; None stands for a result that is an object."""
    sizes = [0xFFFFFFFF if each is None else len(each) for each in results]  # type: ignore[arg-type]
    head = struct.pack(f"<II{len(sizes)}I", 4, len(sizes), *sizes)
    return head + b"".join(each for each in results if isinstance(each, bytes)) + payload


@case(covers=["SCL-SCH-028"])
def nodes_wait_for_all_their_predecessors(bench: RoleBench) -> None:
    """A node is sent to a worker once all its predecessors have succeeded, and not before."""
    client, worker = bench.client(), bench.worker(slots=9)
    ids = client.graph(DIAMOND, [3])
    first = worker.expect_task(b"0")
    bench.quiet(client, worker)
    worker.expect_nothing_more(expected="no node before its predecessors")
    worker.succeed(first, payload=b"a")
    worker.succeed(worker.expect_task(with_results([b"a"], b"1")), payload=b"b")
    bench.quiet(worker, client)
    check(len(worker.given) == 1, "the last node to wait for both its predecessors", worker.given)
    worker.succeed(worker.expect_task(with_results([b"a"], b"2")), payload=b"c")
    worker.succeed(worker.expect_task(with_results([b"c", b"b"], b"3")), payload=b"d")
    target = client.expect_outcome(ids[3], "success")
    check(target.payload == b"d", "the target's result b'd'", target.payload)


@case(covers=["SCL-SCH-029"])
def payload_begins_with_results(bench: RoleBench) -> None:
    """The payload of a node begins with its predecessors' results in their order, including empty and repeated ones."""
    client, worker = bench.client(), bench.worker(slots=9)
    client.graph([[], [], [1, 0, 1]], [2])
    worker.succeed(worker.expect_task(b"0"), payload=b"")
    worker.fence()
    worker.succeed(worker.expect_task(b"1"), payload=b"hello")
    task = worker.expect_task()
    wanted = with_results([b"hello", b"", b"hello"], b"2")
    check(task.payload == wanted, f"the payload {wanted!r}", task.payload)
    check(not task.dependencies, "no dependencies", task.dependencies)


@case(covers=["SCL-SCH-029"])
def large_results_of_predecessors_are_dependencies(bench: RoleBench) -> None:
    """A predecessor's result that is an object is marked in the payload and appended to the dependencies."""
    client, worker = bench.client(), bench.worker(slots=9)
    value = client.create(b"value")
    counts = [0, 0, 1]
    client.graph([[], [], [0, 1]], [2], dependencyCounts=counts, dependencies=[value])
    worker.succeed(worker.expect_task(b"1"), payload=b"small")
    worker.fence()
    content = b"L" * 70_000
    worker.succeed_large(worker.expect_task(b"0"), content)
    task = worker.expect_task()
    wanted = with_results([None, b"small"], b"2")
    check(task.payload == wanted, f"the payload {wanted!r}", task.payload)
    check(
        len(task.dependencies) == 2 and task.dependencies[0] == value,
        "two dependencies: the node's own, then the object",
        task,
    )
    check(worker.fetch(task.dependencies[1]) == content, "the result's content", "other bytes")


@case(covers=["SCL-SCH-030"])
def only_targets_are_reported(bench: RoleBench) -> None:
    """A client gets the outcomes of targets, including one that other nodes need, and of no other node."""
    client, worker = bench.client(), bench.worker(slots=9)
    ids = client.graph([[], [0], [1], []], [1, 2, 3])
    for _ in range(4):
        worker.succeed(worker.expect_task())
    for index in (1, 2, 3):
        client.expect_outcome(ids[index], "success")
    bench.quiet(worker, client)
    client.expect_nothing_more(expected="no outcome of a node that is not a target")


@case(covers=["SCL-SCH-030"])
def cancelled_node_is_answered(bench: RoleBench) -> None:
    """The cancel of a node that is not a target is answered, and the target that needs it ends as cancelled."""
    client = bench.client()
    ids = client.graph([[], [0]], [1])
    client.cancel(ids[0])
    client.expect_confirmation(ids[0], "cancelled")
    client.expect_confirmation(ids[1], "cancelled")
    client.expect_nothing_more()


@case(covers=["SCL-SCH-031"])
def failures_propagate_to_targets(bench: RoleBench) -> None:
    """A target that needs a failed or lost node ends with its status and Failure, and names it in causes."""
    client, worker = bench.client(), bench.worker(slots=9)
    for status, name, kind in ((1, "failed", "taskRaised"), (3, "lost", "processorDied")):
        ids = client.graph([[], [0], [1], []], [1, 2, 3])
        for _ in range(2):
            task = worker.expect_task()
            if task.payload == b"3":
                worker.succeed(task)
            else:
                worker.fail(task, status, kind, "the cause")
        for index in (1, 2):
            outcome = client.expect_outcome(ids[index], name)
            check(outcome.failure.kind == kind, f"a Failure of kind {kind}", outcome)
            check(outcome.failure.message == "the cause", "the Failure of the failed node", outcome.failure)
            check(outcome.cause == ids[0] + 1, f"the cause {ids[0] + 1}", outcome.cause)
        client.expect_outcome(ids[3], "success")
    bench.quiet(worker, client)
    client.expect_nothing_more()
    worker.expect_nothing_more()


@case(covers=["SCL-SCH-031"])
def failure_of_a_target_is_its_own(bench: RoleBench) -> None:
    """The cause of a target that itself failed is 0."""
    client, worker = bench.client(), bench.worker()
    ids = client.graph([[]], [0])
    worker.fail(worker.expect_task())
    cause = client.expect_outcome(ids[0], "failed").cause
    check(cause == 0, "the cause 0", cause)


@case(covers=["SCL-SCH-031"])
def cancels_propagate_to_targets(bench: RoleBench) -> None:
    """A target that needs a cancelled node is reported as cancelled in a TaskCancelConfirm, once."""
    client, worker = bench.client(), bench.worker()
    ids = client.graph([[], [0], [1], []], [1, 2, 3])
    tasks = {task.payload: task for task in [worker.expect_task()]}
    client.cancel(ids[0])
    if b"0" in tasks:
        worker.expect_cancel(tasks[b"0"].id)
        worker.confirm(tasks[b"0"].id, 0)
    for index in (0, 1, 2):
        client.expect_confirmation(ids[index], "cancelled")
    worker.succeed(tasks.get(b"3") or worker.expect_task(b"3"))
    client.expect_outcome(ids[3], "success")
    client.expect_nothing_more()


@case(covers=["SCL-SCH-032"])
def unneeded_nodes_are_not_run(bench: RoleBench) -> None:
    """A node that no target needs is not run, nor is one whose only target has already failed."""
    client, worker = bench.client(), bench.worker()
    ids = client.graph([[], [], [1], [0, 1]], [3])
    worker.fail(worker.expect_task())
    client.expect_outcome(ids[3], "failed")
    bench.quiet(client, worker)
    while worker.given:  # sent before the other node failed
        worker.succeed(worker.expect_task())
        bench.quiet(worker, client)
        check(False, "no node whose target has failed", "one")
    ids = client.graph([[], [], [1]], [0])
    worker.succeed(worker.expect_task(b"0"))
    client.expect_outcome(ids[0], "success")
    bench.quiet(client, worker)
    worker.expect_nothing_more(expected="no node that no target needs")


@case(covers=["SCL-SCH-002"])
def nothing_of_a_malformed_graph_is_kept(bench: RoleBench) -> None:
    """A graph with an invalid target, or with a predecessor that follows its node, is refused as a whole."""
    worker, client = bench.worker(slots=9), bench.client()
    for predecessors, targets in (([[], [1]], [1]), ([[], [0]], [2]), ([[1], []], [1]), ([[], [0]], [1, 1])):
        client.graph(predecessors, targets)
        client.expect_refusal("malformed", f"predecessors {predecessors} with targets {targets}")
        bench.quiet(worker)
        worker.expect_nothing_more(expected="no node of a malformed graph")
        client.greet()


@case(covers=["SCL-SCH-007"])
def node_with_a_missing_object_is_lost(bench: RoleBench) -> None:
    """A node that needs a missing object is lost, and so is the target that needs the node."""
    client, worker = bench.client(), bench.worker()
    nowhere = client.new_object()
    ids = client.graph([[], [0], []], [1, 2], dependencyCounts=[1, 0, 0], dependencies=[nowhere])
    outcome = client.expect_loss(ids[1], "objectMissing")
    check(outcome.cause == ids[0] + 1, f"the cause {ids[0] + 1}", outcome.cause)
    worker.succeed(worker.expect_task(b"2"))
    client.expect_outcome(ids[2], "success")
