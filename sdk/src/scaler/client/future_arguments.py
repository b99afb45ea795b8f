"""Futures inside the arguments of a task.

    submit(g, f) ──pickling──▶ NeededFutures: f is done ──▶ its result, as it came from the worker, in the arguments
                                     │            └── and large ──▶ a place for its result, which is an object
                                     └── f is not done ──▶ a place for its result, and a predecessor of g

Rules:
- A future may be anywhere that pickling reaches: in lists, dictionaries, attributes. The task gets its result instead.
- Nothing is loaded and nothing is waited for here.
- Only the future's own client accepts it, and only in arguments: elsewhere it is refused with a named error.
- The places of a task are filled by the scheduler or here: if one of its futures is not done, large results of others
  are in the arguments, too.
"""

from __future__ import annotations

import pickle
import threading
from operator import getitem
from typing import Any, Dict, List, Optional, Set, Tuple

from scaler.client.placed_results import LargeResult
from scaler.client.shell.future_internals import content_of, has_failed, result_if_loaded, set_attribute
from scaler.exceptions import ArgumentTypeError, DependencyError, InvalidArgumentError
from scaler.serializer import Serializer
from scaler.values.failures import load_failure
from scaler.values.payload import (
    INLINE_BYTES,
    ObjectReference,
    Parts,
    ResultOf,
    contains,
    dump_alone,
    dump_arguments,
    load_value,
)

_NOT_IN_ARGUMENTS = (
    "a future cannot be part of a function, a result or an object: pass it to submit() as an argument, or pass its"
    " result()"
)

_FEW_NUMBERS = 1000  # which take less than INLINE_BYTES, unless they are huge
_NUMBERS = frozenset({int, float, bool, type(None), complex})

_dumping = threading.local()


class NeededFutures:
    """The futures met while the arguments of one task are pickled.

    Parameters:
        shell: of the client that the task is submitted to.
        puts_apart: large results that were arguments before are objects of their own.

    Attributes:
        futures: those without a result, in the order in which they were met.
        large: results that are objects of their own, likewise.
    """

    def __init__(self, shell: object, puts_apart: bool) -> None:
        self.futures: List[Any] = []
        self.large: List[LargeResult] = []
        self._shell = shell
        self._puts_apart = puts_apart
        self._inline: Set[int] = set()  # futures, by identity, whose results are in the arguments
        self._positions: Dict[int, int] = {}  # by identity

    def check(self, future: Any) -> None:
        """Raises InvalidArgumentError when the task cannot have the future's result."""
        if future._client._shell is not self._shell:
            raise InvalidArgumentError(
                f"{future!r} belongs to another client: pass its result(), or submit the task there"
            )
        if future._named is not None:
            raise InvalidArgumentError(
                f"{future!r} is of a function called by name, in a codec of its own: pass its result()"
            )

    def place_of(self, future: Any) -> Optional[int]:
        """The place of the future's result; None when it is to be in the arguments."""
        if id(future) in self._inline:
            return None
        if id(future) not in self._positions:
            before = future._keeps_content
            set_attribute(future, "_keeps_content", True)  # its result may be loaded at any moment
            if future.is_finished and not has_failed(future):
                large = self._large_result(future) if self._puts_apart else None
                set_attribute(future, "_keeps_content", before)
                if large is None:
                    self._inline.add(id(future))
                    return None
                self._positions[id(future)] = len(self.large)
                self.large.append(large)
            else:
                self._positions[id(future)] = len(self.futures)
                self.futures.append(future)
        return self._positions[id(future)]

    def _large_result(self, future: Any) -> Optional[LargeResult]:
        """The result of a future, if it is to be an object of its own: it is large, and was an argument before."""
        received = content_of(future)
        if received is None:
            value = result_if_loaded(future)
            if future._is_small or not _may_be_large(value):
                return None
        elif len(received) < INLINE_BYTES:
            return None
        if not future._was_argument:
            set_attribute(future, "_was_argument", True)
            return None
        if received is not None:
            return LargeResult(future, [received], is_received=True)
        needed, _dumping.needed = _dumping.needed, None
        try:
            parts = dump_alone(value)
        except Exception:  # it has futures, for example: as a part of the arguments, it may work
            return None
        finally:
            _dumping.needed = needed
        if isinstance(parts, list):
            return LargeResult(future, parts, is_received=False)
        set_attribute(future, "_is_small", True)  # to find that out each time would take as long as the arguments
        return None

    def reduce(self, future: Any) -> Tuple[Any, ...]:
        self.check(future)
        place = self.place_of(future)
        if place is not None:
            return ResultOf(place).__reduce__()
        content = content_of(future)
        if content is not None:
            return load_value, (pickle.PickleBuffer(content), None)
        return getitem, ([result_if_loaded(future)], 0)  # the value itself: a reduction needs a call

    def stand_in(self, value: Any) -> Any:
        """An argument for a user's Serializer: futures replaced at the top, and in lists, tuples and dictionaries."""
        if not contains(value, is_future):
            return value
        if is_future(value):
            self.check(value)
            place = self.place_of(value)
            return value.result() if place is None else ResultOf(place)
        if type(value) is dict:
            return {key: self.stand_in(item) for key, item in value.items()}
        return type(value)(map(self.stand_in, value))


def is_future(value: Any) -> bool:
    """Whether a value is a ScalerFuture."""
    return getattr(type(value), "_stands_for_its_result", False)


def reduce_future(future: Any) -> Tuple[Any, ...]:
    """`ScalerFuture.__reduce__`."""
    needed: Optional[NeededFutures] = getattr(_dumping, "needed", None)
    if needed is None:
        raise ArgumentTypeError(_NOT_IN_ARGUMENTS)
    return needed.reduce(future)


def dump_with_futures(
    shell: object,
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
    serializer: Optional[Serializer],
    references: List[ObjectReference],
) -> Tuple[Parts, NeededFutures]:
    """Like `dump_arguments`; also returns what the task needs of others: futures, or large results."""
    parts, needed = _dump(NeededFutures(shell, serializer is None), args, kwargs, serializer, references)
    if needed.large and needed.futures:
        del references[:]
        return _dump(NeededFutures(shell, False), args, kwargs, serializer, references)
    return parts, needed


def _dump(
    needed: NeededFutures,
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
    serializer: Optional[Serializer],
    references: List[ObjectReference],
) -> Tuple[Parts, NeededFutures]:
    if serializer is not None:
        args, kwargs = needed.stand_in(args), needed.stand_in(kwargs)
        return dump_arguments(args, kwargs, serializer, references), needed
    _dumping.needed = needed
    try:
        return dump_arguments(args, kwargs, None, references), needed
    finally:
        _dumping.needed = None


def _may_be_large(value: Any) -> bool:
    """Whether it takes pickling to know that a value is not large."""
    if type(value) in (str, bytes):
        return len(value) >= INLINE_BYTES
    if type(value) in (list, tuple):
        return len(value) > _FEW_NUMBERS or not _NUMBERS.issuperset(map(type, value))
    return type(value) not in _NUMBERS


def dependency_error(future: Any, cause: Optional[Any], payload: bytes, is_neutral: bool) -> DependencyError:
    """The exception of a future whose task needed, directly or through others, a task that failed.

    Parameters:
        cause: the future of that task, if it is known.
        payload: the failure, as received.
        is_neutral: nothing of it is to be unpickled.
    """
    if cause is None:
        failed, error = "a task that it needs", load_failure(payload, is_neutral=is_neutral)
    else:
        failed, error = _label(cause), cause.exception()
    text = f"{_label(future)} was not run, because {failed} has failed: {type(error).__name__}: {error}"
    dependent = DependencyError(text)
    dependent.__cause__ = error
    return dependent


def _label(future: Any) -> str:
    name = f" of {future._function.name}" if future._function is not None and future._function.name else ""
    return f"task {future.task_id}{name}"
