"""What becomes of tasks when their session ends."""

from __future__ import annotations

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check


@case(covers=["SCL-WRK-028"])
def drops_what_has_not_started(bench: RoleBench) -> None:
    """Tasks that were queued when the session ended are not started in the next one."""
    worker = bench.welcomed()
    slots = worker.hello.slots
    running = [bench.hold() for _ in range(slots)]
    worker.occupy(running)
    queued = [bench.hold() for _ in range(slots)]
    worker.submit_many("wait", [hold.arguments for hold in queued])
    worker.fence()
    bench.restart_scheduler()
    again = bench.rejoined()
    for hold in running:
        hold.release()
    for _ in range(3):
        new = [bench.hold() for _ in range(slots)]
        tasks = again.occupy(new)
        for task, hold in zip(tasks, new):
            hold.release()
            again.expect_value(task, "go")
    started = [hold.tag for hold in queued if hold.starts]
    check(not started, "no task of the old session to start", f"{', '.join(started)} did")
    again.expect_nothing_more()


@case(covers=["SCL-WRK-029"])
def stops_what_runs(bench: RoleBench) -> None:
    """Tasks that run when the session ends are stopped: their results are not needed."""
    hold = bench.hold()
    worker = bench.welcomed()
    worker.occupy([hold])
    bench.restart_scheduler()
    bench.rejoined()
    hold.expect_stopped()


@case(covers=["SCL-SES-018"], features=["signals"])
def answers_while_it_leaves(bench: RoleBench) -> None:
    """A worker that has said that it leaves, and is asked to in the same moment, answers and ends."""
    worker = bench.welcomed()
    assert bench.running is not None
    bench.running.terminate()
    worker.expect("DisconnectRequest", requirement="SCL-SES-019")
    worker.send("DisconnectRequest", reason="shutdown", message="everybody leaves")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to end")


@case(covers=["SCL-SES-018"])
def is_asked_to_leave_by_another_reason(bench: RoleBench) -> None:
    """A scheduler that says leaving, as peers do, means shutdown."""
    worker = bench.welcomed()
    worker.send("DisconnectRequest", reason="leaving")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to end")


@case(covers=["SCL-SES-018"])
def stops_while_it_drains(bench: RoleBench) -> None:
    """A worker that drains, and is then asked to leave at once, does not wait for its tasks any longer."""
    worker = bench.welcomed()
    worker.occupy([bench.hold() for _ in range(worker.hello.slots)])
    worker.send("DisconnectRequest", reason="draining")
    worker.send("DisconnectRequest", reason="shutdown", message="it took too long")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to end")
