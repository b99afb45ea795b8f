"""Invalid input: a worker must survive the mistakes of its scheduler."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, Tuple

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.faulty_frames import faulty_headers, mutated
from scaler_conformance.codec.schema_codec import SCHEMA
from scaler_conformance.playing.worker_session import PREFIX, WorkerSession

FRAMES = 10_000
AT_A_TIME = 50
"""A worker may end its session after any of these frames, and then does not see the ones that follow."""
FAREWELLS = ("DisconnectRequest", "Refusal", "Welcome")
"""Types that a mutated frame must not have, since a worker may end its session for them."""


def samples() -> List[bytes]:
    """Headers of messages that a scheduler sends, each in a single segment and in several."""
    task = {
        "ids": [90_001, 90_002],
        "payloadSizes": [0, 0],
        "functionName": PREFIX + "sum",
        "codec": "json",
        "options": {"priority": 2, "capabilities": [{"name": "gpu", "amount": 1.0}]},
        "dependencyCounts": [0, 0],
    }
    created = {"action": "create", "ids": [77 << 40 | 1], "sizes": [0], "storages": [0], "kinds": [0], "names": ["a"]}
    messages: List[Tuple[str, Dict[str, Any]]] = [
        ("Task", task),
        ("TaskCancel", {"ids": [90_001]}),
        ("ObjectInstruction", created),
        ("ObjectResponse", {"id": 77 << 40 | 1, "size": 10}),
        ("ObjectRequest", {"id": 5, "length": 9}),
        ("BalanceRequest", {"requestId": 4, "count": 0}),
        ("Heartbeat", {"sequence": 3}),
        ("HeartbeatEcho", {"sequence": 3}),
    ]
    return [SCHEMA.encode(type_, fields, segmented) for type_, fields in messages for segmented in (False, True)]


def serves(bench: RoleBench, session: WorkerSession) -> WorkerSession:
    """The session in which the worker serves now, after it has run a task there."""
    worker = bench.still_serving(session)
    worker.expect_value(worker.submit("echo", "still here"), "still here")
    return worker


@case(covers=["SCL-SEC-010"])
def survives_faulty_headers(bench: RoleBench) -> None:
    """Invalid headers, each with another fault, are ignored or end the session, but not the worker."""
    worker = serves(bench, bench.welcomed())
    for header in faulty_headers(SCHEMA.encode("Heartbeat", {"sequence": 1})):
        worker.send_frames(header)
        worker = serves(bench, worker)


@case(covers=["SCL-SEC-010"])
def survives_too_many_frames(bench: RoleBench) -> None:
    """Messages of more than two frames are ignored or end the session, but not the worker."""
    worker = bench.welcomed()
    header = SCHEMA.encode("Heartbeat", {"sequence": 1})
    for frames in ([b"", header], [header, b"", b""], [header] * 7, [b""] * 3):
        worker.send_frames(*frames)
        worker = serves(bench, worker)


@case(covers=["SCL-SEC-010"])
def survives_corrupted_frames(bench: RoleBench) -> None:
    """The worker keeps serving while it gets 10 000 corrupted messages, if need be in a new session."""
    worker = bench.welcomed()
    messages = mutated(samples(), bench.random)
    left = bench.times(FRAMES)
    while left > 0:
        for frames in itertools.islice(messages, min(left, AT_A_TIME)):
            if SCHEMA.type_of(frames[0]) not in FAREWELLS:
                worker.send_frames(*frames)
        left -= AT_A_TIME
        worker = serves(bench, worker)
        worker.forget_waiting()


@case(covers=["SCL-SEC-010"])
def survives_messages_of_other_roles(bench: RoleBench) -> None:
    """Well-formed messages that a scheduler does not send are ignored or end the session, but not the worker."""
    worker = bench.welcomed()
    for type_ in ("TaskEcho", "TaskResult", "GraphTask", "ClientShutdown", "SchedulerStatus", "Explanation", "Hello"):
        worker.send(type_)
        worker = serves(bench, worker)
    worker.send("TaskCancelConfirm", ids=[1], outcomes=[0])
    worker.send("BalanceResponse", requestId=9, ids=[1])
    worker.send("ObjectResponse", b"1234", id=99, status="ok", size=4)
    worker.send("HeartbeatEcho", sequence=2**63)
    worker.send("ObjectInstruction", action="clear")
    serves(bench, worker)


@case(covers=["SCL-SEC-010"])
def survives_empty_messages(bench: RoleBench) -> None:
    """Messages without entries are ignored."""
    worker = bench.welcomed()
    worker.send("Task")
    worker.send("TaskCancel")
    worker.send("ObjectInstruction", action="create")
    worker.send("ObjectInstruction", action="delete")
    worker.expect_value(worker.submit("echo", "still here"), "still here")
    worker.expect_nothing_more()
