"""Reports of workers, be they valid, late or wrong; and what happens to the tasks of workers that are lost."""

from __future__ import annotations

from functools import partial

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient, PlayedWorker

MOST_WORKERS = 50


def _either(worker: PlayedWorker, client: PlayedClient) -> bool:
    return bool(worker.given or client.outcomes)


@case(covers=["SCL-SCH-013"])
def late_reports_are_ignored(bench: RoleBench) -> None:
    """A second outcome of an instance, its log, or an answer to its cancel is ignored and is not a violation."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    worker.succeed(task, payload=b"first")
    result = client.expect_outcome(1).payload
    check(result == b"first", "the first result, b'first'", result)
    worker.succeed(task, payload=b"second")
    worker.fail(task)
    worker.confirm(task.id, 0)
    worker.send("TaskLog", id=task.id, stream=1, text="late")
    worker.expect_nothing_more(expected="no Refusal for a late report")
    client.expect_nothing_more()


@case(covers=["SCL-SCH-013"])
def outcome_of_a_cancelled_task_is_ignored(bench: RoleBench) -> None:
    """The outcome of an instance whose worker has confirmed its cancel is ignored."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    client.cancel(1)
    worker.expect_cancel(task.id)
    worker.confirm(task.id, 0)
    client.expect_confirmation(1, "cancelled")
    worker.succeed(task)
    worker.expect_nothing_more(expected="no Refusal for a late outcome")
    client.expect_nothing_more()


@case(covers=["SCL-SCH-014"])
def reports_of_unknown_instances_are_refused(bench: RoleBench) -> None:
    """The outcome of an instance that was never sent to a worker is refused with protocolViolation."""
    worker = bench.worker()
    worker.report([(1 << 63) + 12345], [0], [b"1"])
    worker.expect_refusal("protocolViolation", "the outcome of an unknown instance")


@case(covers=["SCL-SCH-014"])
def reports_of_other_workers_instances_are_refused(bench: RoleBench) -> None:
    """A report of an instance that another worker holds is refused, and that worker keeps the instance."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    for report in ("outcome", "confirmation"):
        thief = bench.worker()
        thief.succeed(task, payload=b"stolen") if report == "outcome" else thief.confirm(task.id, 0)
        thief.expect_refusal("protocolViolation", f"the {report} of another worker's instance")
    worker.succeed(task, payload=b"own")
    result = client.expect_outcome(1, "success").payload
    check(result == b"own", "the result of the task's worker, b'own'", result)


@case(covers=["SCL-SCH-015"])
def reports_reach_the_right_client(bench: RoleBench) -> None:
    """Outcomes, logs and answers to cancels reach the task's client, with its own task ids."""
    clients, worker = [bench.client(), bench.client()], bench.worker(slots=4)
    for index, client in enumerate(clients):
        client.next_id = 40
        client.submit_payloads([b"%d" % index, b"%d cancelled" % index])
    for index, client in enumerate(clients):
        task, cancelled = worker.expect_task(b"%d" % index), worker.expect_task(b"%d cancelled" % index)
        worker.send("TaskLog", id=task.id, stream=2, text=f"log {index}")
        log = client.expect("TaskLog")
        check((log.id, log.stream, log.text) == (40, 2, f"log {index}"), "the TaskLog of task 40", log)
        client.cancel(41)
        worker.expect_cancel(cancelled.id)
        worker.confirm(cancelled.id, 0)
        client.expect_confirmation(41, "cancelled")
        worker.succeed(task, payload=b"result %d" % index)
        result = client.expect_outcome(40).payload
        check(result == b"result %d" % index, f"the client's result, b'result {index}'", result)
    for client in clients:
        client.expect_nothing_more()


@case(covers=["SCL-SCH-006"])
def attempts_count_lost_workers(bench: RoleBench) -> None:
    """The attempt of a task is 1 at first, and one more after each worker that was lost with it."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    for attempt in (1, 2):
        task = worker.expect_task()
        check(task.message.attempt == attempt, f"attempt = {attempt}", task.message)
        worker.cut()
        worker = bench.worker()


@case(covers=["SCL-SCH-016"])
def tasks_of_lost_workers_run_elsewhere(bench: RoleBench) -> None:
    """All tasks of a worker that is lost, or that violates the protocol, are sent to another."""
    client = bench.client()
    for number in range(2):
        worker = bench.worker(slots=3, queueSize=2)
        ids = client.submit(6)
        worker.expect_tasks(3)
        if number:
            worker.send("Task")
            worker.expect_refusal("protocolViolation", "a Task from a worker")
        else:
            worker.cut()
        other = bench.worker(slots=6)
        for task in other.expect_tasks(6):
            other.succeed(task)
        for id_ in ids:
            client.expect_outcome(id_, "success")
        other.leave()


@case(covers=["SCL-SCH-016"])
def task_that_keeps_losing_its_workers_is_lost(bench: RoleBench) -> None:
    """A task whose workers are lost again and again eventually ends as lost with workerLost."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    for count in range(MOST_WORKERS):
        worker.wait_until(partial(_either, worker, client), "the Task, or its outcome")
        if client.outcomes:
            check(count > 1, "another attempt after the first worker was lost", client.outcomes)
            break
        worker.cut()
        worker = bench.worker()
    else:
        check(False, f"workerLost after at most {MOST_WORKERS} lost workers", "yet another attempt")
    client.expect_loss(1, "workerLost")


@case(covers=["SCL-SCH-017"])
def task_at_most_once_is_not_run_again(bench: RoleBench) -> None:
    """A task with the option atMostOnce ends as lost with workerLost when its worker is lost."""
    client, worker = bench.client(), bench.worker()
    client.submit(options={"atMostOnce": True})
    worker.expect_task()
    other = bench.worker()
    worker.cut()
    client.expect_loss(1, "workerLost")
    bench.quiet(client, other)
    other.expect_nothing_more()


@case(covers=["SCL-SCH-018"])
def leaving_does_not_use_up_attempts(bench: RoleBench) -> None:
    """The tasks of a worker that leaves with a DisconnectRequest are sent to others with the same attempt."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    for _ in range(6):
        task = worker.expect_task()
        check(task.message.attempt == 1, "attempt = 1 after workers that left", task.message)
        worker.leave()
        worker = bench.worker()
    worker.succeed(worker.expect_task())
    client.expect_outcome(1, "success")


@case(covers=["SCL-SCH-013"])
def reports_of_an_earlier_session_are_ignored(bench: RoleBench) -> None:
    """A worker that reports a task of its earlier session, on the same connection, does not end that task again."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    other = bench.worker()
    worker.greet(slots=1, queueSize=1)
    again = other.expect_task()
    worker.succeed(task, payload=b"old")
    worker.expect_nothing_more(expected="no Refusal for an outcome of an earlier session")
    other.succeed(again, payload=b"new")
    result = client.expect_outcome(1, "success").payload
    check(result == b"new", "the result of the task's worker, b'new'", result)
    bench.quiet(client)
    client.expect_nothing_more()


@case(covers=["SCL-SCH-001"], latitude="a scheduler need not send BalanceRequests")
def tasks_given_back_run_elsewhere(bench: RoleBench) -> None:
    """Tasks that a worker gives back on request run at another worker, and no outcome is missing."""
    client, busy = bench.client(), bench.worker(queueSize=10)
    busy.gives_nothing_back = False
    ids = client.submit(10)
    held = [busy.expect_task()]
    bench.quiet(client, busy)
    held += busy.expect_tasks(len(busy.given))
    idle = bench.worker(queueSize=10)
    bench.quiet(idle, busy)
    request = next(iter(busy.waiting("BalanceRequest")), None)
    given = [] if request is None else [each.id for each in held[1:]][-request.count :]
    if request is not None:
        busy.send("BalanceResponse", requestId=request.requestId, ids=given)
    busy.succeed(*[each for each in held if each.id not in given])
    for _ in range(len(ids) - len(held) + len(given)):
        peer = idle.wait_until(lambda: next((each for each in (idle, busy) if each.given), None), "the next task")
        peer.succeed(peer.expect_task())
    for id_ in ids:
        client.expect_outcome(id_, "success")
    client.expect_nothing_more()
