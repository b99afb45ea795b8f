"""WorkerShutdown: clients that ask for single workers to leave."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import Message
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient


def ask(client: PlayedClient, request: int, **fields: Any) -> Message:
    """Ask that a worker leaves, and return the answer."""
    client.send("WorkerShutdown", requestId=request, **fields)
    return client.expect("WorkerShutdownResponse", requestId=request)


@case(covers=["SCL-SCH-036"])
def protected_scheduler_asks_no_worker_to_leave(bench: RoleBench) -> None:
    """A protected scheduler answers WorkerShutdown with accepted = false, and the worker is not asked to leave."""
    bench.variant("protected")
    client, worker = bench.client(), bench.worker()
    bench.need(client.welcome.protected, "protection")
    for request, draining in ((1, True), (2, False)):
        answer = ask(client, request, session=worker.number, isDraining=draining)
        check(not answer.accepted and answer.message, "accepted = false and a message that says why", answer)
    client.submit()
    worker.succeed(worker.expect_task())
    client.expect_outcome(1, "success")
    worker.expect_nothing_more()


@case(covers=["SCL-SCH-037"])
def unknown_worker_is_not_accepted(bench: RoleBench) -> None:
    """Unknown sessions and names, clients' sessions, and ambiguous names are answered with accepted = false."""
    bench.variant("unprotected")
    client = bench.client()
    bench.need(not client.welcome.protected, "no protection")
    twins = [bench.worker(name="twin"), bench.worker(name="twin")]
    wrong: Tuple[Dict[str, Any], ...] = (
        {"session": 4_000_000_000},
        {"session": client.number},
        {"name": "unknown"},
        {"name": "twin"},
        {},
    )
    for request, fields in enumerate(wrong, 1):
        answer = ask(client, request, **fields)
        check(not answer.accepted, f"accepted = false for {fields}", answer)
    for twin in twins:
        twin.expect_nothing_more()


@case(covers=["SCL-SCH-038"])
def worker_is_asked_to_drain(bench: RoleBench) -> None:
    """A worker that is to drain, named by session or name, is asked to and sent no more tasks; other workers are."""
    bench.variant("unprotected")
    client = bench.client()
    bench.need(not client.welcome.protected, "no protection")
    leaver, other = bench.worker(name="leaver"), bench.worker(name="other")
    client.submit(2)
    running, last = leaver.expect_task(), other.expect_task()
    check(ask(client, 1, name="leaver", isDraining=True).accepted, "accepted = true", "false")
    leaver.expect("DisconnectRequest", reason="draining")
    client.submit(2)
    leaver.succeed(running)
    bench.quiet(client, leaver, other)
    leaver.expect_nothing_more(expected="no task for a draining worker")
    leaver.send("DisconnectResponse")
    other.succeed(last)
    for _ in range(2):
        other.succeed(other.expect_task())
    for task in (1, 2, 3, 4):
        client.expect_outcome(task, "success")


@case(covers=["SCL-SCH-038"])
def worker_is_asked_to_stop(bench: RoleBench) -> None:
    """A worker that is to stop gets a DisconnectRequest with reason shutdown, and its task runs elsewhere."""
    bench.variant("unprotected")
    client = bench.client()
    bench.need(not client.welcome.protected, "no protection")
    leaver = bench.worker()
    client.submit()
    leaver.expect_task()
    check(ask(client, 1, session=leaver.number).accepted, "accepted = true", "false")
    leaver.beats = False
    leaver.expect("DisconnectRequest", reason="shutdown")
    leaver.send("DisconnectRequest", reason="leaving")
    leaver.expect("DisconnectResponse")
    other = bench.worker()
    other.succeed(other.expect_task())
    client.expect_outcome(1, "success")
