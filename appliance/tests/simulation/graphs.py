"""What simulated clients and workers agree on about graphs: how a result is made of the predecessors' results."""

from __future__ import annotations

import struct
import zlib
from typing import Dict, List, Optional, Sequence, Tuple

IS_OBJECT = 0xFFFFFFFF


def result_content(own_payload: bytes, inputs: Sequence[bytes]) -> bytes:
    """What is in the result of a task: the task's payload, and a sum over all that went into it."""
    return own_payload + b" %x" % zlib.crc32(b",".join(inputs)) if inputs else own_payload


def split_payload(payload: bytes) -> Tuple[List[Optional[bytes]], bytes]:
    """The predecessors' results, None for those that are objects, and the node's own payload, as the schema has it."""
    if payload[:4] != struct.pack("<I", 4):
        return [], payload
    (count,) = struct.unpack_from("<I", payload, 4)
    position = 8 + 4 * count
    results: List[Optional[bytes]] = []
    for size in struct.unpack_from(f"<{count}I", payload, 8):
        results.append(None if size == IS_OBJECT else payload[position : position + size])
        position += 0 if size == IS_OBJECT else size
    return results, payload[position:]


def inputs_and_own_payload(
    payload: bytes, dependencies: Sequence[int], large_results: Dict[int, bytes]
) -> Tuple[List[bytes], bytes]:
    """What the predecessors' results hold, and the node's own payload."""
    results, own_payload = split_payload(payload)
    objects = iter(dependencies[len(dependencies) - results.count(None) :])
    inputs = []
    for result in results:
        if result is None:
            inputs.append(_content(large_results[next(objects)], b"large result of "))
        else:
            inputs.append(_content(result, b"result of "))
    return inputs, own_payload


def check_results(
    results: Sequence[Optional[bytes]], dependencies: Sequence[int], reported: Sequence[Tuple[bytes, int]]
) -> None:
    """The results that a node is given are those that were reported: bytes, or an object."""
    assert len(results) == len(reported)
    objects = iter(dependencies[len(dependencies) - results.count(None) :])
    for result, (data, object_id) in zip(results, reported):
        assert (next(objects) == object_id) if result is None else (result == data and not object_id)


def _content(result: bytes, beginning: bytes) -> bytes:
    assert result.startswith(beginning), result
    return result[len(beginning) :]
