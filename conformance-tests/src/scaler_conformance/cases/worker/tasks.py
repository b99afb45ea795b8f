"""Running tasks: one and many, how many at once, and in which order."""

from __future__ import annotations

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check

MOST_TASKS = 5000


@case(covers=["SCL-WRK-002"], smoke=True)
def one_task_is_run(bench: RoleBench) -> None:
    """A task has one outcome, its result."""
    worker = bench.welcomed()
    task = worker.submit("echo", {"a": [1, None]})
    worker.expect_value(task, {"a": [1, None]})
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-002"])
def each_of_a_batch_has_one_outcome(bench: RoleBench) -> None:
    """Each task of a batch has its own result, once, however the results are batched."""
    worker = bench.welcomed()
    count = min(100, worker.capacity)
    tasks = worker.submit_many("sum", [[index, 1] for index in range(count)])
    for index, task in enumerate(tasks):
        worker.expect_value(task, index + 1)
    worker.expect_value(worker.submit("sum"), 0)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-002"])
def payloads_are_split_by_their_sizes(bench: RoleBench) -> None:
    """The payload frame is split into the tasks' payloads by payloadSizes, including payloads of zero bytes."""
    worker = bench.welcomed()
    tasks = worker.submit_payloads("sum", [b"[1, 2]", b"", b"[40,2]", b"", b"[]"])
    for task, value in zip(tasks, [3, 0, 42, 0, 0]):
        worker.expect_value(task, value)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-002"])
def many_batches_of_several_functions(bench: RoleBench) -> None:
    """Batches of several functions that are in flight at once are not mixed up."""
    worker = bench.welcomed()
    batches = []
    for number in range(min(20, worker.capacity // 4)):
        batches.append((worker.submit_many("echo", [[number], [str(number)]]), [number, str(number)]))
        batches.append((worker.submit_many("size", [[number], [0]]), ["x" * number, ""]))
    for tasks, values in batches:
        for task, value in zip(tasks, values):
            worker.expect_value(task, value)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-001"])
def takes_as_many_as_it_offers(bench: RoleBench) -> None:
    """A worker takes slots × queueSize tasks at a time, and runs them all."""
    worker = bench.welcomed()
    slots = worker.hello.slots
    holds = [bench.hold() for _ in range(slots)]
    running = worker.occupy(holds)
    count = min(worker.capacity, MOST_TASKS) - slots
    tasks = worker.submit_many("sum", [[index] for index in range(count)])
    worker.fence()
    for hold in holds:
        hold.release()
    for task in running:
        worker.expect_value(task, "go")
    for index, task in enumerate(tasks):
        worker.expect_value(task, index)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-003"])
def runs_as_many_at_once_as_it_has_slots(bench: RoleBench) -> None:
    """All slots run tasks at once, and no more tasks run than there are slots: the next task has not started.

    The answer to its cancel says so, and it has not started by the end of the case.
    """
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    tasks = worker.occupy(holds)
    one_more = bench.hold()
    waiting = worker.submit("wait", *one_more.arguments)
    worker.fence()
    worker.send("TaskCancel", ids=[waiting])
    worker.expect_confirmation(waiting, "cancelled")
    for task, hold in zip(tasks, holds):
        hold.release()
        worker.expect_value(task, "go")
    worker.expect_value(worker.submit("echo", "next"), "next")
    check(one_more.starts == 0, "no more running tasks than slots", "a start of one more")
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-003"])
def next_task_starts_when_one_has_ended(bench: RoleBench) -> None:
    """When a task ends, its slot takes the next task while the other slots continue."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    tasks = worker.occupy(holds)
    queued = worker.submit("echo", "queued")
    holds[0].release()
    worker.expect_value(tasks[0], "go")
    worker.expect_value(queued, "queued")
    for task, hold in zip(tasks[1:], holds[1:]):
        hold.release()
        worker.expect_value(task, "go")
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-003"])
def batch_fills_all_slots(bench: RoleBench) -> None:
    """The tasks of one batch run in all slots, not one after the other in a single slot."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    tasks = worker.submit_many("wait", [hold.arguments for hold in holds])
    for hold in holds:
        hold.expect_started()
    for task, hold in zip(tasks, holds):
        hold.release()
        worker.expect_value(task, "go")
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-004"])
def higher_priority_starts_first(bench: RoleBench) -> None:
    """A queued task of higher priority starts before one that was sent earlier."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    tasks = worker.occupy(holds)
    low, high = bench.hold(), bench.hold()
    low_task = worker.submit("wait", *low.arguments, options={"priority": -1})
    high_task = worker.submit("wait", *high.arguments, options={"priority": 5})
    worker.fence()
    holds[0].release()
    high.expect_started()
    worker.fence()
    check(low.starts == 0, "the task of lower priority to wait", "its start")
    for task, hold in [*zip(tasks[1:], holds[1:]), (high_task, high)]:
        hold.release()
        worker.expect_outcome(task)
    low.expect_started()
    low.release()
    worker.expect_outcome(low_task)


@case(covers=["SCL-WRK-004"])
def first_come_first_served(bench: RoleBench) -> None:
    """Of queued tasks with the same priority, the one that was sent first starts first."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    worker.occupy(holds)
    first, second = bench.hold(), bench.hold()
    worker.submit_many("wait", [first.arguments, second.arguments])
    worker.fence()
    holds[0].release()
    first.expect_started()
    worker.fence()
    check(second.starts == 0, "the second task to wait", "its start")


@case(covers=["SCL-WRK-030"])
def answers_while_tasks_run(bench: RoleBench) -> None:
    """A worker whose slots are all busy sends Heartbeats, and answers those of its scheduler."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    worker.occupy(holds)
    worker.fence()
    beats = len(worker.heartbeats)
    worker.wait_until(lambda: len(worker.heartbeats) >= beats + 2, "two Heartbeats while all slots are busy")


@case(covers=["SCL-WRK-030"])
def answers_while_tasks_compute(bench: RoleBench) -> None:
    """A worker all of whose slots compute without a pause, for longer than the deadline, still answers."""
    worker = bench.welcomed()
    milliseconds = 100_000 * bench.settings.deadline_seconds
    tasks = worker.submit_many("busy", [[milliseconds]] * worker.hello.slots)
    worker.fence()
    worker.send("TaskCancel", ids=tasks)
    for task in tasks:
        worker.expect_confirmation(task)


@case(covers=["SCL-WRK-015"])
def inconsistent_batch_is_not_run(bench: RoleBench) -> None:
    """No task runs of a Task message whose columns are inconsistent with each other or with the payload."""
    worker = bench.welcomed()
    worker.need_function("wait")
    hold = bench.hold()
    payload = worker.json(hold.arguments)
    size = len(payload)
    wrong = [
        {"payloadSizes": [size, 1]},
        {"payloadSizes": [size, size]},
        {"payloadSizes": [size]},
        {"payloadSizes": [size - 1, 0], "dependencyCounts": [0]},
        {"payloadSizes": [size, 0], "dependencyCounts": [0, 3], "dependencies": [5]},
    ]
    for fields in wrong:
        worker.submit_payloads("wait", [payload, b""], **fields)
        worker = bench.still_serving(worker)
        worker.expect_value(worker.submit("echo", 1), 1)
    check(hold.starts == 0, "no start of a task of an inconsistent batch", f"{hold.starts} starts")
