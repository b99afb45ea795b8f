"""Connections, frames and headers."""

from __future__ import annotations

from typing import Any, Dict

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.other_schemas import UNHEARD_OF, tomorrow, yesterday
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import ECHO


@case(covers=["SCL-TRN-001"])
def zmtp_3_0_and_3_1_are_supported(bench: RoleBench) -> None:
    """A DEALER is served whether it greets with ZMTP 3.0 or 3.1."""
    for minor in (0, 1):
        client = bench.raw_client(minor=minor)
        client.greet()
        client.fence()


@case(covers=["SCL-TRN-002"])
def other_mechanisms_close_the_connection(bench: RoleBench) -> None:
    """A connection with a security mechanism other than NULL is closed."""
    for mechanism in (b"PLAIN", b"CURVE", b"NULLS"):
        bench.raw(mechanism=mechanism).expect_closed(f"the connection with the mechanism {mechanism!r} to be closed")


@case(covers=["SCL-TRN-002"])
def incompatible_sockets_close_the_connection(bench: RoleBench) -> None:
    """A connection whose READY names a socket type that is incompatible with ROUTER is closed."""
    for kind in (b"PUB", b"SUB", b"PULL", b"DEALERS", b""):
        bench.raw(kind=kind).expect_closed(f"the connection with the socket type {kind!r} to be closed")


@case(covers=["SCL-TRN-008"])
def ping_is_answered(bench: RoleBench) -> None:
    """A ZMTP PING is answered with a PONG of the same context."""
    connection = bench.raw()
    connection.command(b"PING", b"\x00\x64" + b"context")
    connection.wait_until(lambda: b"\x04PONGcontext" in connection.commands, "a PONG with the PING's context")


@case(covers=["SCL-TRN-003"])
def messages_have_one_or_two_frames(bench: RoleBench) -> None:
    """Each message of a scheduler is a header, followed by a payload frame if there is a payload."""
    client, worker = bench.client(), bench.worker()
    value = client.create(b"value")
    client.submit(payload=b"[1]", dependencyCounts=[1], dependencies=[value])
    client.send("ExplanationRequest", requestId=5, taskId=1)
    check(not client.expect("Explanation", requestId=5).payload, "no payload frame", "one")
    task = worker.expect_task(b"[1]")
    check(worker.fetch(value) == b"value", "the object's content", "other bytes")
    worker.send("TaskLog", id=task.id, stream=1, text="on the way")
    check(not client.expect("TaskLog", id=1).payload, "no payload frame", "one")
    client.cancel(1)
    worker.expect_cancel(task.id)
    worker.confirm(task.id, 1)
    client.expect_confirmation(1, "running")
    worker.succeed(task, payload=b"1")
    result = client.expect_outcome(1, "success").payload
    check(result == b"1", "the result b'1' as the payload", result)


@case(covers=["SCL-TRN-004"])
def empty_payload_frame_equals_no_frame(bench: RoleBench) -> None:
    """A batch of empty payloads is accepted with an empty payload frame and without one."""
    client, worker = bench.client(), bench.worker(queueSize=5)
    fields: Dict[str, Any] = {"payloadSizes": [0], "functionName": ECHO, "codec": "json"}
    client.send("Task", None, ids=[1], **fields)
    client.send("Task", b"", ids=[2], **fields)
    for _ in range(2):
        worker.succeed(worker.expect_task(b""), payload=b"")
    for id_ in (1, 2):
        client.expect_outcome(id_, "success")


@case(covers=["SCL-TRN-005"])
def segmented_headers_are_read(bench: RoleBench) -> None:
    """Headers with many segments are read, with single and double far pointers."""
    worker, client = bench.worker(), bench.unregistered()
    client.send("Hello", segmented=True, major=1, role="client", name="many segments", features=["a", "b"])
    client.welcomed()
    capabilities = [{"name": "cpu", "amount": 0.0}]
    worker.hello(slots=1, queueSize=1, capabilities=capabilities)
    worker.welcomed()
    options = {"priority": 7, "capabilities": capabilities}
    fields: Dict[str, Any] = {"ids": [1], "payloadSizes": [3], "functionName": ECHO, "options": options}
    client.send("Task", b"[1]", segmented=True, **fields)
    task = worker.expect_task(b"[1]")
    check(task.message.options.priority == 7, "the priority 7", task.message)
    worker.send("TaskResult", b"1", segmented=True, ids=[task.id], payloadSizes=[1], codec="json")
    client.expect_outcome(1, "success")


@case(covers=["SCL-TRN-006"])
def structs_may_be_longer_and_shorter(bench: RoleBench) -> None:
    """Unknown fields are ignored, and fields that an older peer does not send have their defaults."""
    worker, client = bench.worker(queueSize=5), bench.unregistered()
    client.send_frames(tomorrow().encode("Hello", {"major": 1, "addedText": "new", "addedNumber": 7}))
    client.welcomed()
    options = {"retries": 2, "priority": -3}
    fields = {"ids": [1], "payloadSizes": [3], "codec": "json", "functionName": ECHO, "options": options}
    added = {"addedText": "new", "addedNumber": 7}
    client.send_frames(tomorrow().encode("Task", {**fields, **added, "options": {**options, **added}}), b"[1]")
    client.send_frames(yesterday().encode("Task", {**fields, "ids": [2]}), b"[2]")
    for payload in (b"[1]", b"[2]"):
        task = worker.expect_task(payload)
        check(task.message.options.priority == -3, "the priority -3", task.message)
        check(
            not task.message.options.atMostOnce,
            "atMostOnce = false, the default, in a Task that was sent without it",
            task.message,
        )


@case(covers=["SCL-TRN-007"])
def peers_with_the_same_identity_are_served(bench: RoleBench) -> None:
    """Two connections with the same ZeroMQ identity are separate peers, and each gets only its own results."""
    first, second = bench.unregistered(identity=b"twin"), bench.unregistered(identity=b"twin")
    first.greet()
    second.greet()
    check(first.number != second.number, "two sessions", f"number {first.number} twice")
    worker = bench.worker(queueSize=10)
    first.submit(payload=b"[1]")
    second.submit(payload=b"[2]")
    for payload in (b"[2]", b"[1]"):
        worker.succeed(worker.expect_task(payload), payload=payload)
    for client, payload in ((first, b"[1]"), (second, b"[2]")):
        result = client.expect_outcome(1).payload
        check(result == payload, f"the client's result, {payload!r}", result)


@case(covers=["SCL-VER-001"])
def unknown_messages_are_ignored(bench: RoleBench) -> None:
    """A Message with an unknown union member is ignored, and the session continues."""
    for peer in (bench.client(), bench.worker()):
        peer.send_frames(tomorrow().encode(UNHEARD_OF, {"text": "what is this"}))
        peer.send_frames(tomorrow().encode(UNHEARD_OF, {}), b"with a payload")
        peer.expect_nothing_more()
