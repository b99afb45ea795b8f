"""Invalid input, which no scheduler should send.

Rule: a client may ignore it, or end the session and reconnect. The client itself does not end, and each task has one
outcome.
"""

from __future__ import annotations

import random
from typing import Any, Dict, List, Sequence, Tuple

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import SCHEMA
from scaler_conformance.playing.client_session import ClientSession
from scaler_conformance.playing.conversation import check

ROUND = 100
ENDING = ("Welcome", "Refusal", "DisconnectRequest", "DisconnectResponse", "ClientShutdownResponse")
"""Types that a mutated frame must not have, since the client may rightly act on them."""


def still_serving(bench: RoleBench, session: ClientSession) -> ClientSession:
    """The session if it continues, or else the next one."""
    sequence = bench.random.getrandbits(48)
    session.send("Heartbeat", sequence=sequence)
    expected = "the client to answer a Heartbeat, or to send Hello again"
    found = session.wait_until(
        lambda: any(each.sequence == sequence for each in session.echoes) or bench.next_hello(session), expected
    )
    if not isinstance(found, ClientSession):
        return session
    found.hello = found.expect("Hello")
    bench.last_session = found
    bench.welcome(found, session=session.number + 1)
    return found


def serves_a_task(bench: RoleBench, session: ClientSession, *earlier: int) -> None:
    """The tasks that were submitted before, and a new one, each have one outcome."""
    for task in (*earlier, bench.submit_one()):
        expected = f"task {task} or its outcome"
        session.wait_until(lambda task=task: session.find_task(task) or bench.outcome(task), expected)  # type: ignore[misc]
        sent = session.find_task(task)
        if sent is not None and bench.outcome(task) is None:
            session.succeed(sent)
            bench.expect_result(task)


@case(covers=["SCL-SEC-010"])
def survives_invalid_headers(bench: RoleBench) -> None:
    """A client survives empty, short, random and truncated headers, and pointers that lead out of the message."""
    session = bench.welcomed()
    good = SCHEMA.encode("TaskEcho", {"acceptedUpTo": 1})
    bad: List[bytes] = [
        b"",
        b"\0",
        b"no message at all",
        bytes(8),
        b"\xff" * 64,
        good[:-8],
        good[:12],
        good + bytes(4),
        good[:8] + b"\xfe\xff\xff\x7f" + good[12:],
        bench.random.getrandbits(800).to_bytes(100, "little"),
    ]
    for frame in bad:
        task = bench.submit_one()
        session.expect_task(task)
        session.send_frames(frame)
        session = still_serving(bench, session)
        serves_a_task(bench, session, task)


@case(covers=["SCL-SEC-010"])
def survives_inconsistent_columns(bench: RoleBench) -> None:
    """A client survives columns that are inconsistent with each other or the payload, and too many frames."""
    session = bench.welcomed()
    bad: List[Any] = [
        {"ids": [900_001, 900_002], "payloadSizes": [1]},
        {"ids": [900_001], "payloadSizes": [1, 2]},
        {"ids": [900_001], "payloadSizes": [1 << 31]},
        {"ids": [900_001], "payloadSizes": [0], "statuses": [200]},
        {"ids": [900_001, 900_002], "payloadSizes": [0, 0], "statuses": [1]},
        {"ids": [900_001, 900_002], "payloadSizes": [0, 0], "objects": [0]},
        {"ids": [900_001], "payloadSizes": [0], "durationsMicroseconds": [1]},
    ]
    for fields in bad:
        session.send("TaskResult", b"x", **fields)
        session = still_serving(bench, session)
    session.send("TaskCancelConfirm", ids=[900_001, 900_002], outcomes=[0])
    session.send("TaskCancelConfirm", ids=[900_001], outcomes=[99])
    session = still_serving(bench, session)
    session.send_frames(SCHEMA.encode("TaskEcho", {}), b"a", b"b", b"c")
    session.send("ObjectResponse", b"unasked", id=5, offset=1 << 63, status="ok", size=3)
    session.send("ObjectRequest", id=0, offset=(1 << 64) - 1, length=(1 << 32) - 1)
    session = still_serving(bench, session)
    serves_a_task(bench, session)


@case(covers=["SCL-SEC-010"])
def survives_corrupted_frames(bench: RoleBench) -> None:
    """The client keeps serving its user while it gets 10 000 corrupted messages."""
    session = bench.welcomed()
    originals = samples(bench)
    left = bench.times(10_000)
    while left > 0:
        task = bench.submit_one()
        session.expect_task(task)
        for _ in range(min(left, ROUND)):
            header, *payload = mutated(bench.random, bench.random.choice(originals))
            if SCHEMA.type_of(header) not in ENDING:
                session.send_frames(header, *payload)
        left -= ROUND
        session = still_serving(bench, session)
        serves_a_task(bench, session, task)
        check(bench.how_it_ended() is None, "the client to keep running", bench.how_it_ended() or "")


def samples(bench: RoleBench) -> List[Sequence[bytes]]:
    """Messages that a scheduler sends, about unknown tasks and objects."""
    failure = SCHEMA.encode_failure(kind="taskRaised", message="it is unknown", attempts=1)
    far = 1 << 50
    made: List[Tuple[str, Dict[str, Any], bytes]] = [
        ("TaskResult", {"ids": [far, far + 1], "payloadSizes": [3, 4], "codec": "json"}, b"123true"),
        ("TaskResult", {"ids": [far], "payloadSizes": [len(failure)], "statuses": [1], "codec": "json"}, failure),
        ("TaskResult", {"ids": [far], "payloadSizes": [0], "objects": [7 << 40 | 5]}, b""),
        ("TaskEcho", {"acceptedUpTo": 3, "tasksReleased": far, "bytesReleased": far}, b""),
        ("TaskCancelConfirm", {"ids": [far], "outcomes": [0]}, b""),
        ("TaskLog", {"id": far, "stream": 1, "text": "hello"}, b""),
        ("Explanation", {"requestId": far, "text": "unasked"}, b""),
        ("Heartbeat", {"sequence": 5}, b""),
        ("HeartbeatEcho", {"sequence": 1, "slots": 3}, b""),
        ("ObjectInstruction", {"action": "spill", "ids": [far]}, b""),
        ("ObjectRequest", {"id": far, "offset": 3, "length": 100}, b""),
        ("ObjectResponse", {"id": far, "offset": 3, "status": "ok", "size": 10}, b"abc"),
    ]
    return [
        [SCHEMA.encode(type_, fields, segmented), *([payload] if payload else [])]
        for type_, fields, payload in made
        for segmented in (False, True)
    ]


def mutated(generator: random.Random, frames: Sequence[bytes]) -> List[bytes]:
    """A message with some bits, bytes or words changed, truncated, duplicated or moved."""
    header = bytearray(frames[0])
    for _ in range(generator.choice((1, 1, 1, 2, 4, 16))):
        place = generator.randrange(len(header)) if header else 0
        how = generator.randrange(6)
        if not header or how == 0:
            del header[place:]
        elif how == 1:
            header[place] ^= 1 << generator.randrange(8)
        elif how == 2:
            header[place] = generator.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif how == 3:
            start = place & ~7
            header[start : start + 8] = generator.getrandbits(64).to_bytes(8, "little")
        elif how == 4:
            header[place:place] = header[: generator.randrange(24)]
        else:
            header[place & ~7 : place & ~7] = bytes(8 * generator.randrange(4))
    return [bytes(header), *frames[1:]]
