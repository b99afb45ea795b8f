"""The examples in hexadecimal that messages.md shows, made of real bytes by the binding for Python."""

from __future__ import annotations

from array import array
from typing import Callable, Dict, List, Tuple

from scaler_protocol import encode, encode_struct
from scaler_protocol import messages as m

SESSION = 10
INSTANCE = 1 << 20

FRAMES: List[Tuple[str, m.Member, bytes]] = [
    (
        "A worker says Hello",
        m.Hello(
            major=1,
            role=m.Role.WORKER,
            implementation=m.Implementation(name="example", version="0.1", language="C++17"),
            codecs=["json"],
            functions=["scaler.conformance/*"],
            host="node1",
            process_id=4711,
            name="w1",
            slots=2,
            queue_size=1,
        ),
        b"",
    ),
    (
        "The scheduler welcomes it",
        m.Welcome(
            major=1,
            scheduler_id=bytes(range(16)),
            session=SESSION,
            limits=m.Limits(
                maximum_message_bytes=512 << 20,
                maximum_object_bytes=1 << 40,
                chunk_bytes=1 << 20,
                inline_bytes=64 << 10,
            ),
            heartbeat_interval_milliseconds=2000,
            timeout_milliseconds=60000,
            protected=True,
        ),
        b"",
    ),
    (
        "A client submits two tasks, 5 and 6",
        m.Task(
            ids=array("Q", [5, 6]),
            payload_sizes=array("I", [7, 5]),
            function_name="scaler.conformance/sum",
            codec="json",
        ),
        b"[1,2,3][1,x]",
    ),
    (
        "The worker is sent them, as instances of its own",
        m.Task(
            ids=array("Q", [INSTANCE, INSTANCE + 1]),
            payload_sizes=array("I", [7, 5]),
            function_name="scaler.conformance/sum",
            codec="json",
            attempt=1,
            client=9,
        ),
        b"[1,2,3][1,x]",
    ),
]

_FAILURE = encode_struct(
    m.Failure(kind=m.FailureKind.ARGUMENT_NOT_LOADED, message="no JSON at byte 3", worker="w1", attempts=1)
)

FRAMES += [
    (
        "The worker reports: the first is a success, the second failed, and its payload is a Failure",
        m.TaskResult(
            ids=array("Q", [INSTANCE, INSTANCE + 1]),
            statuses=bytes([m.TaskStatus.SUCCESS, m.TaskStatus.FAILED]),
            payload_sizes=array("I", [1, len(_FAILURE)]),
            codec="json",
            busy_microseconds=41,
        ),
        b"6" + _FAILURE,
    ),
    (
        "The client is told",
        m.TaskResult(
            ids=array("Q", [5, 6]),
            statuses=bytes([m.TaskStatus.SUCCESS, m.TaskStatus.FAILED]),
            payload_sizes=array("I", [1, len(_FAILURE)]),
            codec="json",
        ),
        b"6" + _FAILURE,
    ),
]


def dump(data: bytes) -> str:
    """Bytes as `hexdump -C` shows them."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        halves = " ".join(f"{byte:02x}" for byte in row[:8]), " ".join(f"{byte:02x}" for byte in row[8:])
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {halves[0]:23}  {halves[1]:23}  |{text}|")
    return "\n".join(lines)


def examples() -> str:
    parts = []
    for title, message, payload in FRAMES:
        parts.append(f"**{title}.** {type(message).__name__}, frame 0:")
        parts.append(f"```\n{dump(encode(message))}\n```")
        if payload:
            parts.append(f"Frame 1:\n\n```\n{dump(payload)}\n```")
    return "\n\n".join(parts)


MAKERS: Dict[str, Callable[[], str]] = {"examples": examples}
