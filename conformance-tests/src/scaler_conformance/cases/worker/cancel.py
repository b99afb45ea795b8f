"""Cancels of tasks that wait, run, have ended or are unknown, with and without force."""

from __future__ import annotations

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.worker_session import CLIENT_SESSION, WorkerSession


@case(covers=["SCL-WRK-020"])
def held_task_is_cancelled(bench: RoleBench) -> None:
    """A task that has not started is cancelled at once, even if all slots are busy."""
    worker = bench.welcomed()
    worker.occupy([bench.hold() for _ in range(worker.hello.slots)])
    task = worker.submit("echo", 1)
    worker.send("TaskCancel", ids=[task])
    worker.expect_confirmation(task, "cancelled")
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-020"])
def held_task_is_cancelled_by_force(bench: RoleBench) -> None:
    """Force makes no difference for a task that has not started: it is cancelled, and running tasks continue."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    running = worker.occupy(holds)
    task = worker.submit("echo", 1)
    worker.send("TaskCancel", ids=[task], force=True)
    worker.expect_confirmation(task, "cancelled")
    for hold, each in zip(holds, running):
        hold.release()
        worker.expect_value(each, "go")
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-020"])
def task_that_waits_for_an_object_is_cancelled(bench: RoleBench) -> None:
    """A task whose object is still being fetched has not started, so it is cancelled."""
    worker = bench.welcomed()
    wanted = worker.announce(b"[1]", is_served=False)
    task = worker.submit_payloads("echo", [b""], dependencyCounts=[1], dependencies=[wanted])[0]
    worker.expect("ObjectRequest", id=wanted)
    worker.send("TaskCancel", ids=[task])
    worker.expect_confirmation(task, "cancelled")
    worker.expect_nothing_more(but=["ObjectRequest"])


@case(covers=["SCL-WRK-021"])
def cancelled_task_does_not_start(bench: RoleBench) -> None:
    """After the answer cancelled, a task neither starts nor has a result, even when slots become free."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    running = worker.occupy(holds)
    victims = [bench.hold() for _ in range(3)]
    tasks = worker.submit_many("wait", [hold.arguments for hold in victims])
    worker.send("TaskCancel", ids=tasks)
    for task in tasks:
        worker.expect_confirmation(task, "cancelled")
    for hold, each in zip(holds, running):
        hold.release()
        worker.expect_value(each, "go")
    again = [bench.hold() for _ in range(worker.hello.slots)]
    for hold, each in zip(again, worker.occupy(again)):
        hold.release()
        worker.expect_value(each, "go")
    started = [hold.tag for hold in victims if hold.starts]
    check(not started, "no start of a cancelled task", f"starts of {', '.join(started)}")
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-022"])
def running_task_continues(bench: RoleBench) -> None:
    """A running task that is cancelled without force continues: the answer is running, and its result follows."""
    worker = bench.welcomed()
    hold = bench.hold()
    (task,) = worker.occupy([hold])
    worker.send("TaskCancel", ids=[task])
    answer = worker.expect_confirmation(task, "running")
    hold.release()
    outcome = worker.expect_value(task, "go")
    check(answer.position < outcome.position, "the answer running before the outcome", "the outcome first")
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-024"])
def finished_task_is_not_found(bench: RoleBench) -> None:
    """The cancel of a task whose result has been sent is answered with notFound."""
    worker = bench.welcomed()
    task = worker.submit("echo", 1)
    worker.expect_value(task, 1)
    worker.send("TaskCancel", ids=[task], force=True)
    worker.expect_confirmation(task, "notFound")
    worker.expect_nothing_more()


@case(
    covers=["SCL-WRK-024", "SCL-WRK-002"],
    latitude="running before the result, notFound after it, or cancelled and no result",
)
def result_crosses_cancel(bench: RoleBench) -> None:
    """A task that ends while its cancel is in transit ends once, and the answer matches the order of the messages."""
    worker = bench.welcomed()
    for round_ in range(bench.times(20)):
        hold = bench.hold()
        (task,) = worker.occupy([hold])
        if round_ % 2:
            hold.release()
            worker.send("TaskCancel", ids=[task])
        else:
            worker.send("TaskCancel", ids=[task])
            hold.release()
        answer = worker.expect_confirmation(task)
        if answer.outcome == "cancelled":
            continue
        outcome = worker.expect_outcome(task, "SCL-WRK-002")
        after = answer.position > outcome.position
        expected = "notFound after the result, or running before it"
        check(
            after == (answer.outcome == "notFound"),
            expected,
            f"{answer.outcome} {'after' if after else 'before'} the result",
        )
    worker.expect_nothing_more(requirement="SCL-WRK-002")


@case(covers=["SCL-WRK-019"])
def each_id_is_answered(bench: RoleBench) -> None:
    """Each id of each cancel gets one answer, whether its task runs, waits, has ended or never existed."""
    worker = bench.welcomed()
    finished = worker.submit("echo", 1)
    worker.expect_value(finished, 1)
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    running = worker.occupy(holds)
    queued = worker.submit_many("echo", [[2], [3], [4]])
    (unknown,) = worker.new_instances()
    ids = [queued[2], finished, *running, unknown, queued[0]]
    worker.send("TaskCancel", ids=ids)
    for each in ids:
        worker.expect_confirmation(each)
    worker.send("TaskCancel", ids=[queued[2], queued[1]])
    worker.expect_confirmation(queued[2])
    worker.expect_confirmation(queued[1], "cancelled")
    for hold, each in zip(holds, running):
        hold.release()
        worker.expect_value(each, "go")
    worker.expect_nothing_more(expected="one answer for each id")


@case(covers=["SCL-WRK-023", "SCL-WRK-021"], features=["force-cancel"])
def force_stops_a_running_task(bench: RoleBench) -> None:
    """A running task that is cancelled with force is stopped, answered with cancelled, and has no result."""
    worker = bench.welcomed()
    hold = bench.hold()
    (task,) = worker.occupy([hold])
    worker.send("TaskCancel", ids=[task], force=True)
    worker.expect_confirmation(task, "cancelled")
    hold.expect_stopped()
    worker.expect_value(worker.submit("echo", "next"), "next")
    worker.expect_nothing_more(but=["TaskLog"], requirement="SCL-WRK-021")


@case(covers=["SCL-WRK-023", "SCL-WRK-002"], features=["force-cancel"])
def force_stops_only_the_cancelled_task(bench: RoleBench) -> None:
    """A forced cancel stops only its own task: other running and queued tasks end as usual."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    running = worker.occupy(holds)
    queued = worker.submit_many("echo", [[index] for index in range(5)])
    worker.send("TaskCancel", ids=[running[0]], force=True)
    worker.expect_confirmation(running[0], "cancelled")
    for hold, each in zip(holds[1:], running[1:]):
        hold.release()
        worker.expect_value(each, "go", "SCL-WRK-002")
    for index, each in enumerate(queued):
        worker.expect_value(each, index, "SCL-WRK-002")
    worker.expect_nothing_more(but=["TaskLog"])


ATTEMPTS_TO_HANG = 20


def hung_task(worker: WorkerSession) -> int:
    """A task that hangs: one that could be cancelled had not been started, so the next one is asked for.

    With a worker that starts none of them so soon, the last one may still wait.
    """
    for _ in range(ATTEMPTS_TO_HANG):
        task = worker.submit("hang", client=CLIENT_SESSION)
        worker.fence()
        worker.send("TaskCancel", ids=[task])
        if worker.expect_confirmation(task).outcome != "cancelled":
            return task
    return worker.submit("hang", client=CLIENT_SESSION)


@case(covers=["SCL-WRK-019"])
def forced_cancel_of_a_hung_task_is_answered(bench: RoleBench) -> None:
    """A forced cancel of a hung task is answered with cancelled or running, and the worker stays responsive."""
    worker = bench.welcomed()
    task = hung_task(worker)
    worker.send("TaskCancel", ids=[task], force=True)
    worker.expect_confirmation(task)
    worker.fence()
