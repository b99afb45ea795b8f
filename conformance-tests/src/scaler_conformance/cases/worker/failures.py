"""Tasks that fail, and how the worker reports them."""

from __future__ import annotations

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check


@case(covers=["SCL-WRK-006"])
def failed_task_has_a_failure(bench: RoleBench) -> None:
    """A task that fails is reported as failed, with a Failure that says why."""
    worker = bench.welcomed()
    failure = worker.expect_failure(worker.submit("fail", "it is broken"), "taskRaised")
    check(failure.message == "it is broken", "the message 'it is broken'", failure)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-005"])
def failures_and_results_side_by_side(bench: RoleBench) -> None:
    """When some tasks of a batch fail and others succeed, each has its own status and payload."""
    worker = bench.welcomed()
    tasks = worker.submit_payloads("sum", [b"[1]", b"no JSON", b"[2]", b"[", b"[3]"])
    for task, value in zip(tasks, [1, None, 2, None, 3]):
        if value is None:
            worker.expect_failure(task, "argumentNotLoaded", requirement="SCL-COD-008")
        else:
            worker.expect_value(task, value)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-031"])
def failure_names_worker_and_attempt(bench: RoleBench) -> None:
    """A Failure names the worker and the attempt."""
    worker = bench.welcomed()
    failure = worker.expect_failure(worker.submit("fail", "again", attempt=3), "taskRaised")
    check(failure.worker, "the worker's name in the Failure", failure)
    check(failure.attempts == 3, "attempts = 3 in the Failure of a task that was sent as attempt 3", failure)


@case(covers=["SCL-WRK-013"], features=["processes"])
def task_that_kills_its_process_is_lost(bench: RoleBench) -> None:
    """A task whose process dies is lost when it has no attempts left; other tasks of its batch are not affected."""
    worker = bench.welcomed()
    worker.need_function("exit")
    before, after = worker.submit("echo", "before"), 0
    killer = worker.submit("crash")
    after = worker.submit("echo", "after")
    failure = worker.expect_failure(killer, "processorDied", "lost")
    check(failure.attempts in (0, 1), "attempts = 1, or 0 for unknown, in the Failure", failure)
    worker.expect_value(before, "before")
    worker.expect_value(after, "after")
    worker.expect_failure(worker.submit("exit", 3), "processorDied", "lost")
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-013"], features=["processes"])
def task_that_kills_its_process_is_tried_again(bench: RoleBench) -> None:
    """A task whose process dies is retried as often as its retries say, and its Failure counts the attempts."""
    worker = bench.welcomed()
    failure = worker.expect_failure(worker.submit("crash", options={"retries": 2}), "processorDied", "lost")
    check(failure.attempts == 3, "attempts = 3 for a task with 2 retries", failure)
    failure = worker.expect_failure(worker.submit("crash", options={"retries": 2}, attempt=2), "processorDied", "lost")
    check(failure.attempts == 3, "attempts = 3 for a task with 2 retries that was sent as attempt 2", failure)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-012"], features=["processes"])
def at_most_once_is_not_tried_again(bench: RoleBench) -> None:
    """A task with the option atMostOnce is lost when its process dies, whatever its retries are."""
    worker = bench.welcomed()
    options = {"retries": 5, "atMostOnce": True}
    failure = worker.expect_failure(worker.submit("crash", options=options), "processorDied", "lost")
    check(failure.attempts in (0, 1), "attempts = 1, or 0 for unknown, for a task that must not be retried", failure)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-007"])
def outcomes_are_batched(bench: RoleBench) -> None:
    """Outcomes that are available at the same time, such as those of an unrunnable batch, share TaskResult messages."""
    worker = bench.welcomed()
    count = min(64, worker.capacity)
    tasks = worker.submit_payloads("echo", [b"[1]"] * count, functionName="unknown.example/function")
    messages = {worker.expect_outcome(task).message.position for task in tasks}
    check(len(messages) < max(2, count), "fewer TaskResult messages than tasks", f"{len(messages)} for {count} tasks")


@case(covers=["SCL-WRK-008"])
def busy_time_is_reported(bench: RoleBench) -> None:
    """A TaskResult reports how long its tasks kept slots busy."""
    worker = bench.welcomed()
    outcome = worker.expect_value(worker.submit("sleep", 60), None)
    busy = outcome.message.busyMicroseconds
    check(busy >= 60_000, "busyMicroseconds of at least 60 000 for a task that sleeps for 60 ms", busy)


@case(covers=["SCL-WRK-009"], features=["profiling"])
def profile_is_filled(bench: RoleBench) -> None:
    """With the option profiling, a TaskResult reports each task's duration, CPU time and peak memory."""
    worker = bench.welcomed()
    outcome = worker.expect_value(worker.submit("busy", 300, options={"profiling": True}), None)
    for column in ("durationsMicroseconds", "cpuMicroseconds", "peakMemoryBytes"):
        values = getattr(outcome.message, column)
        check(len(values) == len(outcome.message.ids), f"an entry for each task in {column}", outcome.message)
        least = {"durationsMicroseconds": 300_000, "cpuMicroseconds": 5_000}.get(column, 0)
        check(values[outcome.entry] >= least, f"at least {least} in {column}", values)


@case(covers=["SCL-WRK-010"], features=["time-limit"])
def time_limit_stops_a_task(bench: RoleBench) -> None:
    """A task that runs for longer than its time limit is stopped and lost; other tasks continue."""
    worker = bench.welcomed()
    hold, patient = bench.hold(), bench.hold()
    (within,) = worker.occupy([patient], options={"timeLimitMilliseconds": 600_000})
    patient.release()
    worker.expect_value(within, "go")
    task = worker.submit("wait", *hold.arguments, options={"timeLimitMilliseconds": 150})
    worker.expect_failure(task, "timeLimit", "lost")
    if hold.starts:  # on a busy machine, it may be stopped before it has connected
        hold.expect_stopped()
    worker.expect_value(worker.submit("echo", "next"), "next")
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-011"], features=["memory-limit"])
def memory_limit_stops_a_task(bench: RoleBench) -> None:
    """A task that exceeds its memory limit is stopped and lost; a task within its limit, and other tasks, succeed."""
    worker = bench.welcomed()
    worker.need_function("fill")
    options = {"memoryLimitBytes": 256 << 20}
    modest = worker.submit("fill", 1 << 20, 10, options=options)
    worker.expect_value(modest, None)
    greedy = worker.submit("fill", 400 << 20, 100_000 * bench.settings.deadline_seconds, options=options)
    worker.expect_failure(greedy, "memoryLimit", "lost")
    worker.expect_value(worker.submit("echo", "next"), "next")
    worker.expect_nothing_more()
