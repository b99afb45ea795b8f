"""Beginning a session, keeping it alive, and leaving it."""

from __future__ import annotations

from typing import Optional

from scaler_conformance.benches.client import MAJOR, RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.client_session import ClientSession
from scaler_conformance.playing.conversation import check

REFUSED = "the client not to say Hello again after a Refusal"


@case(covers=["SCL-SES-001"], smoke=True)
def says_hello_first(bench: RoleBench) -> None:
    """The first message of a client on a new connection is Hello, with its role and the version that it speaks."""
    hello = bench.greeted().hello
    check(hello.role == "client", "the role client in Hello", hello.role)
    check(hello.major == MAJOR, f"major version {MAJOR} in Hello", hello.major)
    check(hello.minorMin <= hello.minorMax, "a range of minor versions", hello)


@case(covers=["SCL-SES-001"])
def nothing_is_sent_before_the_welcome(bench: RoleBench) -> None:
    """Tasks that are submitted while the Welcome is awaited wait as well."""
    session = bench.greeted()
    bench.submit(3)
    bench.ping()
    session.send("Refusal", reason="notAllowed", message="not you")
    bench.expect_event("failed")
    bench.settle()
    farewells = ("DisconnectRequest", "DisconnectResponse")
    early = [each for each in session.waiting() if each.type not in farewells]
    early += session.heartbeats
    check(not early, "nothing but a farewell before the Welcome", early)


def expect_no_hello(bench: RoleBench, old: ClientSession, task: int, requirement: Optional[str] = None) -> None:
    """The client ends, telling its user so, and does not come back."""
    found = bench.anybody.wait_until(
        lambda: bench.next_hello(old) or bench.outcome(task), f"an error for task {task}", requirement
    )
    check(not isinstance(found, ClientSession), REFUSED, "it came", requirement)
    bench.expect_error(task, requirement=requirement)
    bench.expect_error(bench.submit_one(), requirement=requirement)
    check(bench.next_hello(old) is None, REFUSED, "it came", requirement)


@case(covers=["SCL-SES-008"], smoke=True)
def another_major_ends_it_with_a_message(bench: RoleBench) -> None:
    """A client that is told versionMismatch fails at once, shows the message, and does not come back."""
    session = bench.greeted()
    session.send("Refusal", reason="versionMismatch", message="speak version 2, please", major=2, minorMax=3)
    failed = bench.anybody.wait_until(
        lambda: bench.next_hello(session) or bench._take_event("failed", {}), "the event failed of the adapter"
    )
    check(not isinstance(failed, ClientSession), REFUSED, "it came")
    check("speak version 2, please" in str(failed.get("message")), "the message of the Refusal", failed)
    bench.expect_error(bench.submit_one())
    check(bench.next_hello(session) is None, REFUSED, "it came")


@case(covers=["SCL-SES-008"])
def a_refusal_within_the_session_ends_it(bench: RoleBench) -> None:
    """After a Refusal for a fault of its own the client ends: its tasks fail, and it does not come back by itself."""
    reason = bench.random.choice(["roleNotServed", "malformed", "limitExceeded", "notAllowed", "protocolViolation"])
    session = bench.welcomed()
    task = bench.submit_one()
    session.expect_task(task)
    session.send("Refusal", reason=reason, message="it was too much")
    expect_no_hello(bench, session, task)


@case(covers=["SCL-SES-014"])
def heartbeats_are_echoed(bench: RoleBench) -> None:
    """Each Heartbeat of the scheduler is answered, with its number."""
    session = bench.welcomed()
    sequences = [0, 7, 7, (1 << 64) - 1]
    for sequence in sequences:
        session.send("Heartbeat", sequence=sequence)
    expected = f"HeartbeatEchos with the sequences {sequences}"
    session.wait_until(lambda: len(session.echoes) >= len(sequences), expected)
    came = [each.sequence for each in session.echoes]
    check(came == sequences, expected, came)


@case(covers=["SCL-SES-014"])
def what_follows_the_welcome_at_once_is_heard(bench: RoleBench) -> None:
    """A Heartbeat that arrives together with the Welcome is echoed like any other."""
    session = bench.greeted()
    bench.welcome(session)
    session.send("Heartbeat", sequence=4)
    session.wait_until(lambda: session.echoes, "HeartbeatEcho(sequence=4)")


@case(covers=["SCL-SES-013"])
def heartbeats_are_sent(bench: RoleBench) -> None:
    """An idle client goes on sending Heartbeats."""
    session = bench.welcomed()
    session.wait_until(lambda: len(session.heartbeats) >= 3, "three Heartbeats")


@case(covers=["SCL-SES-016"])
def a_scheduler_that_says_nothing_is_left(bench: RoleBench) -> None:
    """A client that hears nothing for too long takes its session for ended: it comes back, or its tasks fail."""
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
def a_shutdown_that_it_asked_for_ends_it(bench: RoleBench) -> None:
    """ClientShutdown is answered, and followed by a DisconnectRequest; the user learns that it was accepted."""
    bench.need("shutdown")
    session = bench.welcomed()
    bench.adapter.tell("shutdown")
    session.expect("ClientShutdown")
    session.send("ClientShutdownResponse", accepted=True)
    session.send("DisconnectRequest", reason="shutdown", message="as asked")
    answered = bench.expect_event("shutdown")
    check(answered.get("accepted") is True, "a shutdown that was accepted", answered)
    session.wait_until(lambda: session.waiting("DisconnectResponse", "DisconnectRequest"), "DisconnectResponse")


@case(covers=["SCL-CLT-014"])
def a_shutdown_that_is_refused_ends_nothing(bench: RoleBench) -> None:
    """When ClientShutdown is not accepted the user learns that, and the client goes on: its tasks have results."""
    bench.need("shutdown")
    session = bench.welcomed()
    before = bench.submit_one()
    sent = session.expect_task(before)
    bench.adapter.tell("shutdown")
    session.expect("ClientShutdown")
    session.send("ClientShutdownResponse", accepted=False, message="this scheduler is protected")
    answered = bench.expect_event("shutdown")
    check(answered.get("accepted") is False, "a shutdown that was not accepted", answered)
    session.succeed(sent)
    bench.expect_result(before)
    after = bench.submit_one()
    session.succeed(session.expect_task(after))
    bench.expect_result(after)
    session.expect_none("DisconnectRequest", expected="the client not to leave")


@case(covers=["SCL-SES-019"])
def says_that_it_leaves(bench: RoleBench) -> None:
    """A client that disconnects says so, and ends with the scheduler's answer."""
    session = bench.welcomed()
    bench.adapter.tell("disconnect")
    session.expect("DisconnectRequest", reason="leaving")
    session.send("DisconnectResponse")
    bench.expect_event("ended")


@case(covers=["SCL-SES-019"])
def leaves_also_without_an_answer(bench: RoleBench) -> None:
    """The wait for the DisconnectResponse is short."""
    session = bench.welcomed()
    bench.adapter.tell("disconnect")
    session.expect("DisconnectRequest", reason="leaving")
    bench.expect_event("ended")


@case(covers=["SCL-SES-018"])
def answers_while_it_leaves(bench: RoleBench) -> None:
    """A client that has said that it leaves, and is asked to in the same moment, answers and ends."""
    session = bench.welcomed()
    bench.adapter.tell("disconnect")
    session.expect("DisconnectRequest", reason="leaving", requirement="SCL-SES-019")
    session.send("DisconnectRequest", reason="shutdown", message="everybody leaves")
    session.expect("DisconnectResponse")
    bench.expect_event("ended")


@case(covers=["SCL-TRN-011"])
def all_bits_of_sequences_are_kept(bench: RoleBench) -> None:
    """Heartbeats whose sequences need all of their 64 bits are echoed as they were sent."""
    session = bench.welcomed()
    wanted = [2**64 - 1, 2**53 + 1]
    for sequence in wanted:
        session.send("Heartbeat", sequence=sequence)
    session.wait_until(lambda: len(session.echoes) >= len(wanted), "two HeartbeatEchos")
    came = [each.sequence for each in session.echoes]
    check(came == wanted, f"echoes of the sequences {wanted}", came)


@case(covers=["SCL-SES-018"])
def a_request_to_drain_is_a_shutdown(bench: RoleBench) -> None:
    """Only workers drain: a client that is asked to answers and leaves, as for shutdown."""
    session = bench.welcomed()
    session.send("DisconnectRequest", reason="draining", message="the cluster stops")
    session.expect("DisconnectResponse")
    bench.expect_error(bench.submit_one())
