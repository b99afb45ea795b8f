"""Sessions that go on over a second connection, since nothing is heard on the first one."""

from __future__ import annotations

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.worker_session import WorkerSession

RESUME = "resume"
TOKEN = bytes(range(32))
INTERVAL_MILLISECONDS = 100  # three of these make a silent connection suspect


def resumable(bench: RoleBench, interval_milliseconds: int) -> WorkerSession:
    """A worker whose session can be resumed."""
    session = bench.greeted()
    check(RESUME in session.hello.features, f"the feature {RESUME} in the Hello", session.hello)
    bench.welcome(session, heartbeatIntervalMilliseconds=interval_milliseconds, features=[RESUME], resumeToken=TOKEN)
    return session


def silenced(bench: RoleBench, session: WorkerSession) -> WorkerSession:
    """The second connection, after nothing has been sent on the first for long."""
    session.answers_heartbeats = False
    session.is_open = False
    expected = "Hello on a second connection after three heartbeats without an answer"
    second: WorkerSession = session.wait_until(lambda: bench._next_hello(None), expected)
    second.instances = session.instances
    return second


@case(covers=["SCL-SES-029"], features=["resume"])
def heartbeats_count_what_was_received(bench: RoleBench) -> None:
    """The HeartbeatEcho of a session that can be resumed says how many messages have been received in it."""
    session = resumable(bench, bench.heartbeat_milliseconds)
    welcomed = session.sent_count
    session.expect_value(session.submit("echo", "one"), "one")
    least = session.sent_count - welcomed + 1
    session.fence()
    most, count = session.sent_count - welcomed, session.echoes[-1].received
    check(least <= count <= most, f"from {least} to {most} in `received`", session.echoes[-1])


@case(covers=["SCL-SES-030", "SCL-SES-028"], features=["resume"])
def silence_is_answered_by_a_hello_with_the_token(bench: RoleBench) -> None:
    """After three heartbeats without an answer, a second connection begins with the session's Hello, and its token."""
    session = resumable(bench, INTERVAL_MILLISECONDS)
    session.answers_heartbeats = False
    welcomed = session.sent_count
    session.expect_value(session.submit("echo", "one"), "one")
    received = session.sent_count - welcomed
    second = silenced(bench, session)
    hello = second.hello = second.expect("Hello")
    named = (hello.previousSession, hello.resumeToken, hello.resumeAttempt)
    check(named == (session.number, TOKEN, 1), "session, token, and attempt 1 in the Hello", hello)
    check(hello.received == received, f"received={received}", hello)
    check(hello.slots == session.hello.slots, "the slots of the session's Hello", hello)
    bench.last_session = second
    bench.welcome(second)  # to another session
    second.expect_value(second.submit("echo", "two"), "two")


@case(covers=["SCL-SES-032"], features=["resume"])
def what_was_not_received_is_sent_again(bench: RoleBench) -> None:
    """When its session is resumed, a worker sends in order what the scheduler has not received, and works on."""
    session = resumable(bench, INTERVAL_MILLISECONDS)
    session.answers_heartbeats = False
    task = session.submit("echo", "one")
    outcome = session.expect_outcome(task)
    second = silenced(bench, session)
    second.hello = second.expect("Hello")
    bench.last_session = second
    resumed = {"isResumed": True, "received": 0, "resumeToken": TOKEN, "features": [RESUME]}
    bench.welcome(second, session=session.number, **resumed)
    again = second.expect_outcome(task)
    least = outcome.message.position
    check(again.message.position <= least, "the TaskResult behind what was sent before it, and nothing else", again)
    second.expect_value(second.submit("echo", "two"), "two")
    second.expect_nothing_more()
