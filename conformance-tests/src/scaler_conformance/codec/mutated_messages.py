"""Well-formed messages with random changes, for cases that look for crashes.

Rule: all randomness is the caller's, so that a seed repeats a run.
"""

from __future__ import annotations

import random
from typing import Any, Dict, List, Tuple

from scaler_conformance.codec.schema_codec import SCHEMA

Frames = List[bytes]

_OPTIONS = {"priority": 3, "capabilities": [{"name": "gpu", "amount": 1.0}], "retries": 2}
_MESSAGES: List[Tuple[str, Dict[str, Any], bytes]] = [
    ("Hello", {"major": 1, "role": "client", "name": "x", "features": ["a", "b"]}, b""),
    ("Heartbeat", {"sequence": 1, "processors": [{"processId": 4, "suspended": True}]}, b""),
    ("HeartbeatEcho", {"sequence": 1}, b""),
    ("DisconnectResponse", {}, b""),
    (
        "Task",
        {"ids": [1, 2], "payloadSizes": [1, 2], "functionName": "none", "codec": "raw", "options": _OPTIONS},
        b"abc",
    ),
    (
        "Task",
        {"ids": [3], "payloadSizes": [0], "function": 1 << 40, "dependencyCounts": [2], "dependencies": [1, 2]},
        b"",
    ),
    ("TaskResult", {"ids": [7, 8], "statuses": [0, 1], "payloadSizes": [2, 2], "objects": [0, 5]}, b"abcd"),
    ("TaskCancel", {"ids": [1, 2, 3], "force": True}, b""),
    ("TaskCancelConfirm", {"ids": [1, 2], "outcomes": [0, 2]}, b""),
    ("TaskLog", {"id": 7, "stream": 1, "text": "line"}, b""),
    (
        "GraphTask",
        {
            "ids": [10, 11],
            "payloadSizes": [1, 1],
            "functions": [1, 2],
            "predecessorOffsets": [0, 0, 1],
            "predecessors": [0],
            "targets": [1],
            "options": _OPTIONS,
        },
        b"ab",
    ),
    ("BalanceResponse", {"requestId": 1, "ids": [1, 2]}, b""),
    (
        "ObjectInstruction",
        {"action": "create", "ids": [1], "sizes": [3], "storages": [0], "kinds": [1], "names": ["n"], "codec": "raw"},
        b"abc",
    ),
    ("ObjectInstruction", {"action": "delete", "ids": [1, 2]}, b""),
    ("ObjectRequest", {"id": 1, "offset": 5, "length": 1 << 20}, b""),
    ("ObjectResponse", {"id": 1, "offset": 0, "size": 3}, b"abc"),
    ("ExplanationRequest", {"requestId": 1, "taskId": 2}, b""),
    ("Explanation", {"requestId": 1, "text": "why"}, b""),
    ("InfoRequest", {"requestId": 1, "maximumWorkers": 2}, b""),
    ("Info", {"requestId": 1, "slots": 3, "workers": [{"session": 1, "name": "w", "slots": 3}]}, b""),
]


def samples() -> List[Frames]:
    """Frames of messages of many types, each in a single segment and in many."""
    return [
        [SCHEMA.encode(type_, fields, segmented), *([payload] if payload else [])]
        for type_, fields, payload in _MESSAGES
        for segmented in (False, True)
    ]


def mutated(generator: random.Random, frames: Frames) -> Frames:
    """The frames of a message with random changes, sometimes with none."""
    header, payload = bytearray(frames[0]), list(frames[1:])
    for _ in range(generator.choice((1, 1, 1, 2, 4, 16))):
        kind = generator.randrange(6)
        if kind == 0 and header:  # a bit
            header[generator.randrange(len(header))] ^= 1 << generator.randrange(8)
        elif kind == 1 and header:  # a byte
            header[generator.randrange(len(header))] = generator.choice(
                (0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256))
            )
        elif kind == 2:  # truncated
            del header[generator.randrange(len(header) + 1) :]
        elif kind == 3 and len(header) >= 16:  # a word replaced by another word of the header
            to, from_ = 8 * generator.randrange(len(header) // 8), 8 * generator.randrange(len(header) // 8)
            header[to : to + 8] = header[from_ : from_ + 8]
        elif kind == 4:  # extended
            header += bytes(generator.randrange(256) for _ in range(generator.choice((1, 7, 8, 64))))
        elif payload:  # the payload
            payload[0] = payload[0][: generator.randrange(len(payload[0]) + 1)] if payload[0] else b"more"
        else:
            payload = [b"unasked"] * generator.choice((1, 1, 2, 5))
    return [bytes(header), *payload]
