"""Joining, heartbeats and leaving."""

from __future__ import annotations

from scaler_conformance.benches.worker import MAJOR, RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.other_schemas import tomorrow
from scaler_conformance.playing.conversation import check

DRAIN_REQUESTS = "drainRequests"


@case(covers=["SCL-SES-001"], smoke=True)
def says_hello_first(bench: RoleBench) -> None:
    """The first message on a new connection is Hello, with the worker's role and versions."""
    hello = bench.greeted().hello
    check(hello.role == "worker", "the role worker in Hello", hello.role)
    check(hello.major == MAJOR, f"major version {MAJOR} in Hello", hello.major)
    check(hello.minorMin <= hello.minorMax, "minorMin <= minorMax in Hello", hello)
    check(hello.slots > 0, "at least one slot in Hello", hello.slots)


@case(covers=["SCL-SEC-013"])
def hello_has_at_most_64_kib(bench: RoleBench) -> None:
    """The Hello of a worker has at most 64 KiB."""
    worker = bench.greeted()
    largest = worker.largest
    check(largest <= 64 << 10, "a Hello of at most 64 KiB", f"one of {largest} bytes")


@case(covers=["SCL-SES-001"])
def sends_nothing_before_the_welcome(bench: RoleBench) -> None:
    """A worker sends nothing between its Hello and the answer.

    The answer here is a DisconnectRequest: whatever the worker sent before its reply would arrive before that reply.
    """
    worker = bench.greeted()
    worker.send("DisconnectRequest", reason="shutdown", message="not today")
    worker.expect("DisconnectResponse", "DisconnectRequest", requirement="SCL-SES-018")
    check(not worker.heartbeats, "no Heartbeat before Welcome", "one")
    bench.is_meant_to_end = True
    left = worker.waiting()
    check(not left, "no message but Hello before Welcome", left)


@case(covers=["SCL-SES-014"], smoke=True)
def answers_heartbeats(bench: RoleBench) -> None:
    """Each Heartbeat of the scheduler is answered with a HeartbeatEcho of the same sequence."""
    worker = bench.welcomed()
    wanted = [7, 2**63 + 1, 8]
    for sequence in wanted:
        worker.send("Heartbeat", sequence=sequence)
    worker.wait_until(lambda: len(worker.echoes) >= len(wanted), "three HeartbeatEcho messages")
    came = [echo.sequence for echo in worker.echoes]
    check(came == wanted, f"HeartbeatEcho messages with the sequences {wanted}", came)
    worker.expect_nothing_more()


@case(covers=["SCL-SES-013"])
def sends_heartbeats(bench: RoleBench) -> None:
    """A worker sends Heartbeats periodically, at the interval of the Welcome or of its Hello."""
    worker = bench.welcomed()
    worker.wait_until(lambda: len(worker.heartbeats) >= 3, "three Heartbeats")


@case(covers=["SCL-SES-018"], smoke=True)
def leaves_when_asked_to(bench: RoleBench) -> None:
    """A DisconnectRequest with reason shutdown is answered with a DisconnectResponse, and the worker ends."""
    worker = bench.welcomed()
    worker.send("DisconnectRequest", reason="shutdown", message="that was all")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to exit")


@case(covers=["SCL-SES-018"])
def leaves_while_tasks_run(bench: RoleBench) -> None:
    """A worker that is asked to leave does not wait for its tasks."""
    worker = bench.welcomed()
    worker.occupy([bench.hold() for _ in range(worker.hello.slots)])
    worker.send("DisconnectRequest", reason="shutdown")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to exit")


@case(covers=["SCL-VER-004"])
def leaves_for_unknown_reasons(bench: RoleBench) -> None:
    """A DisconnectRequest with an unknown reason is treated as one with reason shutdown."""
    worker = bench.welcomed()
    worker.send("DisconnectRequest", schema=tomorrow(), reason="unheardOf", message="for a reason of tomorrow")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to exit")


@case(covers=["SCL-SES-019"], features=["signals"])
def announces_that_it_leaves(bench: RoleBench) -> None:
    """A worker that gets SIGTERM sends a DisconnectRequest, and ends once the scheduler has answered."""
    worker = bench.welcomed()
    assert bench.running is not None
    bench.running.terminate()
    worker.expect("DisconnectRequest")
    worker.send("DisconnectResponse")
    bench.expect_exit("the worker to exit")


@case(covers=["SCL-SES-020"])
def drains(bench: RoleBench) -> None:
    """A draining worker finishes its running tasks, finishes or gives back its queued ones, and only then answers."""
    worker = bench.welcomed()
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    running = worker.occupy(holds)
    queued = worker.submit("echo", "last")
    worker.send("DisconnectRequest", reason="draining")
    worker.expect_none("DisconnectResponse", expected="no DisconnectResponse while tasks run")
    for hold in holds:
        hold.release()
    response = worker.expect("DisconnectResponse")
    given_back = [task for message in worker.waiting("BalanceResponse") for task in message.ids]
    check(set(given_back) <= {queued}, "only the task that had not started to be given back", given_back)
    for task in [*running, *({queued} - set(given_back))]:
        outcome = worker.expect_outcome(task)
        check(outcome.status == "success", "the task to succeed", outcome)
        check(outcome.message.position < response.position, "all outcomes before the DisconnectResponse", outcome)
    bench.expect_exit("the worker to exit")


@case(covers=["SCL-SES-025"], features=["signals", "drain-requests"])
def asks_to_be_drained(bench: RoleBench) -> None:
    """A worker that gets SIGTERM asks to be drained, ends or gives back its tasks, and leaves after the answer."""
    worker = bench.welcomed(features=[DRAIN_REQUESTS])
    check(DRAIN_REQUESTS in worker.hello.features, f"the feature {DRAIN_REQUESTS} in the Hello", worker.hello.features)
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    running = worker.occupy(holds)
    queued = worker.submit("echo", "last")
    assert bench.running is not None
    bench.running.terminate()
    worker.expect("DisconnectRequest", reason="draining")
    late = worker.submit("echo", "crossing")
    for hold in holds:
        hold.release()
    for task in running:
        outcome = worker.expect_outcome(task)
        check(outcome.status == "success", "the running task to succeed", outcome)
    worker.expect_none("DisconnectResponse", expected="no DisconnectResponse before the scheduler's answer")
    worker.send("DisconnectRequest", reason="draining")
    worker.expect("DisconnectResponse")
    given_back = [task for message in worker.waiting("BalanceResponse") for task in message.ids]
    for task in {queued, late} - set(given_back):
        worker.expect_outcome(task)
    bench.expect_exit("the worker to exit")


@case(covers=["SCL-SES-026"], features=["signals"])
def does_not_ask_a_scheduler_without_the_feature(bench: RoleBench) -> None:
    """A worker that gets SIGTERM does not ask to be drained if its scheduler does not list the feature."""
    worker = bench.welcomed(features=[])
    worker.fence()
    assert bench.running is not None
    bench.running.terminate()
    request = worker.expect("DisconnectRequest")
    check(request.reason != "draining", "another reason than draining", request)


@case(covers=["SCL-SES-008"])
def ends_when_its_version_is_refused(bench: RoleBench) -> None:
    """A worker that is refused with versionMismatch ends with an error and does not send Hello again."""
    worker = bench.greeted()
    worker.send(
        "Refusal", reason="versionMismatch", message="this scheduler speaks 2.0", major=2, minorMin=0, minorMax=0
    )
    code = bench.expect_exit("the refused worker to exit")
    check(code != 0, "a nonzero exit code", code)
    check(not worker.waiting("Hello"), "no second Hello", worker.waiting())


@case(covers=["SCL-SES-008"])
def ends_when_refused_in_a_session(bench: RoleBench) -> None:
    """A worker that is refused within its session for its own fault ends and does not send Hello again."""
    worker = bench.welcomed()
    worker.send("Refusal", reason="protocolViolation", message="that was not allowed")
    bench.expect_exit("the refused worker to exit")
    check(not worker.waiting("Hello"), "no second Hello", worker.waiting())


@case(covers=["SCL-VER-004"])
def ends_after_an_unknown_refusal(bench: RoleBench) -> None:
    """A Refusal with an unknown reason is final."""
    worker = bench.greeted()
    worker.send("Refusal", schema=tomorrow(), reason="unheardOf", message="for a reason of tomorrow")
    bench.expect_exit("the refused worker to exit")
    check(not worker.waiting("Hello"), "no second Hello", worker.waiting())


@case(covers=["SCL-SES-009"])
def says_hello_again_when_not_greeted(bench: RoleBench) -> None:
    """A worker whose session the scheduler no longer knows begins a new one with a Hello."""
    worker = bench.welcomed()
    worker.send("Refusal", reason="notGreeted", message="who are you?")
    again = bench.rejoined(worker)
    again.expect_value(again.submit("echo", "again"), "again")
    again.expect_nothing_more()


@case(covers=["SCL-SES-023"])
def reconnects_to_a_new_scheduler(bench: RoleBench) -> None:
    """When its connection ends and another scheduler listens at the address, the worker serves that one."""
    bench.welcomed()
    bench.restart_scheduler()
    again = bench.rejoined()
    again.expect_value(again.submit("echo", "again"), "again")
    again.expect_nothing_more()


@case(covers=["SCL-SES-023"])
def reconnects_after_a_shutdown(bench: RoleBench) -> None:
    """A worker whose Hello is refused with shuttingDown says Hello to the next scheduler at the address."""
    worker = bench.greeted()
    worker.send("Refusal", reason="shuttingDown", message="try later")
    bench.restart_scheduler()
    bench.rejoined().fence()


@case(covers=["SCL-SES-016"])
def ends_the_session_of_a_silent_scheduler(bench: RoleBench) -> None:
    """A worker that has received nothing for Welcome.timeoutMilliseconds considers its session ended."""
    interval = bench.heartbeat_milliseconds
    worker = bench.greeted()
    worker.answers_heartbeats = False
    bench.welcome(worker, heartbeatIntervalMilliseconds=interval, timeoutMilliseconds=2 * interval)
    bench.rejoined(worker).fence()


@case(covers=["SCL-SES-021"])
def new_session_reports_nothing_old(bench: RoleBench) -> None:
    """The outcome of a task of an earlier session is not reported in a new one.

    The old task is released only after the new Welcome. Tasks of the new session show that the worker has had time to
    report it.
    """
    hold = bench.hold()
    worker = bench.welcomed()
    worker.occupy([hold])
    bench.restart_scheduler()
    again = bench.rejoined()
    again.fence()
    hold.release()
    holds = [bench.hold() for _ in range(again.hello.slots)]
    for task, each in zip(again.occupy(holds), holds):
        each.release()
        again.expect_value(task, "go")
    again.expect_nothing_more(expected="no report on the earlier session")
