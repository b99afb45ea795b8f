"""What simulated users and processors agree on: what a task is, and what its result has to be.

Rules:
- A payload names its task; all else that a processor does follows from that. A result is made of what really arrived:
  function, objects and results of others. So a wrong byte anywhere is a wrong result.
- What a result should be is found without the cluster (`Task.expected`).
"""

from __future__ import annotations

import struct
import zlib
from typing import List, Optional, Sequence, Tuple

from scaler.values.payload import RESULT_IS_OBJECT, RESULTS_MARK

SERVED_FUNCTIONS = (("example.org/one", "one:call"), ("example.org/many/*", "many"))
"""What all workers serve by name."""


class Task:
    """What a user wants done.

    Parameters:
        function: the content of the function's object.
        contents: of the objects among its arguments, in order.
        needed: the tasks whose results it needs, in order.
        result_bytes: of the result.
        seconds: how long it runs.
        is_blocking: it waits for others in between.
    """

    def __init__(self, key: int, function: bytes, contents: Sequence[bytes], needed: Sequence[Task]) -> None:
        self.key = key
        self.function = function
        self.contents = tuple(contents)
        self.needed = tuple(needed)
        self.result_bytes = 0
        self.is_large = False
        self.seconds = 0.0
        self.is_blocking = False
        self.is_raising = False
        self.depth = 0  # 1: a task submitted it, and so on
        self.at_most_once = False
        self.retries = 0
        self.sent_count = 0  # how often a scheduler gave it to a worker
        self.death_count = 0  # how often a processor died with it
        self.start_count = 0
        self.is_cancel_wanted = False  # or that of a task that it needs
        self._expected: Optional[bytes] = None

    @property
    def payload(self) -> bytes:
        return b"task %d" % self.key

    @property
    def expected(self) -> bytes:
        """What the result has to be."""
        if self._expected is None:
            self._expected = self.result([self.function, *self.contents, *(each.expected for each in self.needed)])
        return self._expected

    def result(self, inputs: Sequence[bytes]) -> bytes:
        """What the result is, made of function, objects and results."""
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
    if payload[:4] != struct.pack("<I", RESULTS_MARK):
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
