"""The values of contradictory messages: what is so, ids of others, and numbers at the ends of their ranges.

Rules: most values bring a peer further, so that a history has something to contradict; the others are such as a message
can just hold.
"""

from __future__ import annotations

from array import array
from random import Random
from typing import List, Tuple

from scaler_protocol import messages as m
from scaler_protocol.session.ids import FIRST_SCHEDULER_NUMBER, SESSION_SHIFT

LARGEST = (1 << 64) - 1
LARGEST_32 = (1 << 32) - 1
OBJECTS_REMEMBERED = 30

_NUMBERS = (0, 0, 1, 1, 2, 3, 255, 1 << 16, 1 << 31, LARGEST_32, 1 << 32, 1 << 40, 1 << 63, LARGEST)
_AMOUNTS = (0.0, -0.0, 0.5, 1.0, 2.0, 3.0, 1e-9, 1e-12, 1e-300, 5e-324, 1e308)  # of a capability


class Values:
    """Draws values, and remembers what all peers know of each other.

    Parameters:
        random: where all chance comes from.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.objects: List[int] = [0]  # ids of those made last
        self.balance_requests: List[int] = [0]  # that workers were sent

    def chance(self, rate: float) -> bool:
        return self.random.random() < rate

    def number(self) -> int:
        """Of 64 bits."""
        return self.random.choice((*_NUMBERS, self.random.randrange(LARGEST)))

    def number_32(self) -> int:
        return self.number() & LARGEST_32

    def remember_objects(self, object_ids: List[int]) -> None:
        self.objects = (self.objects + object_ids)[-OBJECTS_REMEMBERED:]

    def object_id(self, session: int) -> int:
        """Mostly the id of an existing object; otherwise one that may be of `session`, or of no object."""
        if self.chance(0.85):
            return self.random.choice(self.objects)
        last = (1 << SESSION_SHIFT) - 1
        own = session << SESSION_SHIFT | self.random.choice(
            (0, 1, 2, 3, FIRST_SCHEDULER_NUMBER, FIRST_SCHEDULER_NUMBER + 1, last)
        )
        return self.random.choice((self.number(), own))

    def capabilities(self) -> List[m.Capability]:
        count = self.random.choice((0, 0, 0, 1, 1, 2))
        return [
            m.Capability(name=self.random.choice(("gpu", "disk", "")), amount=self.random.choice(_AMOUNTS))
            for _ in range(count)
        ]

    def options(self) -> m.TaskOptions:
        if self.chance(0.4):
            return m.TaskOptions()
        return m.TaskOptions(
            priority=self.random.choice((0, 0, 0, 1, -1, -(1 << 31), (1 << 31) - 1)),
            capabilities=self.capabilities(),
            retries=self.random.choice((0, 1, 65535)),
            time_limit_milliseconds=self.number(),
            memory_limit_bytes=self.number(),
            profiling=self.chance(0.2),
            at_most_once=self.chance(0.2),
            stream_output=self.chance(0.2),
        )

    def sizes(self, count: int) -> array[int]:
        """Of payloads: small, and seldom such as are kept otherwise than the others."""
        choices = (0, 0, 1, 3, 10) if self.chance(0.95) else (2000, 5000)
        return array("I", self.random.choices(choices, k=count))

    def dependencies(self, count: int, session: int) -> Tuple[array[int], array[int]]:
        """The two columns of so many tasks."""
        if self.chance(0.6):
            return array("H"), array("Q")
        counts = array("H", self.random.choices((0, 0, 1, 2), k=count))
        return counts, array("Q", [self.object_id(session) for _ in range(sum(counts))])

    def predecessors(self, ids: array[int]) -> Tuple[array[int], array[int]]:
        """The two columns of tasks that may need some before them."""
        counts, predecessors = array("H"), array("Q")
        if self.chance(0.6):
            return counts, predecessors
        for task_id in ids:
            before = range(max(0, task_id - 10), task_id)
            needed = self.random.sample(before, min(len(before), self.random.choice((0, 1, 1, 3))))
            counts.append(len(needed))
            predecessors.extend(needed)
        return counts, predecessors
