"""Requests for information about tasks and the cluster, and the request to stop."""

from __future__ import annotations

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import Message
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient


@case(covers=["SCL-SCH-023"])
def explanations_are_answered(bench: RoleBench) -> None:
    """An ExplanationRequest is answered with its requestId, whether its task waits, runs or is unknown."""
    client, worker = bench.client(), bench.worker()
    client.submit(2)
    worker.expect_task()
    for request, task in ((7, 1), (8, 2), ((1 << 64) - 1, 99)):
        client.send("ExplanationRequest", requestId=request, taskId=task)
        answer = client.expect("Explanation", requestId=request)
        check(answer.text, "a text that is not empty", answer)


def info(client: PlayedClient, request: int, maximum_workers: int = 10) -> Message:
    """The scheduler's Info about the cluster."""
    client.send("InfoRequest", requestId=request, maximumWorkers=maximum_workers)
    return client.expect("Info", requestId=request)


def check_count(name: str, now: Message, before: Message, more: int) -> None:
    expected = getattr(before, name) + more
    check(getattr(now, name) == expected, f"{name} = {expected}", now)


@case(covers=["SCL-SCH-034"])
def info_describes_the_cluster(bench: RoleBench) -> None:
    """An InfoRequest is answered with its requestId and current counts: before, while and after tasks run."""
    client = bench.client()
    before = info(client, 1)
    other, worker = bench.client(), bench.worker(slots=2, name="counted")
    joined = info(client, 2)
    for name, more in (("clients", 1), ("workerCount", 1), ("slots", 2), ("slotsFree", 2)):
        check_count(name, joined, before, more)
    check([each.slots for each in joined.workers if each.name == "counted"] == [2], "slots = 2 for the worker", joined)
    client.submit()
    task = worker.expect_task()
    busy = info(other, (1 << 64) - 1)
    for name, more in (("tasksRunning", 1), ("slotsFree", -1), ("slots", 0)):
        check_count(name, busy, joined, more)
    check([each.tasks for each in busy.workers if each.name == "counted"] == [1], "one task at the worker", busy)
    worker.succeed(task)
    client.expect_outcome(1, "success")
    check_count("tasksRunning", info(other, 3), joined, 0)


@case(covers=["SCL-SCH-035"])
def at_most_the_requested_workers_are_listed(bench: RoleBench) -> None:
    """An Info lists at most maximumWorkers workers, and counts all of them."""
    client = bench.client()
    bench.worker()
    bench.worker()
    for wanted in (0, 1):
        answer = info(client, 7, maximum_workers=wanted)
        check(len(answer.workers) <= wanted, f"at most {wanted} workers", len(answer.workers))
        check(answer.workerCount >= 2, "workerCount of at least 2", answer.workerCount)


@case(covers=["SCL-SCH-024"])
def protected_scheduler_continues(bench: RoleBench) -> None:
    """A protected scheduler answers ClientShutdown with accepted = false and continues."""
    bench.variant("protected")
    client = bench.client()
    bench.need(client.welcome.protected, "protection")
    worker = bench.worker()
    client.send("ClientShutdown")
    check(not client.expect("ClientShutdownResponse").accepted, "accepted = false", "true")
    client.submit()
    worker.succeed(worker.expect_task())
    client.expect_outcome(1, "success")


@case(covers=["SCL-SCH-025"])
def shutdown_is_obeyed(bench: RoleBench) -> None:
    """A scheduler that is not protected answers with accepted = true, disconnects all peers, and exits."""
    bench.variant("unprotected")
    client = bench.client()
    bench.need(not client.welcome.protected, "no protection")
    other, worker = bench.client(), bench.worker()
    bench.is_meant_to_end = True
    client.send("ClientShutdown")
    check(client.expect("ClientShutdownResponse").accepted, "accepted = true", "false")
    for peer in (client, other, worker):
        peer.beats = False
        peer.expect("DisconnectRequest", reason="shutdown")
        peer.send("DisconnectResponse")
    bench.expect_end()
