"""What a worker reports while a monitor is subscribed."""

from __future__ import annotations

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.worker_session import WorkerSession

NUMBERS_OF_A_RUN = 3


def set_watched(worker: WorkerSession, is_watched: bool) -> None:
    """Tell the worker whether a monitor is subscribed, now and in each HeartbeatEcho; return when it has read that."""
    worker.is_watched = is_watched
    worker.send("HeartbeatEcho", sequence=0, isWatched=is_watched)
    worker.fence()


@case(covers=["SCL-WRK-032"])
def runs_are_reported_while_watched(bench: RoleBench) -> None:
    """While a monitor is subscribed, each TaskResult says on which processor each task ran; otherwise it does not."""
    worker = bench.welcomed()
    for is_watched in (False, True, False):
        set_watched(worker, is_watched)
        tasks = worker.submit_many("sum", [[index] for index in range(min(5, worker.capacity))])
        for index, task in enumerate(tasks):
            message = worker.expect_value(task, index).message
            if not is_watched:
                check(not message.runs, "no runs while no monitor is subscribed", message)
                continue
            check(len(message.runs) % NUMBERS_OF_A_RUN == 0, "three numbers for each run", message.runs)
            counts, processors = message.runs[::NUMBERS_OF_A_RUN], message.runs[1::NUMBERS_OF_A_RUN]
            check(sum(counts) == len(message.ids), "runs that cover all entries", message)
            check(all(processors), "the process id of each run", message.runs)


@case(covers=["SCL-WRK-033"])
def heartbeats_name_running_tasks(bench: RoleBench) -> None:
    """While a monitor is subscribed, Heartbeats name the task that each processor runs, and for how long it has run."""
    worker = bench.welcomed()
    hold = bench.hold()
    (task,) = worker.occupy([hold])
    set_watched(worker, False)
    seen = len(worker.heartbeats)
    worker.wait_until(lambda: len(worker.heartbeats) > seen + 1, "two Heartbeats")
    named = [each.instance for beat in worker.heartbeats[seen + 1 :] for each in beat.processors]
    check(not any(named), "no instance while no monitor is subscribed", named)
    set_watched(worker, True)

    def is_named() -> bool:
        processors = worker.heartbeats[-1].processors
        return any(each.instance == task and each.taskMicroseconds for each in processors)

    worker.wait_until(is_named, f"a Heartbeat that names instance {task} and its running time")
    hold.release()
    worker.expect_value(task, "go")
