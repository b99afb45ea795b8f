"""Joining, staying and leaving."""

from __future__ import annotations

from scaler_conformance.benches.worker import MAJOR, RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.other_schemas import tomorrow
from scaler_conformance.playing.conversation import check


@case(covers=["SCL-SES-001"], smoke=True)
def says_hello_first(bench: RoleBench) -> None:
    """The first message on a new connection is Hello, with the role and the versions that the worker speaks."""
    hello = bench.greeted().hello
    check(hello.role == "worker", "the role worker in Hello", hello.role)
    check(hello.major == MAJOR, f"major version {MAJOR} in Hello", hello.major)
    check(hello.minorMin <= hello.minorMax, "a range of minor versions", hello)
    check(hello.slots > 0, "slots in Hello", hello.slots)


@case(covers=["SCL-SES-001"])
def waits_for_its_welcome(bench: RoleBench) -> None:
    """Between its Hello and the answer a worker says nothing.

    The answer is a DisconnectRequest here: what the worker had said before its reply to that would be seen.
    """
    worker = bench.greeted()
    worker.send("DisconnectRequest", reason="shutdown", message="not today")
    worker.expect("DisconnectResponse", "DisconnectRequest", requirement="SCL-SES-018")
    check(not worker.heartbeats, "no Heartbeat before Welcome", "one came")
    bench.is_meant_to_end = True
    left = worker.waiting()
    check(not left, "nothing but Hello before Welcome", left)


@case(covers=["SCL-SES-014"], smoke=True)
def answers_heartbeats(bench: RoleBench) -> None:
    """Each Heartbeat of the scheduler is answered with a HeartbeatEcho of the same sequence."""
    worker = bench.welcomed()
    wanted = [7, 2**63 + 1, 8]
    for sequence in wanted:
        worker.send("Heartbeat", sequence=sequence)
    worker.wait_until(lambda: len(worker.echoes) >= len(wanted), "three HeartbeatEchos")
    came = [echo.sequence for echo in worker.echoes]
    check(came == wanted, f"echoes of the sequences {wanted}", came)
    worker.expect_nothing_more()


@case(covers=["SCL-SES-013"])
def sends_heartbeats(bench: RoleBench) -> None:
    """A worker sends Heartbeats again and again, at the interval of the Welcome or of its Hello."""
    worker = bench.welcomed()
    worker.wait_until(lambda: len(worker.heartbeats) >= 3, "three Heartbeats")


@case(covers=["SCL-SES-018"], smoke=True)
def leaves_when_asked_to(bench: RoleBench) -> None:
    """A DisconnectRequest of reason shutdown is answered with a DisconnectResponse, and the worker ends."""
    worker = bench.welcomed()
    worker.send("DisconnectRequest", reason="shutdown", message="that was all")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to end")


@case(covers=["SCL-SES-018"])
def leaves_although_tasks_run(bench: RoleBench) -> None:
    """A worker that is asked to leave does not wait for its tasks."""
    worker = bench.welcomed()
    worker.occupy([bench.hold() for _ in range(worker.hello.slots)])
    worker.send("DisconnectRequest", reason="shutdown")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to end")


@case(covers=["SCL-VER-004"])
def leaves_for_reasons_unheard_of(bench: RoleBench) -> None:
    """A DisconnectRequest whose reason the worker does not know is one of reason shutdown."""
    worker = bench.welcomed()
    worker.send("DisconnectRequest", schema=tomorrow(), reason="unheardOf", message="for a reason of tomorrow")
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to end")


@case(covers=["SCL-SES-019"], features=["signals"])
def says_goodbye(bench: RoleBench) -> None:
    """A worker that is told to end by SIGTERM says so to its scheduler, and ends when that has answered."""
    worker = bench.welcomed()
    assert bench.running is not None
    bench.running.terminate()
    worker.expect("DisconnectRequest")
    worker.send("DisconnectResponse")
    bench.expect_exit("the worker to end")


@case(covers=["SCL-SES-020"])
def drains(bench: RoleBench) -> None:
    """A worker that drains finishes what runs, finishes or gives back what waits, and only then answers."""
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
    check(set(given_back) <= {queued}, "nothing given back but the task that had not started", given_back)
    for task in [*running, *({queued} - set(given_back))]:
        outcome = worker.expect_outcome(task)
        check(outcome.status == "success", "the task to be finished", outcome)
        check(outcome.message.position < response.position, "outcomes before DisconnectResponse", outcome)
    bench.expect_exit("the worker to end")


@case(covers=["SCL-SES-008"])
def other_major_ends_it(bench: RoleBench) -> None:
    """A worker that is refused for its version ends, with an error, and does not say Hello again."""
    worker = bench.greeted()
    worker.send(
        "Refusal", reason="versionMismatch", message="this scheduler speaks 2.0", major=2, minorMin=0, minorMax=0
    )
    code = bench.expect_exit("a worker that is refused to end")
    check(code != 0, "an exit code that tells of an error", code)
    check(not worker.waiting("Hello"), "no other Hello", worker.waiting())


@case(covers=["SCL-SES-008"])
def refusal_in_a_session_ends_it(bench: RoleBench) -> None:
    """A worker that is refused within its session for a fault of its own does not say Hello again: it ends."""
    worker = bench.welcomed()
    worker.send("Refusal", reason="protocolViolation", message="that was not allowed")
    bench.expect_exit("a worker that is refused to end")
    check(not worker.waiting("Hello"), "no other Hello", worker.waiting())


@case(covers=["SCL-VER-004"])
def refusal_unheard_of_ends_it(bench: RoleBench) -> None:
    """A Refusal whose reason the worker does not know is final."""
    worker = bench.greeted()
    worker.send("Refusal", schema=tomorrow(), reason="unheardOf", message="for a reason of tomorrow")
    bench.expect_exit("a worker that is refused to end")
    check(not worker.waiting("Hello"), "no other Hello", worker.waiting())


@case(covers=["SCL-SES-009"])
def greets_again_when_unknown(bench: RoleBench) -> None:
    """A worker that its scheduler does not know any more begins a new session, with a Hello."""
    worker = bench.welcomed()
    worker.send("Refusal", reason="notGreeted", message="who are you?")
    again = bench.rejoined(worker)
    again.expect_value(again.submit("echo", "again"), "again")
    again.expect_nothing_more()


@case(covers=["SCL-SES-023"])
def comes_back_to_a_new_scheduler(bench: RoleBench) -> None:
    """When its connection ends and another scheduler listens at the address, the worker serves that one."""
    bench.welcomed()
    bench.restart_scheduler()
    again = bench.rejoined()
    again.expect_value(again.submit("echo", "again"), "again")
    again.expect_nothing_more()


@case(covers=["SCL-SES-023"])
def comes_back_after_a_shutdown(bench: RoleBench) -> None:
    """A worker whose Hello is refused because the scheduler shuts down greets the next one."""
    worker = bench.greeted()
    worker.send("Refusal", reason="shuttingDown", message="try later")
    bench.restart_scheduler()
    bench.rejoined().fence()


@case(covers=["SCL-SES-016"])
def gives_up_a_silent_scheduler(bench: RoleBench) -> None:
    """A worker that has heard nothing for Welcome.timeoutMilliseconds takes its session for ended."""
    interval = bench.heartbeat_milliseconds
    worker = bench.greeted()
    worker.answers_heartbeats = False
    bench.welcome(worker, heartbeatIntervalMilliseconds=interval, timeoutMilliseconds=2 * interval)
    bench.rejoined(worker).fence()


@case(covers=["SCL-SES-021"])
def new_session_has_nothing_old(bench: RoleBench) -> None:
    """What a task of an earlier session does is not reported in a new one.

    The task is let go only after the new Welcome. A task of the new session shows that the worker has had its say.
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
    again.expect_nothing_more(expected="nothing of the earlier session")
