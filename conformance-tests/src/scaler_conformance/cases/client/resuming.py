"""Sessions that go on over a second connection, since nothing is heard on the first one."""

from __future__ import annotations

from typing import Any

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.client_session import ClientSession
from scaler_conformance.playing.conversation import check

RESUME = "resume"
TOKEN = bytes(range(32))
INTERVAL_MILLISECONDS = 100  # three of these make a silent connection suspect


def resumable(bench: RoleBench, interval_milliseconds: int) -> ClientSession:
    """A client whose session can be resumed."""
    session = bench.greeted()
    check(RESUME in session.hello.features, f"the feature {RESUME} in the Hello", session.hello)
    session.answers_heartbeats = interval_milliseconds > INTERVAL_MILLISECONDS
    bench.welcome(session, heartbeatIntervalMilliseconds=interval_milliseconds, features=[RESUME], resumeToken=TOKEN)
    return session


def silenced(bench: RoleBench) -> ClientSession:
    """The second connection, after nothing has been sent on the first for long."""
    expected = "Hello on a second connection after three heartbeats without an answer"
    second: ClientSession = bench.any_session.wait_until(bench.next_hello, expected)
    return second


@case(covers=["SCL-SES-029"], features=["resume"])
def heartbeats_count_what_was_received(bench: RoleBench) -> None:
    """The HeartbeatEcho of a session that can be resumed says how many messages have been received in it."""
    session = resumable(bench, bench.heartbeat_milliseconds)
    welcomed = session.sent_count
    bench.expect_event("started")
    task = bench.submit_one()
    session.succeed(session.expect_task(task))
    bench.expect_result(task)
    least = session.sent_count - welcomed + 1
    session.fence()
    most, count = session.sent_count - welcomed, session.echoes[-1].received
    check(least <= count <= most, f"from {least} to {most} in `received`", session.echoes[-1])


@case(covers=["SCL-SES-030", "SCL-SES-028"], features=["resume"])
def silence_is_answered_by_a_hello_with_the_token(bench: RoleBench) -> None:
    """After three heartbeats without an answer, a second connection begins with the session's Hello, and its token."""
    session = resumable(bench, INTERVAL_MILLISECONDS)
    welcomed = session.sent_count
    bench.expect_event("started")
    task = bench.submit_one()
    session.succeed(session.expect_task(task))
    bench.expect_result(task)
    received = session.sent_count - welcomed
    second = silenced(bench)
    hello = second.hello = second.expect("Hello")
    named = (hello.previousSession, hello.resumeToken, hello.resumeAttempt)
    check(named == (session.number, TOKEN, 1), "session, token, and attempt 1 in the Hello", hello)
    check(hello.received == received, f"received={received}", hello)
    bench.last_session = second
    bench.welcome(second)  # to another session
    later = bench.submit_one()
    second.succeed(second.expect_task(later))
    bench.expect_result(later)


@case(covers=["SCL-SES-032"], features=["resume"])
def what_was_not_received_is_sent_again(bench: RoleBench) -> None:
    """When its session is resumed, a client sends again what the scheduler has not received."""
    session = resumable(bench, INTERVAL_MILLISECONDS)
    bench.expect_event("started")
    task = bench.submit_one()
    sent = session.expect_task(task)
    second = silenced(bench)
    second.hello = second.expect("Hello")
    before = sent.message.position - 2  # messages behind the Hello
    bench.last_session = second
    resumed: Any = {"isResumed": True, "received": before, "resumeToken": TOKEN, "features": [RESUME]}
    bench.welcome(second, session=session.number, **resumed)
    again = second.expect_task(task)
    check(again.id == sent.id, f"task {sent.id} of the session", again.id)
    check(again.message.position == 2, "the Task as the first message behind the Hello", again.message)
    second.succeed(again)
    bench.expect_result(task)
    later = bench.submit_one()
    second.succeed(second.expect_task(later))
    bench.expect_result(later)
