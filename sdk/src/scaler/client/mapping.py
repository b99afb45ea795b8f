"""The calls of a `map`, and the function that runs a chunk of them in a worker.

Rules:
- A chunk is one task, one pickle there and one back; `streams` decides how many items it has.
- An item that fails fails its chunk with its own exception, which says which item it was. If the chunk is to keep its
  results, those before the failed item come back, with the failure.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

from scaler.exceptions import ArgumentTypeError
from scaler.values.coroutines import OWN_FILES, Runner, in_loop
from scaler.values.failures import failure_payload
from scaler_protocol.wire.messages import FailureKind

WAYS_OUT = "pass unpack=False to call the function with each item as it is, or use starmap() for tuples of arguments"


def calls_of_map(iterables: Sequence[Iterable[Any]], unpack: Optional[bool]) -> Tuple[Iterator[Tuple[Any, ...]], bool]:
    """The arguments of each call of `map`, and whether they are items that were unpacked because the first is a tuple.

    Only the first item is taken from a single iterable here, and nothing from several. The iterator raises
    ArgumentTypeError at an item that is not a tuple where the first one is, and whatever the iterables raise.

    Raises ArgumentTypeError if there is no iterable, or `unpack` is invalid; and what the first item raises.
    """
    if not iterables:
        raise ArgumentTypeError("map() needs at least one iterable")
    if unpack is not None and not isinstance(unpack, bool):
        raise ArgumentTypeError(f"unpack must be True, False or None, got {unpack!r}")
    if len(iterables) > 1:
        if unpack:
            raise ArgumentTypeError("unpack=True needs a single iterable, of the arguments of each call")
        return zip(*iterables), False
    if unpack:
        return map(tuple, iterables[0]), False
    items = iter(iterables[0])
    first = () if unpack is not None else tuple(item for item in _first(items))
    if first and type(first[0]) is tuple:
        return _checked_tuples(chain(first, items)), True
    return zip(chain(first, items)), False


def _first(items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        yield item
        return


def _checked_tuples(items: Iterator[Any]) -> Iterator[Tuple[Any, ...]]:
    for position, item in enumerate(items):
        if type(item) is not tuple:
            raise ArgumentTypeError(
                f"item {position} of map is of type {type(item).__name__}, but the first is a tuple, so that each"
                f" item is the arguments of a call: {WAYS_OUT}"
            )
        yield item


class Chunk:
    """The function of a chunk's task: calls the user's function for each item.

    Parameters:
        is_unpacked: the items were unpacked because the first is a tuple, which the user may not have meant.
    """

    __slots__ = ("function", "is_unpacked", "__weakref__")

    def __init__(self, function: Callable[..., Any], is_unpacked: bool = False) -> None:
        self.function = function
        self.is_unpacked = is_unpacked

    def __call__(self, first: int, items: Sequence[Tuple[Any, ...]]) -> Tuple[Any, ...]:
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
            return self._failed(error, time.perf_counter() - begin, results)
        return time.perf_counter() - begin, results

    def _failed(self, error: BaseException, seconds: float, results: List[Any]) -> Tuple[Any, ...]:
        """What a chunk returns whose next item has failed, if it returns anything."""
        raise error

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (self.function, self.is_unpacked))


class ChunkOfStream(Chunk):
    """A chunk that returns the results before the item that has failed, with the failure in third place."""

    __slots__ = ()

    def _failed(self, error: BaseException, seconds: float, results: List[Any]) -> Tuple[Any, ...]:
        if not results:
            raise error
        _skip_own_frames(error)
        return seconds, results, failure_payload(FailureKind.TASK_RAISED, exception=error)


def _was_raised_by_call(error: TypeError) -> bool:
    """Whether the call itself failed, rather than the function."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _skip_own_frames(error: BaseException) -> None:
    """Let the traceback begin with the user's first frame."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        if not frames.tb_frame.f_code.co_filename.endswith((__file__, *OWN_FILES)):
            break
        frames = frames.tb_next
    BaseException.with_traceback(error, frames)  # also if its class forbids setting attributes


def add_note(error: BaseException, note: str) -> None:
    """Append a note to an exception, as `add_note` of Python 3.11 does, also where its class allows no new attributes,
    as frozen data classes do not. Does nothing if a note cannot be added."""
    try:
        error.__dict__["__notes__"] = [*error.__dict__.get("__notes__", ()), note]
    except BaseException:
        pass
