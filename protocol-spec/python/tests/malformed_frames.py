"""Headers and messages with one fault each, made word by word: what vectors/invalid has.

Rule: each differs from a well-formed message by its fault alone.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any, Iterator, NamedTuple, Optional, Type

from codec_assembler import (
    BYTE,
    COMPOSITE,
    EIGHT_BYTES,
    FOUR_BYTES,
    LARGEST_COUNT,
    POINTER,
    far_pointer,
    frame,
    list_pointer,
    message,
    message_with,
    pointer_place,
    struct_pointer,
    tag,
    word_of,
)

from scaler_protocol import encode
from scaler_protocol import messages as m
from scaler_protocol.wire.capnproto import SEGMENT_COUNT_LIMIT, Struct

POINTERS, SEGMENTS, AMPLIFICATION, COLUMNS = "SCL-SEC-003", "SCL-SEC-004", "SCL-SEC-005", "SCL-SCH-002"


class Fault(NamedTuple):
    name: str
    text: str
    requirement: str
    header: bytes
    level: str = "header"  # "message": the header is well-formed, the message is not
    payload: Optional[bytes] = None
    sender: str = ""  # of a fault at the level of the message


def faults() -> Iterator[Fault]:
    yield from _segment_tables()
    yield from _pointers()
    yield from _far_pointers()
    yield from _lists_and_texts()
    yield from _amplification()
    yield from _tasks()
    yield from _other_columns()


def _segment_tables() -> Iterator[Fault]:
    whole = encode(m.TaskCancel(ids=array("Q", [7])))

    def fault(name: str, text: str, header: bytes) -> Fault:
        return Fault(name, text, SEGMENTS, header)

    yield fault("empty", "no bytes at all", b"")
    yield fault("table-cut", "fewer bytes than a segment table has", whole[:7])
    yield fault("truncated", "the last word is missing", whole[:-8])
    yield fault("truncated-in-word", "the last byte is missing", whole[:-1])
    yield fault("trailing-byte", "one byte more than announced", whole + b"\0")
    yield fault("trailing-message", "a second message behind the first", whole + whole)
    yield fault("oversize-claim", "a segment of 32 GiB is announced", struct.pack("<II", 0, 0xFFFFFFFF) + whole[8:])
    table = struct.pack("<4I", 2, 1, 1, 0xFFFFFFFF)
    yield fault("oversize-claim-last-segment", "the last of three segments is announced with 32 GiB", table + bytes(64))
    yield fault(
        "table-of-many-segments-cut", "101 segments are announced, and their sizes are not there", _words(100, 1)
    )
    count = SEGMENT_COUNT_LIMIT + 1
    yield fault("too-many-segments", f"{count} segments", frame(*[[0]] * count))
    yield fault("segment-count-overflow", "2^32 segments are announced", _words(0xFFFFFFFF, 0))
    yield fault("no-root", "segment 0 has no words", frame([]))


def _words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _pointers() -> Iterator[Fault]:
    def fault(name: str, text: str, *segments: Any) -> Fault:
        return Fault(name, text, POINTERS, frame(*segments))

    yield fault("root-out-of-bounds", "the root pointer leads behind the segment", [struct_pointer(1000, 1, 1)])
    yield fault("root-before-segment", "the root pointer leads before the segment", [struct_pointer(-3, 1, 1)])
    yield fault("root-is-a-list", "the root pointer is one to a list", [list_pointer(0, EIGHT_BYTES, 1), 0])
    yield fault("root-is-a-capability", "the root pointer is a capability", [3])
    ids = pointer_place(m.TaskCancel, "ids")
    words = message(m.TaskCancel, 0, 0)
    words[2] = struct_pointer(0, 0xFFFF, 0xFFFF)
    yield fault("struct-too-large", "a struct with more words than the segment", words)
    words = message_with(m.TaskCancel, "ids", EIGHT_BYTES, 2, 1)
    yield fault("list-too-long", "a list of two numbers of which one is there", words)
    yield fault("list-into-next-segment", "a list whose second number is in the next segment", words, [2])
    words = message_with(m.TaskCancel, "ids", EIGHT_BYTES, LARGEST_COUNT, *[0] * 8)
    yield fault("list-of-2-29", "a list of 2^29 - 1 numbers", words)
    words = message_with(m.TaskCancel, "ids", EIGHT_BYTES, 1, 7)
    words[ids] = struct_pointer(0, 1, 0)
    yield fault("struct-for-a-list", "a struct pointer where a list belongs", words)
    words = message_with(m.TaskCancel, "ids", FOUR_BYTES, 2, 7)
    yield fault("column-of-smaller-numbers", "a column of 64 bit numbers with elements of 32 bits", words)
    words = message_with(m.TaskCancelConfirm, "outcomes", COMPOSITE, 1, tag(1, 1, 0), 0)
    yield fault("column-of-structs", "a column of bytes with structs for elements", words)


def _far_pointers() -> Iterator[Fault]:
    def fault(name: str, text: str, *segments: Any) -> Fault:
        return Fault(name, text, POINTERS, frame(*segments))

    yield fault("far-segment-missing", "a far pointer to segment 2 of two", [far_pointer(2, 0)], [0])
    yield fault("far-out-of-bounds", "a landing pad behind its segment", [far_pointer(1, 1)], [0])
    cut = [far_pointer(1, 0, double=True)], [far_pointer(0, 0)]
    yield fault("far-double-cut", "a double landing pad of which half is there", *cut)
    yield fault("far-to-far", "a landing pad that is a far pointer", [far_pointer(1, 0)], [far_pointer(1, 0)])
    circle = far_pointer(0, 0)
    yield fault("far-cycle", "a far pointer to itself", [circle, circle])
    circle = far_pointer(0, 0, double=True)
    yield fault("far-double-cycle", "a double far pointer to itself", [circle, circle])
    pad = [far_pointer(1, 3), struct_pointer(0, 1, 1)]
    yield fault("far-double-out-of-bounds", "a double landing pad whose content is behind its segment",
                [far_pointer(1, 0, double=True)], pad)  # fmt: skip


def _lists_and_texts() -> Iterator[Fault]:
    def of(name: str, text: str, member: Type[Struct], field: str, code: int, count: int, *content: int) -> Fault:
        return Fault(name, text, POINTERS, frame(message_with(member, field, code, count, *content)))

    yield of("text-without-end", "a text whose last byte is not NUL", m.TaskLog, "text", BYTE, 8, word_of(b"12345678"))
    yield of("text-empty-list", "a text of no bytes, not even NUL", m.TaskLog, "text", BYTE, 0)
    yield of("text-not-utf8", "a text with a byte ff", m.TaskLog, "text", BYTE, 2, word_of(b"\xff"))
    yield of(
        "text-surrogate", "a text with half a surrogate pair", m.TaskLog, "text", BYTE, 4, word_of(b"\xed\xa0\x80")
    )
    yield of("text-of-numbers", "a text with elements of 64 bits", m.TaskLog, "text", EIGHT_BYTES, 1, 0)
    yield of("texts-of-bytes", "bytes where a list of texts belongs", m.Hello, "codecs", BYTE, 8, 0)
    structs = m.Heartbeat, "processors", COMPOSITE
    yield of("structs-wrong-count", "a list of 100 structs in words for one", *structs, 4, tag(100, 4, 0), *[0] * 4)
    yield of("structs-without-tag", "a list of structs whose tag is no struct pointer", *structs, 4, 1, *[0] * 4)
    yield of("structs-out-of-bounds", "a list of structs with more words than there are", *structs, 99, tag(1, 4, 0))


def _amplification() -> Iterator[Fault]:
    def fault(name: str, text: str, words: Any) -> Fault:
        return Fault(name, text, AMPLIFICATION, frame(words))

    count = 500
    words = message_with(m.Hello, "codecs", POINTER, count)
    text_at = len(words) + count
    words += [list_pointer(text_at - at - 1, BYTE, 8 * count) for at in range(len(words), text_at)]
    words += [word_of(b"aaaaaaaa")] * (count - 1) + [word_of(b"aaaaaaa")]
    yield fault("amplification-shared-text", f"{count} pointers to one text of {count} words", words)
    words = message_with(m.SchedulerStatus, "new_workers", COMPOSITE, 4 * count, tag(count, 0, 4))
    list_at = len(words) + 4 * count
    for _ in range(count):
        words += [0, 0, 0, list_pointer(list_at - len(words) - 4, COMPOSITE, count)]
    words += [tag(count, 1, 0), *[0] * count]
    yield fault("amplification-shared-list", f"{count} pointers to one list of {count} structs", words)
    words = message_with(m.Heartbeat, "processors", COMPOSITE, 0, tag(0x3FFFFFFF, 0, 0))
    yield fault("amplification-empty-structs", "2^30 - 1 structs that take no space", words)
    depth = 2_000
    hello = [struct_pointer(0, 1, 1), m.MEMBERS.index(m.Hello), struct_pointer(0, 0, 3), 0]
    deep = [*hello, *[list_pointer(0, POINTER, 1)] * depth, 0]
    yield fault("too-deep", f"lists in lists, {depth} deep, where a list of texts belongs", deep)


def _tasks() -> Iterator[Fault]:
    def task(name: str, text: str, payload: bytes, **columns: Any) -> Fault:
        fields = {"ids": [1, 2], "payload_sizes": [1, 2], "function_name": "f", **columns}
        header = encode(m.Task(**fields))
        return Fault(name, text, COLUMNS, header, "message", payload, "client")

    yield task("task-payload-short", "the payload frame is one byte too short", b"ab")
    yield task("task-payload-long", "the payload frame is one byte too long", b"abcd")
    yield task("task-payload-missing", "there are sizes, and no payload frame", b"")
    yield task("task-sizes-short", "fewer payload sizes than ids", b"a", payload_sizes=[1])
    yield task("task-sizes-long", "more payload sizes than ids", b"abc", payload_sizes=[1, 1, 1])
    yield task("task-sizes-overflow", "sizes whose sum is right in 32 bits", b"a", payload_sizes=[0xFFFFFFFF, 2])
    yield task("task-dependency-counts", "fewer dependency counts than ids", b"abc", dependency_counts=[0])
    wrong = {"dependency_counts": [1, 1], "dependencies": [9]}
    yield task("task-dependencies", "dependency counts whose sum is not the number of dependencies", b"abc", **wrong)
    yield task("task-dependencies-uncounted", "dependencies without counts", b"abc", dependencies=[9])
    yield task("task-predecessor-counts", "fewer predecessor counts than ids", b"abc", predecessor_counts=[0])
    yield task("task-predecessors-uncounted", "predecessors without counts", b"abc", predecessors=[0])
    itself = {"predecessor_counts": [0, 1], "predecessors": [2]}
    yield task("task-predecessor-of-itself", "a task that needs itself", b"abc", **itself)
    options = m.TaskOptions(capabilities=[m.Capability(name="gpu", amount=float("nan"))])
    yield task("task-capability-nan", "a capability whose amount is not a number", b"abc", options=options)


def _other_columns() -> Iterator[Fault]:
    def of(name: str, text: str, message: m.Member, payload: bytes, sender: str) -> Fault:
        return Fault(name, text, COLUMNS, encode(message), "message", payload, sender)

    def graph(name: str, text: str, **columns: Any) -> Fault:
        fields = {"ids": [1, 2], "payload_sizes": [0, 0], "functions": [7, 7], "targets": [1], **columns}
        return of(name, text, m.GraphTask(**fields), b"", "client")

    yield graph("graph-offsets", "as many predecessor offsets as nodes", predecessor_offsets=[0, 0])
    yield graph("graph-offsets-descend", "predecessor offsets that descend",
                predecessor_offsets=[0, 1, 0], predecessors=[0])  # fmt: skip
    yield graph("graph-cycle", "a node that is its own predecessor", predecessor_offsets=[0, 0, 1], predecessors=[1])
    yield graph("graph-target", "a target that is no node", targets=[2])
    yield graph("graph-function", "a node without a function", functions=[7, 0])
    result = m.TaskResult(ids=array("Q", [1, 2]), payload_sizes=array("I", [1, 1]))
    yield of("result-payload-short", "the payload frame is one byte too short", result, b"a", "worker")
    result = m.TaskResult(ids=array("Q", [1, 2]), payload_sizes=array("I", [1, 1]), statuses=bytes([0]))
    yield of("result-statuses-short", "fewer statuses than ids", result, b"ab", "worker")
    result = m.TaskResult(ids=array("Q", [1]), payload_sizes=array("I", [1]), statuses=bytes([99]))
    yield of("result-status-unknown", "a status that does not exist", result, b"a", "worker")
    result = m.TaskResult(ids=array("Q", [1]), payload_sizes=array("I", [1]), statuses=bytes([2]))
    yield of("result-status-cancelled", "the status cancelled, which is for TaskCancelConfirm", result, b"a", "worker")
    result = m.TaskResult(ids=array("Q", [1]), payload_sizes=array("I", [0]), objects=array("Q", [1, 2]))
    yield of("result-objects-long", "more objects than ids", result, b"", "worker")
    confirm = m.TaskCancelConfirm(ids=array("Q", [1, 2]), outcomes=bytes(1))
    yield of("confirm-outcomes-short", "fewer outcomes than ids", confirm, b"", "worker")
    create = m.ObjectInstruction(ids=array("Q", [1]), sizes=array("Q", [3]), storages=bytes(1))
    yield of("object-payload-short", "the payload frame is one byte too short", create, b"ab", "client")
    create = m.ObjectInstruction(ids=array("Q", [1]), sizes=array("Q", [3]))
    yield of("object-storages-missing", "no storages", create, b"abc", "client")
    create = m.ObjectInstruction(ids=array("Q", [1]), sizes=array("Q", [3]), storages=bytes([9]))
    yield of("object-storage-unknown", "a storage that does not exist", create, b"", "client")
