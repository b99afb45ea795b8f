"""Large results that are arguments again: each is placed in the cluster once, for all tasks from the second one on.

    submit(g, f) ──▶ f is done, its result is large ──▶ a part of the arguments: most results are used once
    submit(g, f), again ──────────────────────────────▶ an object, placed for this task ──▶ its id
                                                                        ▲
    submit(g, f), again and again ──────────────────────────────────────┘ as long as the result has the same bytes

Rules:
- A task gets what pickling the result gives now. Bytes as they came from the worker do not change; a result that this
  program has loaded may, so it is pickled for each task, and the object is used again if it has these bytes.
- An object is held as long as its future, but no longer than HELD_SECONDS after a task got it; and of all objects those
  used last, up to MOST_HELD_BYTES. Tasks that have one keep it: from then on it counts as their arguments.
- Nothing is let go between the moment when a task gets an id and that when the core has accepted the task.
- If a task ends because an object is missing, everything is placed again: the scheduler may have had no room.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import OrderedDict, deque
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from scaler.values.payload import Parts, parts_size

HELD_SECONDS = 10.0
MOST_HELD_BYTES = 256 * 1024 * 1024


class LargeResult(NamedTuple):
    """The result of a future that is done, as a task is to get it.

    Attributes:
        is_received: the bytes are those that came from the worker.
    """

    future: Any
    parts: Parts
    is_received: bool


class _Placed:
    __slots__ = ("key", "future", "is_received", "object_id", "size", "used_at", "__weakref__")

    def __init__(self, result: LargeResult, object_id: int, now: float, dead: Deque[_Placed]) -> None:
        self.key = id(result.future)
        # No strong reference is made to find out that it is gone: that might be the last one.
        self.future = weakref.ref(result.future, lambda _: dead.append(self))
        self.is_received = result.is_received
        self.object_id = object_id
        self.size = parts_size(result.parts)
        self.used_at = now


class PlacedResults:
    """Of one client.

    Parameters:
        send_object: places content in the cluster; returns its id.
        has_content: whether an object that was placed has this content.
        let_go: releases objects, which live on while tasks need them.
        clock: tells the time, in seconds.
    """

    def __init__(
        self,
        send_object: Callable[[Parts], int],
        has_content: Callable[[int, Parts], bool],
        let_go: Callable[[List[int]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send_object, self._has_content = send_object, has_content
        self._let_go, self._clock = let_go, clock
        self._placed: OrderedDict[int, _Placed] = OrderedDict()  # by the identity of the future, the latest last
        self._dead: Deque[_Placed] = deque()  # whose futures are gone
        self._held_bytes = 0
        self._begun = 0  # blocks of `in_use`, so far
        self._users: Dict[int, None] = {}  # numbers of those that have not ended
        self._outdated: List[Tuple[int, int]] = []  # objects that no later block gets, and how many had begun then
        self._lock = threading.Lock()

    def begin(self) -> int:
        """A task is about to get ids; returns a number for `end`."""
        with self._lock:
            self._begun += 1
            self._users[self._begun] = None
            return self._begun

    def end(self, number: int) -> None:
        """The task has been accepted, or will not be."""
        with self._lock:
            self._users.pop(number, None)
            is_due = self._outdated or self._held_bytes > MOST_HELD_BYTES
        if is_due:  # what is just unused would take time from the task
            self.let_go_unused()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Tasks that are given ids here must be accepted before this ends."""
        number = 0
        try:
            number = self.begin()
            yield
        finally:
            self.end(number)

    def place(self, results: Sequence[LargeResult]) -> List[int]:
        """The ids of objects with these results, which are placed if they are not there; only while `in_use`.

        Raises ObjectStorageFullError if there is no room, DisconnectedError when the client is closed.
        """
        return [self._id_of(each) for each in results]

    def _id_of(self, result: LargeResult) -> int:
        key = id(result.future)
        with self._lock:
            found = self._placed.get(key)
        if found is not None and self._is_same(found, result):
            with self._lock:
                if self._placed.get(key) is found:  # else it is outdated, and still there for this task
                    found.used_at = self._clock()
                    self._placed.move_to_end(key)
            return found.object_id
        made = _Placed(result, self._send_object(result.parts), self._clock(), self._dead)
        with self._lock:
            self._forget(key)
            self._placed[key] = made
            self._held_bytes += made.size
        return made.object_id

    def _is_same(self, placed: _Placed, result: LargeResult) -> bool:
        if placed.future() is not result.future:
            return False
        are_received = placed.is_received and result.is_received
        return are_received or self._has_content(placed.object_id, result.parts)

    def let_go_unused(self) -> None:
        """Release what is held no longer, and not in use: to be called every few seconds. Any thread."""
        with self._lock:
            self._forget_old()
            first_user = min(self._users, default=self._begun + 1)
            outdated = [object_id for object_id, begun in self._outdated if begun < first_user]
            self._outdated = [each for each in self._outdated if each[1] >= first_user]
        if outdated:
            self._let_go(outdated)

    def forget_all(self) -> None:
        """Place everything again."""
        with self._lock:
            for key in list(self._placed):
                self._forget(key)
        self.let_go_unused()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._dead:
            dead = self._dead.popleft()
            if self._placed.get(dead.key) is dead:
                self._forget(dead.key)
        for key, each in list(self._placed.items()):
            if now - each.used_at < HELD_SECONDS:
                break  # those used last come last
            self._forget(key)
        while self._held_bytes > MOST_HELD_BYTES and len(self._placed) > 1:
            self._forget(next(iter(self._placed)))

    def _forget(self, key: int) -> None:
        placed = self._placed.pop(key, None)
        if placed is not None:
            self._held_bytes -= placed.size
            self._outdated.append((placed.object_id, self._begun))
