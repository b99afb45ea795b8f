"""Maps whose results are awaited: from iterables or asynchronous ones, as a list or as a stream with flat memory.

    items ──▶ ItemSource ──▶ ChunkSender: tasks ──▶ results, in the order of the items or as they come
                  ▲                              │
                  └──────── ChunkPlanner ◀───────┘     at most `buffersize` items are between their source and the user

Rules:
- Chunks, their sizes and what comes of them are those of `scaler.client.streams`.
- An iterable is advanced only while results are asked for. An asynchronous one has a task of its own, which runs while
  results are awaited, and waits as soon as it is ahead.
- An item is sent as soon as it is there: a chunk is never waited for to fill.
- What was computed before a failure comes first: results before a failed item, and before an error of the source.
- Leaving a stream early cancels what is unfinished, and closes the source.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import (
    Any,
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from scaler.aio.aio_future import TaskFuture
from scaler.aio.loop_shell import LoopShell
from scaler.client.streams.chunk_planner import ChunkPlanner
from scaler.client.streams.chunk_sender import ChunkOutcome, Item, Sender
from scaler.client.streams.sending import SLOTS_TIMEOUT_SECONDS, SentChunk
from scaler.exceptions import ArgumentTypeError, TooManyReferences

R = TypeVar("R")

AnyIterable = Union[Iterable[Any], AsyncIterable[Any]]


class ItemSource:
    """Items of iterables, each the arguments of a call.

    Parameters:
        calls: the items.
        iterators: where they come from, to be closed.
    """

    def __init__(self, calls: Iterator[Item], iterators: Sequence[Any] = ()) -> None:
        self.error: Optional[Exception] = None  # that ended it
        self.on_change: Callable[[], None] = lambda: None  # called when there is something to take, or an end
        self._calls = calls
        self._iterators = iterators
        self._returned: Deque[Item] = deque()
        self._is_over = False

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing to take any more."""
        return self._is_over and not self._returned

    def start(self) -> None:
        """Begin to fetch items."""

    def take(self, maximum: int) -> List[Item]:
        """The next items, as many as there are now."""
        taken = [self._returned.popleft() for _ in range(min(maximum, len(self._returned)))]
        self._take_more(taken, maximum)
        return taken

    def _take_more(self, taken: List[Item], maximum: int) -> None:
        while len(taken) < maximum and not self._is_over:
            try:
                taken.append(next(self._calls))
            except StopIteration:
                self._is_over = True
            except Exception as error:
                self._is_over, self.error = True, error

    def put_back(self, items: Sequence[Item]) -> None:
        """Items that were taken are the next ones again."""
        self._returned.extendleft(reversed(items))

    def stop(self, error: Exception) -> None:
        """Nothing more is taken, and the error follows the results."""
        self._returned.clear()
        self._is_over, self.error = True, error

    async def close(self) -> None:
        """Close generators, as leaving a `for` loop early does."""
        for iterator in self._iterators:
            close = getattr(iterator, "close", None)
            if callable(close):
                close()


class AsyncItemSource(ItemSource):
    """Items of asynchronous iterables, or of both kinds, which a task fetches ahead.

    Parameters:
        iterators: of the iterables.
    """

    def __init__(self, iterators: Sequence[AsyncIterator[Any]]) -> None:
        super().__init__(iter(()), iterators)
        self._fetched: Deque[Item] = deque()
        self._wanted = 1  # how many to fetch ahead
        self._is_wanted = asyncio.Event()
        self._fetching: Optional[asyncio.Future[None]] = None

    @property
    def has_ended(self) -> bool:
        return super().has_ended and not self._fetched

    def start(self) -> None:
        self._fetching = asyncio.ensure_future(self._fetch())

    def _take_more(self, taken: List[Item], maximum: int) -> None:
        while len(taken) < maximum and self._fetched:
            taken.append(self._fetched.popleft())
        self._wanted = maximum
        self._is_wanted.set()

    def stop(self, error: Exception) -> None:
        self._fetched.clear()
        super().stop(error)

    async def _fetch(self) -> None:
        try:
            while not self._is_over:
                while len(self._fetched) >= self._wanted:
                    self._is_wanted.clear()
                    await self._is_wanted.wait()
                self._fetched.append(tuple([await each.__anext__() for each in self._iterators]))
                self.on_change()
        except StopAsyncIteration:
            pass
        except Exception as error:
            self.error = self.error or error
        finally:
            self._is_over = True
            self.on_change()

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])
        for iterator in self._iterators:
            close = getattr(iterator, "aclose", None)
            if callable(close):
                await close()


async def _async(iterable: Iterable[Any]) -> AsyncIterator[Any]:
    for item in iterable:
        yield item


def source_of(iterables: Sequence[AnyIterable]) -> ItemSource:
    """The source of calls with an item of each of the iterables.

    Raises ArgumentTypeError if there is none, or one of them is no iterable.
    """
    if not iterables:
        raise ArgumentTypeError("map_stream() needs at least one iterable")
    for each in iterables:
        if not isinstance(each, (Iterable, AsyncIterable)):
            raise ArgumentTypeError(f"map_stream() needs iterables or async iterables, not {type(each).__name__}")
    if not any(isinstance(each, AsyncIterable) for each in iterables):
        iterators: List[Iterator[Any]] = [iter(each) for each in iterables if isinstance(each, Iterable)]
        return ItemSource(zip(*iterators), iterators)
    return AsyncItemSource(
        [each.__aiter__() if isinstance(each, AsyncIterable) else _async(each) for each in iterables]
    )


class Batch(NamedTuple):
    """Results of consecutive items.

    Parameters:
        first: the position of the first item.
    """

    first: int
    results: List[Any]


class LoopStream:
    """The results of calls, in batches.

    Parameters:
        total: how many calls there are, if that is known.
    """

    def __init__(
        self,
        shell: LoopShell,
        sender: Sender,
        planner: ChunkPlanner,
        source: ItemSource,
        keeps_order: bool,
        total: Optional[int] = None,
    ) -> None:
        self._shell = shell
        self._sender = sender
        self._planner = planner
        self._source = source
        self._keeps_order = keeps_order
        self._total = total
        self._next = 0  # position of the next item
        self._has_let_go = False  # of the function
        self._running: Dict[TaskFuture[Any], SentChunk] = {}
        self._sent: Deque[SentChunk] = deque()  # whose results were not taken, in order
        self._ended: Deque[SentChunk] = deque()  # of these, those that have ended
        self._wake = asyncio.Event()
        planner.limit(sender.maximum_items)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """The results; then the exception of an item or of the source, if there is one."""
        source = self._source
        source.on_change = self._wake.set
        try:
            await self._shell.wait_for_slots(SLOTS_TIMEOUT_SECONDS)
            source.start()
            while True:
                self._fill()
                chunk = self._take()
                if chunk is not None:
                    outcome = chunk.outcome
                    assert outcome is not None
                    if outcome.results:
                        yield Batch(chunk.first, outcome.results)
                    self._planner.yielded(chunk.count)
                    if outcome.error is not None:
                        raise outcome.error
                elif source.has_ended and not self._sent:
                    if source.error is not None:
                        raise source.error
                    return
                else:
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self.abandon()
            await source.close()

    def _fill(self) -> None:
        """Send chunks as far as there are items and room."""
        slots = max(1, self._shell.slots)
        while not self._source.has_ended:
            count = self._planner.next_items(slots, None if self._total is None else self._total - self._next)
            items = self._source.take(count) if count else []
            if not items:
                return
            self._send(items)

    def _send(self, items: List[Item]) -> None:
        try:
            future: Any = self._sender.send(self._next, items)
        except TooManyReferences as error:
            if len(items) > 1:
                self._planner.limit(len(items) // 2)
                self._source.put_back(items)
            else:
                self._source.stop(error)
            return
        except Exception as error:
            self._source.stop(error)
            return
        chunk = SentChunk(self._next, len(items))
        self._running[future] = chunk
        self._sent.append(chunk)
        self._planner.sent(len(items))
        self._next += len(items)
        future.add_done_callback(self._on_done)

    def _on_done(self, future: Any) -> None:
        chunk = self._running.pop(future, None)
        if chunk is None:
            return  # the stream was left
        outcome = self._sender.outcome(future, chunk.first, chunk.count)
        if isinstance(outcome.error, asyncio.CancelledError):
            try:
                self._shell.check_open()
            except Exception as error:
                outcome = ChunkOutcome([], 0.0, error)
        chunk.outcome = outcome
        self._planner.ended(len(outcome.results), outcome.seconds, time.monotonic() - chunk.sent_at)
        self._ended.append(chunk)
        self._wake.set()

    def abandon_from_any_thread(self) -> None:
        """As `abandon`; called by the garbage collector."""
        if self._running or not self._has_let_go:
            self._shell.call(self.abandon)

    def _take(self) -> Optional[SentChunk]:
        """A chunk whose results are to be yielded now."""
        if not self._keeps_order:
            if not self._ended:
                return None
            chunk = self._ended.popleft()
            self._sent.remove(chunk)  # one of few
            return chunk
        if not self._sent or self._sent[0].outcome is None:
            return None
        self._ended.clear()
        return self._sent.popleft()

    def abandon(self) -> None:
        """Cancel what is unfinished, and let go of the function. Idempotent."""
        running, self._running = list(self._running), {}
        self._shell.cancel_soon(running)
        if not self._has_let_go:
            self._has_let_go = True
            self._sender.close()


class AsyncResults(AsyncIterator[R]):
    """What `map_stream` returns: the results one by one, for `async for`."""

    def __init__(self, stream: LoopStream) -> None:
        self._stream = stream
        self._results = _one_by_one(stream)

    def __aiter__(self) -> AsyncResults[R]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, R]:
        following: Any = self._results.__anext__()
        return following  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        """Cancel what is unfinished, and close the source."""
        await self._results.aclose()

    def __del__(self) -> None:
        """The loop closes generators later than their users forget them; what runs for them is cancelled at once."""
        self._stream.abandon_from_any_thread()


async def _one_by_one(stream: LoopStream) -> AsyncGenerator[Any, None]:
    batches = stream.batches()
    try:
        async for batch in batches:
            for result in batch.results:
                yield result
    finally:
        await batches.aclose()
