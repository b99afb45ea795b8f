"""How much a client may have in flight, and what happens when it keeps its results."""

from __future__ import annotations

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check

MOST_TASKS = 10_000


@case(covers=["SCL-SCH-026"])
def releases_are_reported_to_a_client_at_its_limit(bench: RoleBench) -> None:
    """A client that stays within its limit of tasks gets TaskEchos in time to submit five times as many."""
    bench.variant("small-limits")
    client = bench.client()
    limit = client.welcome.limits.tasksInFlight
    bench.need(0 < limit <= MOST_TASKS, "a small limit of tasks in flight")
    worker = bench.worker(slots=limit)
    sent = released = 0
    while sent < 5 * limit:
        if sent - released >= limit:
            echo = client.expect_release(tasks=released + 1)
            released = echo.tasksReleased
            check(released <= sent, f"tasksReleased of at most {sent}, the tasks that were sent", echo)
            check(echo.tasksInFlight == limit, f"the limit {limit} in the TaskEcho", echo)
            continue
        count = min(limit - (sent - released), 5 * limit - sent)
        sent += len(client.submit(count))
        worker.succeed(*worker.expect_tasks(count))
    client.wait_until(lambda: len(client.outcomes) == sent, f"{sent} outcomes")


@case(covers=["SCL-SCH-026"])
def released_bytes_are_reported(bench: RoleBench) -> None:
    """A client that has reached its limit of bytes in flight is told when bytes are released."""
    bench.variant("small-limits")
    client, worker = bench.client(), bench.worker()
    limit = client.welcome.limits.bytesInFlight
    bench.need(0 < limit <= 16 << 20, "a small limit of bytes in flight")
    released = 0
    for _ in range(3):
        client.submit_payloads([b"x" * limit])
        worker.succeed(worker.expect_task())
        echo = client.expect_release(size=released + limit)
        released = echo.bytesReleased
        check(echo.bytesInFlight == limit, f"the limit {limit} in the TaskEcho", echo)


@case(covers=["SCL-SCH-033"])
def unread_large_results_hold_back_new_work(bench: RoleBench) -> None:
    """While a client holds too many bytes of large results (Limits.bytesInFlight), only its own queued tasks wait."""
    bench.variant("small-limits")
    client, other = bench.client(), bench.client()
    limit = client.welcome.limits.bytesInFlight
    bench.need(0 < limit <= 16 << 20, "a small limit of bytes in flight")
    worker = bench.worker()
    client.submit(6, payload=b"large")
    taken = []
    for _ in range(2):
        worker.succeed_large(worker.expect_task(), b"x" * (limit // 2 + 1))
        outcome = client.expect_any_outcome("the outcome of a large result")
        taken.append(outcome.object)
    bench.quiet(client, worker)
    for task in worker.given[:1]:  # sent before the scheduler had read the result
        worker.succeed_large(worker.expect_task(), b"x" * 70_000)
        outcome = client.expect_any_outcome(f"the outcome of {task.id}")
        taken.append(outcome.object)
        bench.quiet(client, worker)
    worker.expect_nothing_more(
        expected="no further task while the client holds more than Limits.bytesInFlight of results"
    )
    other.submit(payload=b"other")
    worker.succeed(worker.expect_task(b"other"))
    client.delete(*taken)
    worker.expect_task(b"large")
