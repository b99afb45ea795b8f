"""Balancing: tasks that the worker gives back so that they can run elsewhere."""

from __future__ import annotations

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check


@case(covers=["SCL-WRK-025"])
def each_request_is_answered(bench: RoleBench) -> None:
    """The worker answers each BalanceRequest with a BalanceResponse of the same requestId, even if it is empty."""
    worker = bench.welcomed()
    for request in (9, 2**63 + 1):
        worker.send("BalanceRequest", requestId=request, count=10)
        response = worker.expect("BalanceResponse")
        check(response.requestId == request, f"requestId {request}", response)
        check(not response.ids, "no ids from a worker that holds no task", response)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-026"])
def given_back_tasks_are_not_started(bench: RoleBench) -> None:
    """The worker gives back only tasks that have not started, at most as many as requested, and never starts them."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    running = worker.occupy(holds)
    queued = [bench.hold() for _ in range(4)]
    tasks = worker.submit_many("wait", [hold.arguments for hold in queued])
    worker.send("BalanceRequest", requestId=1, count=2)
    given = worker.expect("BalanceResponse", requestId=1).ids
    check(len(given) <= 2, "at most 2 task ids in the BalanceResponse", given)
    check(set(given) <= set(tasks), f"only ids of tasks that have not started ({tasks})", given)
    for hold, each in zip(holds, running):
        hold.release()
        worker.expect_value(each, "go")
    for hold, each in zip(queued, tasks):
        if each not in given:
            hold.expect_started()
            hold.release()
            worker.expect_value(each, "go")
    worker.expect_value(worker.submit("echo", "last"), "last")
    started = [hold.tag for hold, each in zip(queued, tasks) if each in given and hold.starts]
    check(not started, "no start of a task that was given back", f"starts of {', '.join(started)}")
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-002"])
def given_back_tasks_have_no_outcome(bench: RoleBench) -> None:
    """A task that was given back has no outcome, and its cancel is answered with notFound."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    running = worker.occupy(holds)
    tasks = worker.submit_many("echo", [[index] for index in range(3)])
    worker.send("BalanceRequest", requestId=1, count=3)
    given = worker.expect("BalanceResponse", requestId=1).ids
    if given:
        worker.send("TaskCancel", ids=given)
        for each in given:
            worker.expect_confirmation(each, "notFound")
    for hold, each in zip(holds, running):
        hold.release()
        worker.expect_value(each, "go")
    for index, each in enumerate(tasks):
        if each not in given:
            worker.expect_value(each, index)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-027"])
def newest_is_given_back_first(bench: RoleBench) -> None:
    """The task that would start last is given back first."""
    worker = bench.welcomed()
    worker.occupy([bench.hold() for _ in range(worker.hello.slots)])
    worker.submit("echo", "first")
    last = worker.submit("size", 1)
    worker.send("BalanceRequest", requestId=1, count=1)
    given = worker.expect("BalanceResponse", requestId=1).ids
    check(given in ([], [last]), f"task {last}, which was sent last, or no task", given)


@case(covers=["SCL-WRK-026"], features=["processes"])
def task_whose_process_died_is_not_given_back(bench: RoleBench) -> None:
    """A task that waits for its next attempt has already started, so the worker does not give it back."""
    worker = bench.welcomed()
    worker.need_function("crash")
    worker.occupy([bench.hold() for _ in range(worker.hello.slots - 1)])
    crashing = worker.submit("crash", options={"retries": 100})
    for _ in range(5):  # by then it has started, since there is a slot for it
        worker.fence()
    urgent = bench.hold()
    worker.submit("wait", *urgent.arguments, options={"priority": 1})
    worker.wait_until(lambda: urgent.starts or worker.outcomes, "the task of higher priority to start, or an outcome")
    worker.send("BalanceRequest", requestId=1, count=10)
    given = worker.expect("BalanceResponse", requestId=1).ids
    check(crashing not in given, f"no id of task {crashing}, which has already started", given)
