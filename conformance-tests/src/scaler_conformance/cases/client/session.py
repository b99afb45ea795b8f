"""Beginning a session, keeping it alive, and leaving it."""

from __future__ import annotations

from typing import Optional

from scaler_conformance.benches.client import MAJOR, RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.client_session import ClientSession
from scaler_conformance.playing.conversation import check

REFUSED = "no Hello after the session was refused or shut down"


@case(covers=["SCL-SES-001"], smoke=True)
def says_hello_first(bench: RoleBench) -> None:
    """The first message on a new connection is Hello, with the client's role and versions."""
    hello = bench.greeted().hello
    check(hello.role == "client", "the role client in Hello", hello.role)
    check(hello.major == MAJOR, f"major version {MAJOR} in Hello", hello.major)
    check(hello.minorMin <= hello.minorMax, "minorMin <= minorMax in Hello", hello)


@case(covers=["SCL-SEC-013"])
def hello_has_at_most_64_kib(bench: RoleBench) -> None:
    """The Hello of a client has at most 64 KiB."""
    session = bench.greeted()
    largest = session.largest
    check(largest <= 64 << 10, "a Hello of at most 64 KiB", f"one of {largest} bytes")


@case(covers=["SCL-SES-001"])
def nothing_is_sent_before_the_welcome(bench: RoleBench) -> None:
    """Tasks that are submitted before the Welcome has arrived are not sent before it."""
    session = bench.greeted()
    bench.submit(3)
    bench.ping()
    session.send("Refusal", reason="notAllowed", message="not you")
    bench.expect_event("failed")
    bench.settle()
    farewells = ("DisconnectRequest", "DisconnectResponse")
    early = [each for each in session.waiting() if each.type not in farewells]
    early += session.heartbeats
    check(not early, "no message before the Welcome, except to disconnect", early)


def expect_no_hello(bench: RoleBench, old: ClientSession, task: int, requirement: Optional[str] = None) -> None:
    """The client reports the end of its session to its user, and does not reconnect."""
    found = bench.any_session.wait_until(
        lambda: bench.next_hello(old) or bench.outcome(task), f"an error for task {task}", requirement
    )
    check(not isinstance(found, ClientSession), REFUSED, "a Hello", requirement)
    bench.expect_error(task, requirement=requirement)
    bench.expect_error(bench.submit_one(), requirement=requirement)
    check(bench.next_hello(old) is None, REFUSED, "a Hello", requirement)


@case(covers=["SCL-SES-008"], smoke=True)
def another_major_fails_with_the_message(bench: RoleBench) -> None:
    """A client that is refused with versionMismatch fails at once, shows the message, and does not reconnect."""
    session = bench.greeted()
    session.send("Refusal", reason="versionMismatch", message="speak version 2, please", major=2, minorMax=3)
    failed = bench.any_session.wait_until(
        lambda: bench.next_hello(session) or bench._take_event("failed", {}), "the adapter's event `failed`"
    )
    check(not isinstance(failed, ClientSession), REFUSED, "a Hello")
    check(
        "speak version 2, please" in str(failed.get("message")),
        "the message of the Refusal in the event `failed`",
        failed,
    )
    bench.expect_error(bench.submit_one())
    check(bench.next_hello(session) is None, REFUSED, "a Hello")


@case(covers=["SCL-SES-008"])
def a_refusal_within_the_session_is_final(bench: RoleBench) -> None:
    """After a Refusal for its own fault, the client fails its tasks and does not reconnect."""
    reason = bench.random.choice(["roleNotServed", "malformed", "limitExceeded", "notAllowed", "protocolViolation"])
    session = bench.welcomed()
    task = bench.submit_one()
    session.expect_task(task)
    session.send("Refusal", reason=reason, message="it was too much")
    expect_no_hello(bench, session, task)


@case(covers=["SCL-SES-014"])
def heartbeats_are_echoed(bench: RoleBench) -> None:
    """Each Heartbeat of the scheduler is answered with a HeartbeatEcho of the same sequence."""
    session = bench.welcomed()
    sequences = [0, 7, 7, (1 << 64) - 1]
    for sequence in sequences:
        session.send("Heartbeat", sequence=sequence)
    expected = f"HeartbeatEcho messages with the sequences {sequences}"
    session.wait_until(lambda: len(session.echoes) >= len(sequences), expected)
    came = [each.sequence for each in session.echoes]
    check(came == sequences, expected, came)


@case(covers=["SCL-SES-014"])
def a_heartbeat_with_the_welcome_is_echoed(bench: RoleBench) -> None:
    """A Heartbeat that arrives together with the Welcome is echoed like any other."""
    session = bench.greeted()
    bench.welcome(session)
    session.send("Heartbeat", sequence=4)
    session.wait_until(lambda: session.echoes, "HeartbeatEcho(sequence=4)")


@case(covers=["SCL-SES-013"])
def heartbeats_are_sent(bench: RoleBench) -> None:
    """An idle client keeps sending Heartbeats."""
    session = bench.welcomed()
    session.wait_until(lambda: len(session.heartbeats) >= 3, "three Heartbeats")


@case(covers=["SCL-SES-016"])
def ends_the_session_of_a_silent_scheduler(bench: RoleBench) -> None:
    """A client that receives nothing for the timeout considers its session ended: it reconnects, or fails its tasks."""
    timeout_milliseconds = 3 * bench.heartbeat_milliseconds
    session = bench.greeted(timeoutMilliseconds=timeout_milliseconds)
    bench.welcome(session, timeoutMilliseconds=timeout_milliseconds)
    bench.expect_event("started")
    task = bench.submit_one()
    session.expect_task(task)
    session.answers_heartbeats = False
    bench.rejoined(session, unless=lambda: bench.outcome(task))


@case(covers=["SCL-SES-018"])
def leaves_when_the_scheduler_shuts_down(bench: RoleBench) -> None:
    """The client answers the scheduler's DisconnectRequest, and its unfinished tasks end with an error."""
    session = bench.welcomed()
    task = bench.submit_one()
    session.expect_task(task)
    session.send("DisconnectRequest", reason="shutdown", message="the cluster stops")
    session.expect("DisconnectResponse")
    expect_no_hello(bench, session, task)


@case(covers=["SCL-SES-018"])
def an_accepted_shutdown_ends_the_session(bench: RoleBench) -> None:
    """An accepted ClientShutdown is reported to the user, and the DisconnectRequest that follows is answered."""
    bench.need("shutdown")
    session = bench.welcomed()
    bench.adapter.tell("shutdown")
    session.expect("ClientShutdown")
    session.send("ClientShutdownResponse", accepted=True)
    session.send("DisconnectRequest", reason="shutdown", message="as asked")
    answered = bench.expect_event("shutdown")
    check(answered.get("accepted") is True, "accepted = true in the event `shutdown`", answered)
    session.wait_until(
        lambda: session.waiting("DisconnectResponse", "DisconnectRequest"), "DisconnectResponse or DisconnectRequest"
    )


@case(covers=["SCL-CLT-014"])
def a_refused_shutdown_does_not_end_the_session(bench: RoleBench) -> None:
    """A refused ClientShutdown is reported to the user, and the client continues: its tasks have results."""
    bench.need("shutdown")
    session = bench.welcomed()
    before = bench.submit_one()
    sent = session.expect_task(before)
    bench.adapter.tell("shutdown")
    session.expect("ClientShutdown")
    session.send("ClientShutdownResponse", accepted=False, message="this scheduler is protected")
    answered = bench.expect_event("shutdown")
    check(answered.get("accepted") is False, "accepted = false in the event `shutdown`", answered)
    session.succeed(sent)
    bench.expect_result(before)
    after = bench.submit_one()
    session.succeed(session.expect_task(after))
    bench.expect_result(after)
    session.expect_none("DisconnectRequest", expected="no DisconnectRequest after a refused ClientShutdown")


@case(covers=["SCL-SES-019"])
def announces_that_it_leaves(bench: RoleBench) -> None:
    """A client that disconnects sends a DisconnectRequest, and ends when the scheduler has answered."""
    session = bench.welcomed()
    bench.adapter.tell("disconnect")
    session.expect("DisconnectRequest", reason="leaving")
    session.send("DisconnectResponse")
    bench.expect_event("ended")


@case(covers=["SCL-SES-019"])
def leaves_without_an_answer(bench: RoleBench) -> None:
    """A client that gets no DisconnectResponse ends after a short wait."""
    session = bench.welcomed()
    bench.adapter.tell("disconnect")
    session.expect("DisconnectRequest", reason="leaving")
    bench.expect_event("ended")


@case(covers=["SCL-SES-018"])
def answers_while_it_leaves(bench: RoleBench) -> None:
    """A client that is leaving and receives a DisconnectRequest at the same time answers it and ends."""
    session = bench.welcomed()
    bench.adapter.tell("disconnect")
    session.expect("DisconnectRequest", reason="leaving", requirement="SCL-SES-019")
    session.send("DisconnectRequest", reason="shutdown", message="the cluster stops")
    session.expect("DisconnectResponse")
    bench.expect_event("ended")


@case(covers=["SCL-TRN-011"])
def all_bits_of_sequences_are_kept(bench: RoleBench) -> None:
    """Heartbeats whose sequences need all 64 bits are echoed unchanged."""
    session = bench.welcomed()
    wanted = [2**64 - 1, 2**53 + 1]
    for sequence in wanted:
        session.send("Heartbeat", sequence=sequence)
    session.wait_until(lambda: len(session.echoes) >= len(wanted), "two HeartbeatEcho messages")
    came = [each.sequence for each in session.echoes]
    check(came == wanted, f"HeartbeatEcho messages with the sequences {wanted}", came)


@case(covers=["SCL-SES-018"])
def a_request_to_drain_is_a_shutdown(bench: RoleBench) -> None:
    """Only workers drain: a client that is asked to drain answers and leaves, as for shutdown."""
    session = bench.welcomed()
    session.send("DisconnectRequest", reason="draining", message="the cluster stops")
    session.expect("DisconnectResponse")
    bench.expect_error(bench.submit_one())
