"""Cancels of tasks that wait, run, have ended or are unknown."""

from __future__ import annotations

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check


@case(covers=["SCL-SCH-021"])
def waiting_task_is_cancelled_at_once(bench: RoleBench) -> None:
    """A task that is not at a worker is cancelled at once and never sent to one."""
    client = bench.client()
    client.submit(2)
    client.cancel(1)
    client.expect_confirmation(1, "cancelled")
    worker = bench.worker(slots=5)
    task = worker.expect_task()
    worker.succeed(task)
    client.expect_outcome(2, "success")
    bench.quiet(client, worker)
    worker.expect_nothing_more()
    client.expect_nothing_more()


@case(covers=["SCL-SCH-021"])
def cancel_is_passed_on_with_its_force(bench: RoleBench) -> None:
    """The cancel of a task at a worker is forwarded to that worker with its force, and the answer to the client."""
    client, worker = bench.client(), bench.worker(slots=2)
    client.submit_payloads([b"1", b"2"])
    for id_, force in ((1, False), (2, True)):
        task = worker.expect_task(b"%d" % id_)
        client.cancel(id_, force=force)
        worker.expect_cancel(task.id, force)
        bench.quiet(client)
        check(not client.confirmations, "no TaskCancelConfirm before the worker's", client.confirmations)
        worker.confirm(task.id, 0)
        client.expect_confirmation(id_, "cancelled")
    bench.quiet(worker, client)
    client.expect_nothing_more()


@case(covers=["SCL-SCH-019"])
def each_cancel_is_answered_once(bench: RoleBench) -> None:
    """Each id of a TaskCancel has one answer; two cancels of a task before the first answer share it."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    client.submit(3)
    client.cancel(1, 2, 3, 4, 99)
    client.cancel(1)
    for id_ in (2, 3, 4):
        client.expect_confirmation(id_, "cancelled")
    client.expect_confirmation(99, "notFound")
    worker.expect_cancel(task.id)
    bench.quiet(client, worker)
    worker.confirm(task.id, 1)
    client.expect_confirmation(1, "running")
    bench.quiet(worker, client)
    client.expect_nothing_more()
    client.cancel(1)
    worker.expect_cancel(task.id)
    worker.confirm(task.id, 1)
    client.expect_confirmation(1, "running")


@case(covers=["SCL-SCH-020"])
def running_is_answered_before_the_outcome(bench: RoleBench) -> None:
    """The answer running precedes the task's outcome."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    client.cancel(1)
    worker.expect_cancel(task.id)
    worker.confirm(task.id, 1)
    worker.succeed(task)
    outcome, answer = client.expect_outcome(1, "success"), client.expect_confirmation(1, "running")
    check(answer.position < outcome.position, "the answer running before the outcome", "the outcome first")
    client.expect_nothing_more()


@case(covers=["SCL-SCH-020"])
def not_found_is_answered_for_ended_and_unknown_tasks(bench: RoleBench) -> None:
    """The cancel of a task that is unknown or has its outcome is answered with notFound."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    worker.succeed(worker.expect_task())
    client.expect_outcome(1, "success")
    client.cancel(1)
    client.cancel(5, force=True)
    for id_ in (1, 5):
        client.expect_confirmation(id_, "notFound")
    client.expect_nothing_more()


@case(covers=["SCL-SCH-020"])
def outcome_that_crosses_a_cancel_comes_first(bench: RoleBench) -> None:
    """When the outcome crosses the cancel, the client gets the outcome first, and then notFound."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    client.cancel(1, force=True)
    worker.expect_cancel(task.id)
    worker.succeed(task)
    worker.confirm(task.id, 2)
    outcome, answer = client.expect_outcome(1, "success"), client.expect_confirmation(1, "notFound")
    check(outcome.position < answer.position, "the outcome before the answer notFound", "the answer first")
    bench.quiet(worker, client)
    client.expect_nothing_more()
    worker.expect_nothing_more()


@case(covers=["SCL-SCH-027"])
def not_found_for_a_held_instance_is_a_violation(bench: RoleBench) -> None:
    """A worker that answers notFound for an instance that it was sent and has not ended violates the protocol."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    client.cancel(1)
    worker.expect_cancel(task.id)
    worker.confirm(task.id, 2)
    worker.expect_refusal("protocolViolation", "notFound for an instance that the worker holds")
    client.expect_confirmation(1, "cancelled", "SCL-SCH-019")


@case(covers=["SCL-SCH-022"])
def tasks_end_with_their_client(bench: RoleBench) -> None:
    """When a client leaves, its tasks at workers are cancelled with force, and its queued tasks are never sent."""
    other, worker = bench.client(), bench.worker()
    for how in ("cut", "leave"):
        client = bench.client()
        client.submit(3)
        task = worker.expect_task()
        client.cut() if how == "cut" else client.leave()
        worker.expect_cancel(task.id, True)
        worker.confirm(task.id, 0)
        bench.quiet(worker, other)
        worker.expect_nothing_more(expected="no further task of a client that has left")
    other.submit(payload=b"other")
    worker.succeed(worker.expect_task(b"other"))
    other.expect_outcome(1, "success")


@case(covers=["SCL-SCH-054"])
def force_outlives_the_answer_to_an_earlier_cancel(bench: RoleBench) -> None:
    """A forced cancel that follows an unanswered one is forwarded, and stays open when the worker answers the first."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    other = bench.worker()
    client.cancel(1)
    worker.expect_cancel(task.id)
    client.cancel(1, force=True)
    worker.expect_cancel(task.id, True)
    worker.confirm(task.id, 1)
    client.expect_confirmation(1, "running")
    worker.cut()
    client.expect_confirmation(1, "cancelled")
    bench.quiet(client, other)
    other.expect_nothing_more()
    client.expect_nothing_more()


@case(covers=["SCL-SCH-021"], latitude="a forced cancel may be forwarded even if a cancel was forwarded before")
def cancelled_task_of_a_lost_worker_is_cancelled(bench: RoleBench) -> None:
    """A task whose worker is lost after it was sent the cancel ends as cancelled and does not run elsewhere."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    other = bench.worker()
    client.cancel(1)
    worker.expect_cancel(task.id)
    worker.cut()
    client.expect_confirmation(1, "cancelled")
    bench.quiet(client, other)
    other.expect_nothing_more()
    client.expect_nothing_more()
