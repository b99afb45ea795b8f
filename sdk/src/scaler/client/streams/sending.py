"""Takes the items of a map from their iterable, sends them as chunks, and collects what came of these.

    calls ──take──▶ fill ──▶ Sender ──▶ cluster ──▶ Completions ──▶ collect ──▶ `sent`, `ended`
                      ▲                                               │
                      └────────────── ChunkPlanner ◀──────────────────┘

Rules:
- The iterable is advanced in `fill` alone, by the thread that consumes the results.
- An exception of the iterable, or of sending an item, is kept: it comes after the results of the items before it.
- If the items of a chunk refer to more objects than a task can, chunks are smaller from there on.
- Closing cancels what has not started, without waiting. It may be done by the garbage collector, in any thread.
- After Ctrl-C, tasks that run are stopped too: their results cannot be asked for any more.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from typing import Any, Deque, Dict, Iterator, List, Optional

from scaler.client.future import ScalerFuture
from scaler.client.progress_bar import Bar
from scaler.client.shell.client_shell import ClientShell
from scaler.client.shell.future_internals import add_waiter
from scaler.client.streams.chunk_planner import ChunkPlanner
from scaler.client.streams.chunk_sender import ChunkOutcome, Item, Sender
from scaler.client.streams.completions import Completions
from scaler.exceptions import TooManyReferences

SLOTS_TIMEOUT_SECONDS = 1.0


class SentChunk:
    """A chunk that was sent.

    Parameters:
        first: the position of its first item.
        count: how many items it has.

    Attributes:
        sent_at: when, by `time.monotonic`.
    """

    __slots__ = ("first", "count", "outcome", "sent_at")

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.count = count
        self.sent_at = time.monotonic()
        self.outcome: Optional[ChunkOutcome] = None  # None while it runs


class Sending:
    """The chunks of one map.

    Parameters:
        calls: the arguments of each call.
        total: how many calls there are, if that is known.
        keeps_order: `sent` has all chunks, in their order; otherwise `ended` has them as they end.
    """

    def __init__(
        self,
        shell: ClientShell,
        sender: Sender,
        planner: ChunkPlanner,
        calls: Iterator[Item],
        bar: Bar,
        total: Optional[int] = None,
        keeps_order: bool = True,
    ) -> None:
        self.planner = planner
        self.bar = bar
        self.sent: Deque[SentChunk] = deque()
        self.ended: Deque[SentChunk] = deque()
        self.running: Dict[ScalerFuture[Any], SentChunk] = {}
        self.error: Optional[Exception] = None  # that ended taking and sending
        self.has_failed = False  # a chunk has
        self._shell = shell
        self._sender = sender
        self._calls = calls
        self._total = total
        self._keeps_order = keeps_order
        self._next = 0  # position of the next item
        self._not_sent: List[Item] = []  # items that were taken
        self._is_exhausted = False
        self.is_interrupted = False  # by Ctrl-C
        self._completions = Completions()
        planner.limit(sender.maximum_items)
        shell.wait_for_slots(SLOTS_TIMEOUT_SECONDS)

    @property
    def slots(self) -> int:
        """How many calls run at once, as last heard: workers may join while the map runs."""
        return max(1, self._shell.slots)

    def fill(self) -> None:
        """Send chunks as far as there is room."""
        while not (self._is_exhausted or self.has_failed or self.error is not None):
            left = None if self._total is None else self._total - self._next
            count = self.planner.next_items(self.slots, left)
            if not count:
                return
            try:
                self._take(count)
                if self._not_sent:
                    self._send(count)
                else:
                    self._is_exhausted = True
            except Exception as error:
                self.error = error

    def _take(self, count: int) -> None:
        """Have at least `count` items that are not sent, or as many as there are. Raises what the iterable raises."""
        missing = count - len(self._not_sent)
        if missing > 0:
            # In place: what came before an exception stays. It is raised again when that was sent.
            try:
                self._not_sent.extend(islice(self._calls, missing))
            except Exception as error:
                if not self._not_sent:
                    raise
                self._calls = _Raising(error)

    def _send(self, count: int) -> None:
        items, self._not_sent = self._not_sent[:count], self._not_sent[count:]
        try:
            future = self._sender.send(self._next, items)
        except TooManyReferences:
            if len(items) == 1:
                raise
            self.planner.limit(len(items) // 2)
            self._not_sent = items + self._not_sent
            return
        chunk = SentChunk(self._next, len(items))
        self.running[future] = chunk
        self.planner.sent(len(items))
        self._next += len(items)
        if self._keeps_order:
            self.sent.append(chunk)
        add_waiter(future, self._completions)

    def await_chunk(self, deadline: Optional[float] = None) -> None:
        """Return when a chunk has ended; at least one runs.

        Parameters:
            deadline: of `time.monotonic`.

        Raises TimeoutError at the deadline.
        """
        self._completions.await_one(deadline)
        self.collect()

    def collect(self) -> None:
        """Take note of the chunks that have ended, without waiting."""
        done = self._completions.done
        while done:
            future: Any = done.popleft()
            chunk = self.running.pop(future, None)
            if chunk is None:
                continue  # it was counted already
            outcome = self._sender.outcome(future, chunk.first, chunk.count)
            chunk.outcome = outcome
            self.planner.ended(len(outcome.results), outcome.seconds, time.monotonic() - chunk.sent_at)
            self.bar.add(len(outcome.results))
            self.has_failed = self.has_failed or outcome.error is not None
            if not self._keeps_order:
                self.ended.append(chunk)

    def close(self) -> None:
        """Cancel what has not started, or after an interrupt all of it, and let go of the function."""
        # What was submitted when Ctrl-C came is not in `running` yet.
        running = list({**self.running, **{each: None for each in self._sender.made if not each.done()}})
        self.running = {}
        for future in running:
            future._is_unwanted = True
        if running and self.is_interrupted:
            self._shell.stop(running)
        elif running:
            self._shell.ask_to_cancel(running)
        self._sender.close()
        self.bar.close()


class _Raising:
    """An iterator that raises an exception."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        raise self._error
