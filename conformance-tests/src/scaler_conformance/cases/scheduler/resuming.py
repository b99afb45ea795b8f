"""Sessions that go on over another connection, and Hellos that may not resume any."""

from __future__ import annotations

from typing import Any

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient, PlayedPeer, PlayedWorker

RESUME = "resume"
TOKEN_BYTES = 32


def resumable_client(bench: RoleBench, **more: Any) -> PlayedClient:
    """A client whose session can be resumed."""
    client = bench.client(features=[RESUME], **more)
    token = client.welcome.resumeToken
    check(len(token) == TOKEN_BYTES, f"a resumeToken of {TOKEN_BYTES} bytes", client.welcome)
    check(RESUME in client.welcome.features, f"the feature {RESUME} in the Welcome", client.welcome)
    return client


def token_hello(of: PlayedPeer, received: int, attempt: int = 1, token: bytes = b"") -> Any:
    """The fields with which a Hello resumes a session."""
    usual = {"features": [RESUME], "previousSession": of.number, "resumeToken": token or of.welcome.resumeToken}
    return {**usual, "received": received, "resumeAttempt": attempt}


@case(covers=["SCL-SES-027"], features=["resume"])
def token_is_for_peers_that_list_the_feature(bench: RoleBench) -> None:
    """A peer is told a token if its Hello lists the feature, and no other peer is."""
    for peer in (bench.client(), bench.worker()):
        check(not peer.welcome.resumeToken, "no resumeToken for a peer without the feature", peer.welcome)
    first, second = resumable_client(bench), resumable_client(bench)
    check(first.welcome.resumeToken != second.welcome.resumeToken, "another token for each session", second.welcome)


@case(covers=["SCL-SES-029"], features=["resume"])
def echoes_count_what_was_received(bench: RoleBench) -> None:
    """The HeartbeatEcho of a session that can be resumed says how many messages have been received in it."""
    client = resumable_client(bench)
    hello_count = client.sent_count
    client.submit()
    client.send("InfoRequest", requestId=5)
    client.expect("Info")
    least = client.sent_count - hello_count + 1
    client.fence()
    most, count = client.sent_count - hello_count, client.echoes[-1].received
    check(least <= count <= most, f"from {least} to {most} in `received`", client.echoes[-1])


@case(covers=["SCL-SES-031"], features=["resume"])
def session_goes_on_over_another_connection(bench: RoleBench) -> None:
    """A client that has received nothing is sent everything again over another connection, and its tasks run once."""
    client, worker = resumable_client(bench), bench.worker()
    hello_count = client.sent_count
    (task,) = client.submit()
    worker.succeed(worker.expect_task())
    client.expect_outcome(task, "success")
    client.beats = False
    sent = client.sent_count - hello_count
    again: PlayedClient = bench.unregistered()
    again.hello(**token_hello(client, received=0))
    welcome = again.welcomed()
    check(welcome.isResumed and welcome.session == client.number, "the same session, resumed", welcome)
    check(welcome.received == sent, f"received={sent}", welcome)
    again.expect_outcome(task, "success")
    again.next_id = client.next_id
    (later,) = again.submit()
    worker.succeed(worker.expect_task())
    again.expect_outcome(later, "success")
    worker.expect_nothing_more()


@case(covers=["SCL-SES-033"], features=["resume"])
def outdated_attempt_resumes_nothing(bench: RoleBench) -> None:
    """A Hello with a resumeAttempt that is not a later one is not answered, and the session continues."""
    client = resumable_client(bench)
    client.beats = False
    newer: PlayedClient = bench.unregistered()
    newer.hello(**token_hello(client, received=0, attempt=7))
    newer.welcomed()
    newer.send("InfoRequest", requestId=5)
    newer.expect("Info")
    for attempt in (7, 3):
        late: PlayedClient = bench.unregistered()
        late.hello(**token_hello(client, received=0, attempt=attempt))
        newer.fence()
        newer.fence()
        check(not late.waiting(), "no answer to an outdated Hello", late.waiting())
        late.cut()
    newer.expect_nothing_more()


@case(covers=["SCL-SEC-033"], features=["resume"])
def wrong_token_leaves_the_session_alone(bench: RoleBench) -> None:
    """A Hello with a wrong token begins another session; the session that it names continues."""
    client, worker = resumable_client(bench), bench.worker()
    (task,) = client.submit()
    given = worker.expect_task()
    token = client.welcome.resumeToken
    for wrong in (bytes(TOKEN_BYTES), token[:-1] + bytes([token[-1] ^ 1]), token[:-1]):
        thief: PlayedWorker = bench.unregistered(make=PlayedWorker)
        thief.hello(**token_hello(client, received=0, token=wrong))
        welcome = thief.welcomed()
        check(not welcome.isResumed and welcome.session != client.number, "another session", welcome)
        thief.leave()
    worker.succeed(given)
    client.expect_outcome(task, "success")
    client.expect_nothing_more()
