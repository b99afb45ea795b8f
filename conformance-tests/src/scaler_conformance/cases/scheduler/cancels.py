"""Cancels: of tasks that wait, that run, that have ended, and that are unknown."""

from __future__ import annotations

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check


@case(covers=["SCL-SCH-021"])
def waiting_task_is_cancelled_at_once(bench: RoleBench) -> None:
    """A task that is at no worker is cancelled without anybody's help, and never sent."""
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
    """The cancel of a task at a worker goes to that worker, with its force, and the worker's answer to the client."""
    client, worker = bench.client(), bench.worker(slots=2)
    client.submit_payloads([b"1", b"2"])
    for id_, force in ((1, False), (2, True)):
        task = worker.expect_task(b"%d" % id_)
        client.cancel(id_, force=force)
        worker.expect_cancel(task.id, force)
        bench.quiet(client)
        check(not client.confirmations, "no answer before the worker's", client.confirmations)
        worker.confirm(task.id, 0)
        client.expect_confirmation(id_, "cancelled")
    bench.quiet(worker, client)
    client.expect_nothing_more()


@case(covers=["SCL-SCH-019"])
def each_cancel_is_answered_once(bench: RoleBench) -> None:
    """Each id of a TaskCancel has one answer; two cancels of a task before the first answer are answered together."""
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
    """The answer running comes before the task's outcome."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    client.cancel(1)
    worker.expect_cancel(task.id)
    worker.confirm(task.id, 1)
    worker.succeed(task)
    outcome, answer = client.expect_outcome(1, "success"), client.expect_confirmation(1, "running")
    check(answer.position < outcome.position, "the answer before the outcome", "it came after it")
    client.expect_nothing_more()


@case(covers=["SCL-SCH-020"])
def not_found_is_answered_for_what_has_ended(bench: RoleBench) -> None:
    """A task that is not known, or has its outcome, is notFound."""
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
    """When the outcome crosses the cancel on its way, it is told, and then notFound."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    client.cancel(1, force=True)
    worker.expect_cancel(task.id)
    worker.succeed(task)
    worker.confirm(task.id, 2)
    outcome, answer = client.expect_outcome(1, "success"), client.expect_confirmation(1, "notFound")
    check(outcome.position < answer.position, "the outcome before the answer", "it came after it")
    bench.quiet(worker, client)
    client.expect_nothing_more()
    worker.expect_nothing_more()


@case(covers=["SCL-SCH-027"])
def not_found_of_a_held_instance_is_a_violation(bench: RoleBench) -> None:
    """A worker that says notFound of an instance that it was given and has not ended broke the protocol."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    client.cancel(1)
    worker.expect_cancel(task.id)
    worker.confirm(task.id, 2)
    worker.expect_refusal("protocolViolation", "notFound of an instance that the worker holds")
    client.expect_confirmation(1, "cancelled", "SCL-SCH-019")


@case(covers=["SCL-SCH-022"])
def tasks_end_with_their_client(bench: RoleBench) -> None:
    """When a client goes, its tasks at workers are cancelled with force, and those that wait are never sent."""
    other, worker = bench.client(), bench.worker()
    for how in ("cut", "leave"):
        client = bench.client()
        client.submit(3)
        task = worker.expect_task()
        client.cut() if how == "cut" else client.leave()
        worker.expect_cancel(task.id, True)
        worker.confirm(task.id, 0)
        bench.quiet(worker, other)
        worker.expect_nothing_more(expected="no further task of the client that has gone")
    other.submit(payload=b"other")
    worker.succeed(worker.expect_task(b"other"))
    other.expect_outcome(1, "success")


@case(covers=["SCL-SCH-021"], latitude="force may be passed on although a cancel was")
def cancelled_task_of_a_lost_worker_is_cancelled(bench: RoleBench) -> None:
    """A task whose cancel is at its worker when that is lost ends as cancelled, and runs nowhere else."""
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
