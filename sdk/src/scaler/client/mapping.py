"""`map`: many small calls in few tasks.

Rules:
- Items are cut into chunks; one chunk is one task, one pickle there and one back.
- The size of a chunk follows the measured duration of an item: about TARGET_SECONDS of work, and never so much that
  the last chunks leave slots idle. The first chunks are single items, because nothing is known yet.
- If the items of a chunk refer to more objects than a task can, chunks are smaller from there on.
- With a time limit or `at_most_once`, a chunk is a single item, because these options apply to the user's calls.
- An item that fails fails the map with its own exception, which says which item it was; a lost worker costs its
  chunks, which run again elsewhere, not the call.
"""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from scaler import blocking
from scaler.client.functions import FunctionRecord, function_name
from scaler.client.future import ScalerFuture
from scaler.client.progress_bar import NO_BAR, Bar, wait
from scaler.client.submission import Submission
from scaler.exceptions import ArgumentTypeError, ScalerError, SerializeObjectError, TooManyReferences
from scaler.values.coroutines import Runner, in_loop

TARGET_SECONDS = 0.05
CHUNKS_AHEAD = 2  # for each slot
MAXIMUM_CHUNK_ITEMS = 10_000
SLOTS_TIMEOUT_SECONDS = 1.0


WAYS_OUT = "pass unpack=False to call the function with each item as it is, or use starmap() for tuples of arguments"


def calls_of_map(iterables: Sequence[Iterable[Any]], unpack: Optional[bool]) -> Tuple[List[Tuple[Any, ...]], bool]:
    """The arguments of each call of `map`, and whether they are items that were unpacked because the first is a tuple.

    Raises ArgumentTypeError if that is not clear, and whatever the iterables raise.
    """
    if not iterables:
        raise ArgumentTypeError("map() needs at least one iterable")
    if unpack is not None and not isinstance(unpack, bool):
        raise ArgumentTypeError(f"unpack must be True, False or None, got {unpack!r}")
    if len(iterables) > 1:
        if unpack:
            raise ArgumentTypeError("unpack=True needs a single iterable, of the arguments of each call")
        return list(zip(*iterables)), False
    items = list(iterables[0])
    if unpack:
        return [tuple(item) for item in items], False
    if unpack is None and items and type(items[0]) is tuple:
        for position, item in enumerate(items):
            if type(item) is not tuple:
                raise ArgumentTypeError(
                    f"item {position} of map is of type {type(item).__name__}, but the first is a tuple, so that each"
                    f" item is the arguments of a call: {WAYS_OUT}"
                )
        return items, True
    return [(item,) for item in items], False


class Chunk:
    """The function of a chunk's task: calls the user's function for each item.

    Parameters:
        is_unpacked: the items were unpacked because the first is a tuple, which the user may not have meant.
    """

    __slots__ = ("function", "is_unpacked", "__weakref__")

    def __init__(self, function: Callable[..., Any], is_unpacked: bool = False) -> None:
        self.function = function
        self.is_unpacked = is_unpacked

    def __call__(self, first: int, items: Sequence[Tuple[Any, ...]]) -> Tuple[float, List[Any]]:
        """Returns how long it took, in seconds, and the results."""
        begin = time.perf_counter()
        results: List[Any] = []
        try:
            with Runner() as runner:
                function = in_loop(self.function, runner)
                for item in items:
                    results.append(function(*item))
        except BaseException as error:
            if self.is_unpacked and type(error) is TypeError and _was_raised_by_call(error):
                reason = f"the items of map are tuples, and this one was unpacked into {len(item)} arguments"
                error.args = (f"{error} ({reason}: {WAYS_OUT})",)
            add_note(error, f"(raised by item {first + len(results)} of map)")
            raise
        return time.perf_counter() - begin, results

    def __reduce__(self) -> Tuple[Any, ...]:
        return (Chunk, (self.function, self.is_unpacked))


def _was_raised_by_call(error: TypeError) -> bool:
    """Whether the call itself failed, rather than the function."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def add_note(error: BaseException, note: str) -> None:
    """Append a note to an exception, as `add_note` of Python 3.11 does, also where its class allows no new attributes,
    as frozen data classes do not. Does nothing if a note cannot be added."""
    try:
        error.__dict__["__notes__"] = [*error.__dict__.get("__notes__", ()), note]
    except BaseException:
        pass


def run_map(
    client: Submission, function: Callable[..., Any], items: List[Tuple[Any, ...]], is_unpacked: bool = False
) -> List[Any]:
    """Run `function(*item)` for each item in the cluster; returns the results in order."""
    if not items:
        return []
    chunk = Chunk(function, is_unpacked)
    # Once, and not with each chunk: every call sees the function as it is now.
    record = client._register(chunk)
    while not client._shell.functions.hold(record):
        record = client._register(chunk)
    try:
        with Bar(client._options.progress, len(items), function_name(function)) as bar:
            return _Map(client, chunk, record, items, bar).run()
    finally:
        client._shell.functions.let_go(record)


class _Map:
    def __init__(
        self, client: Submission, chunk: Chunk, record: FunctionRecord, items: List[Tuple[Any, ...]], bar: Bar
    ) -> None:
        self._client = client
        self._bar = bar
        self._chunk = chunk
        self._record = record
        self._items = items
        client._shell.wait_for_slots(SLOTS_TIMEOUT_SECONDS)
        # Options that may end a task or forbid running it twice apply to one item only if the task is that item.
        is_fragile = client._options.timeout or client._options.at_most_once
        self._maximum_items = 1 if is_fragile else MAXIMUM_CHUNK_ITEMS
        self._next = 0
        self._item_seconds = 0.0  # 0 while unknown
        self._running: Dict[ScalerFuture, int] = {}  # position of the first item
        self._sizes: Dict[int, int] = {}  # of the running chunks, by position of the first item
        self._results: Dict[int, List[Any]] = {}
        self._failed: Dict[int, BaseException] = {}

    def run(self) -> List[Any]:
        try:
            while not self._failed and (self._running or self._next < len(self._items)):
                self._submit_more()
                self._collect()
        finally:
            for future in self._running:
                future.cancel(0.0, force=False)
        if self._failed:
            raise self._failed[min(self._failed)]
        return [result for first in sorted(self._results) for result in self._results[first]]

    @property
    def _slots(self) -> int:
        """How many calls run at once, as last heard: workers may join while the map runs."""
        return max(1, self._client._shell.slots)

    def _submit_more(self) -> None:
        while self._next < len(self._items) and len(self._running) < CHUNKS_AHEAD * self._slots:
            if self._item_seconds == 0.0 and len(self._running) >= self._slots:
                return  # wait for the first measurement
            chunk = self._items[self._next : self._next + self._chunk_items()]
            try:
                future = self._client._submit_held(self._record, self._chunk, (self._next, chunk), {})
            except TooManyReferences as error:
                if len(chunk) == 1:
                    add_note(error, f"(item {self._next} of map)")
                    raise
                self._maximum_items = len(chunk) // 2
                continue
            except SerializeObjectError as error:
                self._name_items(error, self._next, len(chunk))
                raise
            self._running[future] = self._next
            self._sizes[self._next] = len(chunk)
            self._next += len(chunk)

    def _chunk_items(self) -> int:
        if self._item_seconds == 0.0:
            return 1
        fair = (len(self._items) - self._next) // (CHUNKS_AHEAD * self._slots) + 1
        return max(1, min(int(TARGET_SECONDS / self._item_seconds), fair, self._maximum_items))

    def _name_items(self, error: BaseException, first: int, count: int) -> None:
        """Note which items an error may be about, unless it was raised by one of them and says so."""
        if not isinstance(error, ScalerError) or getattr(error, "__notes__", None):
            return
        add_note(
            error,
            f"(item {first} of map)" if count == 1 else f"(one of the items {first} to {first + count - 1} of map)",
        )

    def _collect(self) -> None:
        with blocking.announced():
            done = wait(self._running, NO_BAR, return_when=FIRST_COMPLETED).done
        for future in done:
            first = self._running.pop(future)  # type: ignore[call-overload]
            try:
                seconds, results = future.result()
            except BaseException as error:
                self._name_items(error, first, self._sizes.pop(first))
                self._failed[first] = error
                continue
            del self._sizes[first]
            self._results[first] = results
            self._bar.add(len(results))
            measured = max(seconds / len(results), 1e-7)
            self._item_seconds = measured if self._item_seconds == 0.0 else (self._item_seconds + measured) / 2
