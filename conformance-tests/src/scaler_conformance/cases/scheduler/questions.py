"""Questions about tasks and the cluster, and the order to stop."""

from __future__ import annotations

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import Message
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient


@case(covers=["SCL-SCH-023"])
def questions_are_answered(bench: RoleBench) -> None:
    """Questions are answered under their requestId: of a task that waits, that runs, and that is unknown."""
    client, worker = bench.client(), bench.worker()
    client.submit(2)
    worker.expect_task()
    for request, task in ((7, 1), (8, 2), ((1 << 64) - 1, 99)):
        client.send("ExplanationRequest", requestId=request, taskId=task)
        answer = client.expect("Explanation", requestId=request)
        check(answer.text, "a text for people", answer)


def info(client: PlayedClient, request: int, maximum_workers: int = 10) -> Message:
    """What the scheduler tells a client of the cluster."""
    client.send("InfoRequest", requestId=request, maximumWorkers=maximum_workers)
    return client.expect("Info", requestId=request)


def check_count(name: str, now: Message, before: Message, more: int) -> None:
    expected = getattr(before, name) + more
    check(getattr(now, name) == expected, f"{name} of {expected}", now)


@case(covers=["SCL-SCH-034"])
def the_cluster_is_told(bench: RoleBench) -> None:
    """An InfoRequest is answered under its requestId, and counts what there is: before, while and after tasks run."""
    client = bench.client()
    before = info(client, 1)
    other, worker = bench.client(), bench.worker(slots=2, name="counted")
    joined = info(client, 2)
    for name, more in (("clients", 1), ("workerCount", 1), ("slots", 2), ("slotsFree", 2)):
        check_count(name, joined, before, more)
    check([each.slots for each in joined.workers if each.name == "counted"] == [2], "the worker's slots", joined)
    client.submit()
    task = worker.expect_task()
    busy = info(other, (1 << 64) - 1)
    for name, more in (("tasksRunning", 1), ("slotsFree", -1), ("slots", 0)):
        check_count(name, busy, joined, more)
    check([each.tasks for each in busy.workers if each.name == "counted"] == [1], "the worker's task", busy)
    worker.succeed(task)
    client.expect_outcome(1, "success")
    check_count("tasksRunning", info(other, 3), joined, 0)


@case(covers=["SCL-SCH-035"])
def no_more_workers_are_listed_than_wanted(bench: RoleBench) -> None:
    """Of two workers, none and one are listed when that is what the client wants; both are counted."""
    client = bench.client()
    bench.worker()
    bench.worker()
    for wanted in (0, 1):
        answer = info(client, 7, maximum_workers=wanted)
        check(len(answer.workers) <= wanted, f"{wanted} workers at most", len(answer.workers))
        check(answer.workerCount >= 2, "all workers counted", answer.workerCount)


@case(covers=["SCL-SCH-024"])
def protected_scheduler_goes_on(bench: RoleBench) -> None:
    """A protected scheduler answers ClientShutdown with accepted = false, and goes on."""
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
    """A scheduler that is not protected answers with accepted = true, sends everybody away, and ends."""
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
