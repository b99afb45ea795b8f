"""How sessions begin, continue and end."""

from __future__ import annotations

from typing import Any

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.other_schemas import tomorrow
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import PlayedClient, PlayedPeer, PlayedWorker

NEWEST = 65535
RESUME = "resume"
TOKEN_BYTES = 32


@case(covers=["SCL-SES-002"], smoke=True)
def hello_is_welcomed(bench: RoleBench) -> None:
    """A valid Hello of a client or worker is answered with one Welcome."""
    for peer in (bench.client(), bench.worker()):
        peer.expect_nothing_more()


@case(covers=["SCL-SES-002"])
def refusal_says_versions(bench: RoleBench) -> None:
    """A Refusal contains the major and minor versions that the scheduler supports."""
    welcome = bench.client().welcome
    unregistered = bench.unregistered()
    unregistered.hello(role="monitor")
    refusal = unregistered.expect("Refusal")
    check(refusal.major == welcome.major, f"major {welcome.major} in the Refusal", refusal)
    check(
        refusal.minorMin <= welcome.minor <= refusal.minorMax,
        f"a range of minor versions that includes {welcome.minor}",
        refusal,
    )
    check(not unregistered.waiting(), "no message but one Refusal", unregistered.waiting())


@case(covers=["SCL-SES-003"])
def other_major_is_refused(bench: RoleBench) -> None:
    """A Hello of another major, older or newer, is refused with versionMismatch, and the connection stays open."""
    unregistered = bench.unregistered()
    for major in (0, 2, 65535):
        unregistered.hello(major=major)
        unregistered.expect_refusal("versionMismatch", f"a Hello with major {major}")
    unregistered.greet()


@case(covers=["SCL-SES-003"])
def no_common_minor_is_refused(bench: RoleBench) -> None:
    """A Hello without a minor version that the scheduler supports is refused with versionMismatch."""
    unregistered = bench.unregistered()
    unregistered.hello(minorMin=NEWEST, minorMax=NEWEST)
    unregistered.expect_refusal("versionMismatch", f"a Hello with minor {NEWEST} only")


@case(covers=["SCL-SES-004"])
def highest_common_minor_is_chosen(bench: RoleBench) -> None:
    """The Welcome names the highest minor version that both sides support."""
    unregistered = bench.unregistered()
    unregistered.hello(major=9)
    newest = unregistered.expect("Refusal").minorMax
    newer = bench.unregistered().greet(minorMax=NEWEST)
    check(newer.minor == newest, f"minor {newest} for a peer that supports 0 to {NEWEST}", newer)
    older = bench.unregistered().greet(minorMax=0)
    check(older.minor == 0, "minor 0 for a peer that supports only 0", older)


@case(covers=["SCL-SES-005"])
def other_roles_are_refused(bench: RoleBench) -> None:
    """A Hello with the role scheduler, monitor or an unknown role is refused with roleNotServed."""
    unregistered = bench.unregistered()
    for role in ("scheduler", "monitor"):
        unregistered.hello(role=role)
        unregistered.expect_refusal("roleNotServed", f"a Hello with role {role}")
    unregistered.send_frames(tomorrow().encode("Hello", {"major": 1, "role": "unheardOf"}))
    unregistered.expect_refusal("roleNotServed", "a Hello with an unknown role")


@case(covers=["SCL-SES-006"])
def worker_without_slots_is_refused(bench: RoleBench) -> None:
    """A worker's Hello without slots is refused with protocolViolation."""
    unregistered = bench.unregistered(make=PlayedWorker)
    unregistered.hello(slots=0)
    unregistered.expect_refusal("protocolViolation", "a worker's Hello with slots = 0")


@case(covers=["SCL-SES-006"])
def invalid_amounts_are_refused(bench: RoleBench) -> None:
    """A capability whose amount is negative, infinite or not a number makes a Hello malformed."""
    unregistered = bench.unregistered(make=PlayedWorker)
    for amount in (-1.0, float("inf"), float("nan")):
        unregistered.hello(capabilities=[{"name": "gpu", "amount": amount}])
        unregistered.expect_refusal("malformed", f"a capability with the amount {amount}")


@case(covers=["SCL-SES-022"], features=["signals"])
def hello_is_refused_while_shutting_down(bench: RoleBench) -> None:
    """A scheduler that is shutting down, here because a worker has not left yet, refuses every Hello."""
    worker, unregistered = bench.worker(), bench.unregistered()
    unregistered.send("DisconnectRequest", reason="leaving")
    unregistered.expect("DisconnectResponse")
    assert bench.running is not None
    bench.is_meant_to_end = True
    bench.running.terminate()
    worker.expect("DisconnectRequest", reason="shutdown")
    unregistered.hello()
    unregistered.expect_refusal("shuttingDown", "a Hello while the scheduler shuts down")
    worker.send("DisconnectResponse")
    bench.expect_end()


@case(covers=["SCL-SES-007"])
def session_numbers_are_unique(bench: RoleBench) -> None:
    """Each session has a unique number above 0 and below 2^24, also after other sessions have ended."""
    numbers = []
    for _ in range(10):
        peer = bench.client()
        numbers.append(peer.number)
        peer.leave()
    numbers += [bench.client().number for _ in range(5)]
    check(all(0 < each < 1 << 24 for each in numbers), "session numbers above 0 and below 2^24", numbers)
    check(len(set(numbers)) == len(numbers), "a unique number for each session", numbers)


@case(covers=["SCL-SES-010"])
def hello_begins_a_new_session(bench: RoleBench) -> None:
    """A Hello within a session begins a new one with another number, and the tasks of the old one are cancelled."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    task = worker.expect_task()
    before = client.number
    after = client.greet().session
    check(after != before, f"a session number other than {before}", after)
    worker.expect_cancel(task.id)
    worker.confirm(task.id, 0)
    client.expect_nothing_more()


@case(covers=["SCL-SES-011"])
def requests_without_a_session_are_refused(bench: RoleBench) -> None:
    """Requests of a peer without a session are refused with notGreeted."""
    unregistered = bench.unregistered()
    for type_, fields in (
        ("Heartbeat", {"sequence": 1}),
        ("Task", {"ids": [1], "payloadSizes": [0], "functionName": "f"}),
        ("TaskResult", {"ids": [1], "payloadSizes": [0]}),
        ("ObjectRequest", {"id": 1, "length": 1}),
        ("TaskCancel", {"ids": [1]}),
        ("ClientShutdown", {}),
    ):
        unregistered.send(type_, **fields)
        unregistered.expect_refusal("notGreeted", f"{type_} without a session")


@case(covers=["SCL-SES-011"])
def late_answers_without_a_session_are_ignored(bench: RoleBench) -> None:
    """Answers that a peer may have sent before it knew that its session had ended are not refused."""
    unregistered = bench.unregistered()
    unregistered.send("HeartbeatEcho", sequence=1)
    unregistered.send("DisconnectResponse")
    unregistered.send("BalanceResponse", requestId=1)
    unregistered.send("TaskCancelConfirm", ids=[1], outcomes=[0])
    unregistered.send("ObjectResponse", id=1)
    unregistered.send("DisconnectRequest")
    unregistered.expect("DisconnectResponse")
    check(not unregistered.waiting("Refusal"), "no Refusal for an answer", unregistered.waiting())


@case(covers=["SCL-SES-012"])
def disconnect_request_is_answered(bench: RoleBench) -> None:
    """A DisconnectRequest is answered with and without a session, and ends the session."""
    for peer in (bench.client(), bench.worker(), bench.unregistered()):
        peer.beats = False
        peer.send("DisconnectRequest", reason="leaving")
        peer.expect("DisconnectResponse")
        peer.expect_no_session()


@case(covers=["SCL-SES-014"], smoke=True)
def heartbeat_is_echoed(bench: RoleBench) -> None:
    """Each Heartbeat is answered with a HeartbeatEcho of its sequence."""
    worker = bench.worker(slots=3)
    for sequence in (5, (1 << 64) - 1, 0):
        worker.send("Heartbeat", sequence=sequence)
        worker.expect_echo(sequence)


@case(covers=["SCL-SES-015"])
def silent_peer_is_refused(bench: RoleBench) -> None:
    """A peer that sends nothing for Welcome.timeoutMilliseconds is refused with notGreeted; others are not."""
    bench.variant("short-timeout")
    silent, client = bench.worker(), bench.client()
    limit = silent.welcome.timeoutMilliseconds / 1000
    bench.need(limit <= 0.7 * bench.settings.deadline_seconds, "a short session timeout")
    client.submit()
    task = silent.expect_task()
    silent.beats = silent.answers_heartbeats = False
    lively = bench.worker()
    silent.expect_refusal("notGreeted", f"silence of {limit:g} s")
    check(lively.expect_task().payload == task.payload, "the silent worker's task at the other worker", lively.given)
    bench.quiet(client, lively)


@case(covers=["SCL-SES-015"])
def any_message_keeps_the_session_alive(bench: RoleBench) -> None:
    """A peer that sends other messages but no Heartbeats keeps its session beyond the timeout."""
    bench.variant("short-timeout")
    lively, silent = bench.client(), bench.worker()
    limit = silent.welcome.timeoutMilliseconds / 1000
    bench.need(limit <= 0.7 * bench.settings.deadline_seconds, "a short session timeout")
    silent.beats = silent.answers_heartbeats = lively.beats = lively.answers_heartbeats = False

    def silent_was_refused() -> bool:
        lively.cancel(1)
        return bool(silent.waiting("Refusal"))

    silent.wait_until(silent_was_refused, "the silent peer to be refused")
    check(not lively.waiting("Refusal"), "no Refusal for a peer that sends TaskCancels", lively.waiting("Refusal"))
    lively.fence()


@case(covers=["SCL-SES-017"])
def end_of_a_connection_ends_the_session(bench: RoleBench) -> None:
    """A worker whose connection ends is lost at once, and its task is sent to another worker."""
    client, worker = bench.client(), bench.worker()
    client.submit()
    worker.expect_task()
    other = bench.worker()
    worker.cut()
    other.succeed(other.expect_task())
    client.expect_outcome(1, "success")


@case(covers=["SCL-SES-024"])
def messages_of_other_roles_are_refused(bench: RoleBench) -> None:
    """A message that the sender's role does not send is refused with protocolViolation and ends the session."""
    for type_ in (
        "TaskResult",
        "TaskCancelConfirm",
        "BalanceResponse",
        "Welcome",
        "TaskEcho",
        "ClientShutdownResponse",
    ):
        client = bench.client()
        client.send(type_)
        client.expect_refusal("protocolViolation", f"{type_} from a client")
        client.expect_no_session()
    for type_ in ("Task", "TaskCancel", "GraphTask", "ClientShutdown", "ExplanationRequest", "Refusal"):
        worker = bench.worker()
        worker.send(type_)
        worker.expect_refusal("protocolViolation", f"{type_} from a worker")
        worker.expect_no_session()


# Sessions that continue over another connection -----------------------------------------------------------------------


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
