"""Questions about tasks, and the order to stop."""

from __future__ import annotations

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.conversation import check


@case(covers=["SCL-SCH-023"])
def questions_are_answered(bench: RoleBench) -> None:
    """Questions are answered under their requestId: of a task that waits, that runs, and that nobody knows."""
    client, worker = bench.client(), bench.worker()
    client.submit(2)
    worker.expect_task()
    for request, task in ((7, 1), (8, 2), ((1 << 64) - 1, 99)):
        client.send("ExplanationRequest", requestId=request, taskId=task)
        answer = client.expect("Explanation", requestId=request)
        check(answer.text, "a text for people", answer)


@case(covers=["SCL-SCH-024"])
def protected_scheduler_goes_on(bench: RoleBench) -> None:
    """A protected scheduler answers ClientShutdown with accepted = false, and goes on."""
    bench.variant("protected")
    client = bench.client()
    bench.need(client.welcome.protected, "protection")
    worker = bench.worker()
    client.send("ClientShutdown")
    check(not client.expect("ClientShutdownResponse").accepted, "accepted = false", "true")
    client.submit()
    worker.succeed(worker.expect_task())
    client.expect_outcome(1, "success")


@case(covers=["SCL-SCH-025"])
def shutdown_is_obeyed(bench: RoleBench) -> None:
    """A scheduler that is not protected answers with accepted = true, sends everybody away, and ends."""
    bench.variant("unprotected")
    client = bench.client()
    bench.need(not client.welcome.protected, "no protection")
    other, worker = bench.client(), bench.worker()
    bench.is_meant_to_end = True
    client.send("ClientShutdown")
    check(client.expect("ClientShutdownResponse").accepted, "accepted = true", "false")
    for peer in (client, other, worker):
        peer.beats = False
        peer.expect("DisconnectRequest", reason="shutdown")
        peer.send("DisconnectResponse")
    bench.expect_end()
