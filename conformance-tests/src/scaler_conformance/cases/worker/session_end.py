"""What happens to tasks when their session ends."""

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
    check(not started, "no start of a task of the old session", f"starts of {', '.join(started)}")
    again.expect_nothing_more()


@case(covers=["SCL-WRK-029"])
def stops_what_runs(bench: RoleBench) -> None:
    """Tasks that run when the session ends are stopped, since their results are no longer needed."""
    hold = bench.hold()
    worker = bench.welcomed()
    worker.occupy([hold])
    bench.restart_scheduler()
    bench.rejoined()
    hold.expect_stopped()


@case(covers=["SCL-SES-018"], features=["signals"])
def answers_while_it_leaves(bench: RoleBench) -> None:
    """A worker that is leaving and receives a DisconnectRequest at the same time answers it and ends."""
    worker = bench.welcomed()
    assert bench.running is not None
    bench.running.terminate()
    worker.expect("DisconnectRequest", requirement="SCL-SES-019")
    worker.send("DisconnectRequest", reason="shutdown", message="the cluster stops")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to exit")


@case(covers=["SCL-SES-018"])
def leaving_means_shutdown(bench: RoleBench) -> None:
    """A DisconnectRequest with reason leaving, which peers send, means shutdown when a scheduler sends it."""
    worker = bench.welcomed()
    worker.send("DisconnectRequest", reason="leaving")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to exit")


@case(covers=["SCL-SES-018"])
def shutdown_ends_draining(bench: RoleBench) -> None:
    """A draining worker that is asked to shut down no longer waits for its tasks."""
    worker = bench.welcomed()
    worker.occupy([bench.hold() for _ in range(worker.hello.slots)])
    worker.send("DisconnectRequest", reason="draining")
    worker.send("DisconnectRequest", reason="shutdown", message="it took too long")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to exit")
