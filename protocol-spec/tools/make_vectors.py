"""Write vectors/: headers made by the real Cap'n Proto with what they mean, and headers that must be refused.

    python tools/make_vectors.py

For developers; needs pycapnp. What is in the files: vectors/README.md. The helpers are those of the binding's tests.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Tuple

FOLDER = Path(__file__).resolve().parents[1]
VECTORS = FOLDER / "vectors"
sys.path.insert(0, str(FOLDER / "python/tests"))

import malformed_frames  # noqa: E402
from capnp_bridge import (  # noqa: E402
    COMMON_MODULE,
    SCHEMA_MODULE,
    build,
    fill,
    fill_what_is_newer,
    frame_of,
    load,
    member_field,
    rewritten_schema,
    segmented_frame_of,
    with_more,
)
from codec_assembler import frame, struct_pointer  # noqa: E402
from codec_samples import SAMPLES, sample  # noqa: E402

from scaler_protocol import messages as m  # noqa: E402


class Vector(NamedTuple):
    name: str  # Message/case
    frame: bytes
    meaning: Dict[str, Any]


# What a header means, as tagged JSON ---------------------------------------------------------------------------------


def tagged(kind: Any, value: Any) -> Dict[str, Any]:
    """A value that pycapnp read, with its type."""
    name = str(kind.which())
    if name == "enum":
        return {"type": "enum", "value": f"#{value.raw}" if str(value).isdigit() else str(value)}
    if name == "struct":
        return {"type": "struct", "value": fields_of(value)}
    if name == "data":
        return {"type": "data", "value": bytes(value).hex()}
    if name == "bool":
        return {"type": "bool", "value": "true" if value else "false"}
    if name == "float64":
        return {"type": "float64", "value": repr(float(value))}
    if name == "list":
        element = kind.list.elementType
        items = [tagged(element, item)["value"] for item in value]
        return {"type": "list", "of": str(element.which()), "value": items}
    return {"type": name, "value": str(value)}


def fields_of(reader: Any) -> Dict[str, Any]:
    return {
        field.proto.name: tagged(field.proto.slot.type, getattr(reader, field.proto.name))
        for field in reader.schema.fields_list
    }


def meaning_of(data: bytes) -> Dict[str, Any]:
    """What our schema makes of a header."""
    with SCHEMA_MODULE.Message.from_bytes(data, traversal_limit_in_words=2**40) as root:
        member = str(root.which())
        return {"root": "Message", "member": member, "fields": fields_of(getattr(root, member))}


# Valid ---------------------------------------------------------------------------------------------------------------


def valid() -> Iterator[Vector]:
    with tempfile.TemporaryDirectory() as folder:
        newer = load(rewritten_schema(Path(folder), with_more) / "message.capnp")
    for discriminant, message in enumerate(SAMPLES):
        yield from _of_message(message, discriminant, newer)
    root = newer.Message.new_message(newerMessage="hello from the future")
    unknown = {"root": "Message", "member": f"#{len(m.MEMBERS)}", "fields": {}}
    yield Vector("Message/newer-member", bytes(root.to_bytes()), unknown)
    root = newer.Message.new_message()
    root.init("refusal").reason = "newerMember"
    meaning = meaning_of(frame_of(m.Refusal()))
    meaning["fields"]["reason"]["value"] = f"#{len(m.RefusalReason)}"
    yield Vector("Refusal/newer-reason", bytes(root.to_bytes()), meaning)
    failure = COMMON_MODULE.Failure.new_message()
    fill(failure, sample(m.Failure))
    yield Vector("Failure/full", bytes(failure.to_bytes()), {"root": "Failure", "fields": fields_of(failure)})


def _of_message(message: Any, discriminant: int, newer: Any) -> Iterator[Vector]:
    name = type(message).__name__
    full = frame_of(message)
    yield Vector(f"{name}/full", full, meaning_of(full))
    yield Vector(f"{name}/segments", segmented_frame_of(message), meaning_of(full))
    defaults = frame_of(type(message)())
    yield Vector(f"{name}/defaults", defaults, meaning_of(defaults))
    yield Vector(f"{name}/null", frame([struct_pointer(0, 1, 1), discriminant, 0]), meaning_of(defaults))
    shorter = shortened(full)
    if shorter != full:
        yield Vector(f"{name}/older", shorter, meaning_of(shorter))
    root = build(message, newer)
    fill_what_is_newer(getattr(root, member_field(message)))
    yield Vector(f"{name}/newer", bytes(root.to_bytes()), meaning_of(full))


def shortened(data: bytes) -> bytes:
    """A header of one segment whose member ends sooner: its last pointer, or else its last word of data, is not there.

    So an older schema has it, which did not have the last field yet.
    """
    assert data[:4] == bytes(4), "one segment"
    at = 8 + 2 * 8  # behind the segment table, the root's pointer, and the root's discriminant
    words, pointers = struct.unpack_from("<HH", data, at + 4)
    sizes = (words, pointers - 1) if pointers else (max(0, words - 1), 0)
    return data[: at + 4] + struct.pack("<HH", *sizes) + data[at + 8 :]


# Files ---------------------------------------------------------------------------------------------------------------


def files() -> Dict[str, bytes]:
    """Path in vectors/ -> content."""
    result = {}
    for vector in valid():
        result[f"valid/{vector.name}.bin"] = vector.frame
        result[f"valid/{vector.name}.json"] = as_json(vector.meaning)
    for fault in malformed_frames.faults():
        result[f"invalid/{fault.name}.bin"] = fault.header
        if fault.payload is not None:
            result[f"invalid/{fault.name}.payload.bin"] = fault.payload
        verdict = {"fault": fault.text, "requirement": fault.requirement, "level": fault.level, "verdict": "malformed"}
        if fault.sender:
            verdict["sender"] = fault.sender
        result[f"invalid/{fault.name}.json"] = as_json(verdict)
    return result


def as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def checked_in() -> Dict[str, bytes]:
    found: Dict[str, bytes] = {}
    for suffix in ("bin", "json"):
        paths: Iterator[Tuple[Path, str]] = ((p, str(p.relative_to(VECTORS))) for p in VECTORS.rglob(f"*.{suffix}"))
        found.update({name: path.read_bytes() for path, name in paths})
    return found


if __name__ == "__main__":
    for name in checked_in():
        (VECTORS / name).unlink()
    for name, content in files().items():
        (VECTORS / name).parent.mkdir(parents=True, exist_ok=True)
        (VECTORS / name).write_bytes(content)
