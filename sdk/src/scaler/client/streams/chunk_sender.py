"""Sends the items of a map as tasks, and reads what came of each.

    items ─▶ ChunkSender: one task for a chunk ─┐
    item  ─▶ CallSender: one task for a call   ─┴▶ future ─▶ ChunkOutcome: results, seconds, error

Rules:
- The function is serialised once, when the map begins: every call sees it as it was then.
- With a time limit or `at_most_once`, a chunk is a single item, because these options apply to the user's calls.
- An error says which item it is about, as closely as that is known.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from scaler.client.functions import FunctionRecord, function_name
from scaler.client.future import ScalerFuture
from scaler.client.mapping import Chunk, ChunkOfStream, add_note
from scaler.client.shell.future_internals import taken_result
from scaler.client.streams.chunk_planner import MAXIMUM_CHUNK_ITEMS
from scaler.client.submission import Submission
from scaler.exceptions import ScalerError, SerializeObjectError, TooManyReferences
from scaler.values.failures import load_failure

Item = Tuple[Any, ...]


class ChunkOutcome(NamedTuple):
    """What came of a chunk.

    Parameters:
        results: of its items, or of those before the one that has failed.
        seconds: how long these took; 0 if that is unknown.
        error: of the item that has failed, or of the chunk; None if there is none.
    """

    results: List[Any]
    seconds: float
    error: Optional[BaseException]


class Sender(Protocol):
    """What sends the items of a map.

    Attributes:
        made: the future of the last task, or of the one that was being submitted when Ctrl-C came; it may be empty.
    """

    maximum_items: int
    name: str
    made: List[ScalerFuture[Any]]

    def send(self, first: int, items: Sequence[Item]) -> ScalerFuture[Any]:
        """Submit items as a task.

        Parameters:
            first: the position of the first of them.

        Raises TooManyReferences if they refer to more objects than a task can, and what `submit` raises.
        """

    def outcome(self, future: ScalerFuture[Any], first: int, count: int) -> ChunkOutcome:
        """What came of the task of `count` items, which is done."""

    def close(self) -> None:
        """No more items follow. Called at any moment in any thread, by the garbage collector too; idempotent."""


class ChunkSender:
    """Sends chunks.

    Parameters:
        is_unpacked: see `Chunk`.
        keeps_results: of a chunk with an item that fails, the results before it come back.

    Raises what `submit` raises because of the function.
    """

    def __init__(
        self, client: Submission, function: Callable[..., Any], is_unpacked: bool = False, keeps_results: bool = True
    ) -> None:
        self.name = function_name(function)
        self._client = client
        self._chunk = (ChunkOfStream if keeps_results else Chunk)(function, is_unpacked)
        options = client._options
        self.maximum_items = 1 if options.timeout or options.at_most_once else MAXIMUM_CHUNK_ITEMS
        record = client._register(self._chunk)
        while not client._shell.functions.hold(record):
            record = client._register(self._chunk)
        self._record: Optional[FunctionRecord] = record
        self.made: List[ScalerFuture[Any]] = []

    def send(self, first: int, items: Sequence[Item]) -> ScalerFuture[Any]:
        assert self._record is not None
        self.made.clear()
        try:
            return self._client._submit_held(self._record, self._chunk, (first, items), {}, self.made)
        except TooManyReferences as error:
            if len(items) == 1:
                add_note(error, f"(item {first} of map)")
            raise
        except SerializeObjectError as error:
            _name_items(error, first, len(items))
            raise

    def outcome(self, future: ScalerFuture[Any], first: int, count: int) -> ChunkOutcome:
        try:
            seconds, results, *failure = taken_result(future)
            if failure:
                return ChunkOutcome(results, seconds, load_failure(failure[0], self.name))
            return ChunkOutcome(results, seconds, None)
        except KeyboardInterrupt:  # from the user who waits
            raise
        except BaseException as error:
            _name_items(error, first, count)
            return ChunkOutcome([], 0.0, error)

    def close(self) -> None:
        record, self._record = self._record, None
        if record is not None:
            self._client._shell.functions.let_go_later(record)


class CallSender:
    """Sends each item as a task of its own.

    Parameters:
        submit: called with the item's arguments; returns the future.
        name: of the function.
    """

    maximum_items = 1

    def __init__(self, submit: Callable[..., ScalerFuture[Any]], name: str) -> None:
        self._submit = submit
        self.name = name
        self.made: List[ScalerFuture[Any]] = []

    def send(self, first: int, items: Sequence[Item]) -> ScalerFuture[Any]:
        try:
            return self._submit(*items[0])
        except (SerializeObjectError, TooManyReferences) as error:
            add_note(error, f"(item {first} of map)")
            raise

    def outcome(self, future: ScalerFuture[Any], first: int, count: int) -> ChunkOutcome:
        try:
            return ChunkOutcome([taken_result(future)], 0.0, None)
        except KeyboardInterrupt:  # from the user who waits
            raise
        except BaseException as error:
            add_note(error, f"(raised by item {first} of map)")
            return ChunkOutcome([], 0.0, error)

    def close(self) -> None:
        pass


def _name_items(error: BaseException, first: int, count: int) -> None:
    """Note which items an error may be about, unless it was raised by one of them and says so."""
    if not isinstance(error, ScalerError) or error.__dict__.get("__notes__"):
        return
    add_note(
        error,
        f"(item {first} of map)" if count == 1 else f"(one of the items {first} to {first + count - 1} of map)",
    )
