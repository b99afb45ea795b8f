"""What simulated users and processors agree on: what a task is, and what its result has to be.

Rules:
- A payload names its task; all else that a processor does follows from that. A result is made of what really arrived:
  function, its code, objects and results of others. So a wrong byte anywhere is a wrong result.
- What a result should be is found without the cluster (`Task.expected`).
"""

from __future__ import annotations

import enum
import hashlib
import struct
import zlib
from typing import List, NamedTuple, Optional, Sequence, Tuple

from scaler.client.core.kept_objects import KeptObject
from scaler.values.code_notes import Buffer, CodeNote, add_note
from scaler.values.payload import RESULT_IS_OBJECT, RESULTS_MARK

SERVED_FUNCTIONS = (("example.org/one", "one:call"), ("example.org/many/*", "many"))
"""What all workers serve by name."""

GPU = "gpu"
"""A capability that some workers have."""

ENDLESS_SECONDS = 1e9
_MARK = struct.pack("<I", RESULTS_MARK)


class Archive(NamedTuple):
    """Code that a client ships."""

    kept: KeptObject
    content: bytes


def digest_of(content: bytes) -> str:
    """Of an archive."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def with_note(content: bytes, archives: Sequence[Archive]) -> bytes:
    """A function with a note about the code that it needs; each set of archives has a key of its own."""
    digests = [digest_of(archive.content) for archive in archives]
    numbers = [archive.kept.number for archive in archives]
    parts: List[Buffer] = [content]
    add_note(parts, CodeNote(digest_of("".join(digests).encode()), tuple(zip(numbers, digests))))
    return b"".join(parts)


class Kills(enum.Enum):
    """What a task ends that runs it."""

    NOTHING = 0
    PROCESSOR = 1
    WORKER = 2


class Task:
    """What a user wants done.

    Parameters:
        function: the content of the function's object.
        contents: of the objects among its arguments, in order.
        needed: the tasks whose results it needs, in order.
        code: the archives that its function needs, in order.
        result_bytes: of the result.
        seconds: how long it runs.
        is_blocking: it waits for others in between.
    """

    def __init__(
        self, key: int, function: bytes, contents: Sequence[bytes], needed: Sequence[Task], code: Sequence[bytes] = ()
    ) -> None:
        self.key = key
        self.function = function
        self.contents = tuple(contents)
        self.needed = tuple(needed)
        self.code = tuple(code)
        self.tenant = ""  # of its client
        self.padding_bytes = 0  # of the payload: spaces at its end
        self.result_bytes = 0
        self.is_large = False
        self.seconds = 0.0
        self.is_blocking = False
        self.is_raising = False
        self.kills = Kills.NOTHING
        self.depth = 0  # 1: a task submitted it, and so on
        self.at_most_once = False
        self.retries = 0
        self.sent_count = 0  # how often a scheduler gave it to a worker
        self.death_count = 0  # how often a processor died with it
        self.start_count = 0
        self.actor: Optional[bytes] = None  # whose call it is, by the content of its function
        self.call_number = 0  # in the order in which they were submitted
        self.is_cancel_wanted = False  # or that of a task that it needs
        self.is_given_up = False  # its client keeps nothing for it, though it may still run
        self._expected: Optional[bytes] = None

    @property
    def is_endless(self) -> bool:
        return self.seconds == ENDLESS_SECONDS

    @property
    def payload(self) -> bytes:
        return b"task %d" % self.key + b" " * self.padding_bytes

    @property
    def expected(self) -> bytes:
        """What the result has to be."""
        if self._expected is None:
            results = [each.expected for each in self.needed]
            self._expected = self.result([self.function, *self.code, *self.contents, *results])
        return self._expected

    def result(self, inputs: Sequence[bytes]) -> bytes:
        """What the result is, made of function, code, objects and results."""
        total = 0
        for each in inputs:
            total = zlib.crc32(each, total)
        return (b"result of task %d: %08x " % (self.key, total)).ljust(self.result_bytes, b".")

    def ancestry(self) -> List[Task]:
        """This task, and all that it needs, directly or through others."""
        found = {self.key: self}
        pending = [self]
        while pending:
            for each in pending.pop().needed:
                if each.key not in found:
                    found[each.key] = each
                    pending.append(each)
        return list(found.values())


def key_of(payload: bytes) -> int:
    return int(payload[5:])


def split(payload: bytes) -> Tuple[List[Optional[bytes]], bytes]:
    """The results in front of a payload, None for those that are objects, and the task's own payload."""
    if payload[:4] != _MARK:
        return [], payload
    (count,) = struct.unpack_from("<I", payload, 4)
    position = 8 + 4 * count
    results: List[Optional[bytes]] = []
    for size in struct.unpack_from(f"<{count}I", payload, 8):
        if size == RESULT_IS_OBJECT:
            results.append(None)
        else:
            results.append(payload[position : position + size])
            position += size
    return results, payload[position:]
