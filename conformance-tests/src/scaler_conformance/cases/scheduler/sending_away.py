"""Single workers that are to leave: clients ask for it by WorkerShutdown, or workers themselves."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import Message
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient

FEATURE = "drainRequests"


def ask(client: PlayedClient, request: int, **fields: Any) -> Message:
    """Ask that a worker leaves, and return the answer."""
    client.send("WorkerShutdown", requestId=request, **fields)
    return client.expect("WorkerShutdownResponse", requestId=request)


@case(covers=["SCL-SCH-036"])
def protected_scheduler_asks_no_worker_to_leave(bench: RoleBench) -> None:
    """A protected scheduler does not accept that a worker is to stop at once, and the worker is not asked to leave."""
    bench.variant("protected")
    client, worker = bench.client(), bench.worker()
    bench.need(client.welcome.protected, "protection")
    answer = ask(client, 1, session=worker.number)
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


@case(covers=["SCL-SCH-047", "SCL-SES-012"], features=["drain-requests"])
def worker_that_asks_is_drained(bench: RoleBench) -> None:
    """A worker that asks to be drained stays in session and gets no more tasks; one without the feature has left."""
    client, leaver = bench.client(), bench.worker(features=[FEATURE])
    check(FEATURE in leaver.welcome.features, f"the feature {FEATURE} in the Welcome", leaver.welcome.features)
    client.submit()
    running = leaver.expect_task()
    leaver.send("DisconnectRequest", reason="draining", drainCause="signal")
    leaver.expect("DisconnectRequest", reason="draining")
    client.submit()
    leaver.succeed(running)
    client.expect_outcome(1, "success")
    bench.quiet(client, leaver)
    leaver.expect_nothing_more(expected="no task for a worker that drains")
    leaver.send("DisconnectResponse")
    older = bench.worker()
    task = older.expect_task()
    older.send("DisconnectRequest", reason="draining")
    older.expect("DisconnectResponse", requirement="SCL-SES-012")
    other = bench.worker()
    again = other.expect_task()
    check(task.id != again.id, "another instance of the task", again)
    other.succeed(again)
    client.expect_outcome(2, "success")
