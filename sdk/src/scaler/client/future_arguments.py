"""Futures inside the arguments of a task.

    submit(g, f) ──pickling──▶ NeededFutures: f is done ──▶ its result, as it came from the worker, in the arguments
                                     │
                                     └── f is not done ──▶ a place for its result, and a predecessor of g

Rules:
- A future may be anywhere that pickling reaches: in lists, dictionaries, attributes. The task gets its result instead.
- Nothing is loaded and nothing is waited for here.
- Only the future's own client accepts it, and only in arguments: elsewhere it is refused with a named error.
"""

from __future__ import annotations

import pickle
import threading
from operator import getitem
from typing import Any, Dict, List, Optional, Tuple

from scaler.client.shell.future_internals import content_of, has_failed, result_if_loaded, set_attribute
from scaler.exceptions import ArgumentTypeError, DependencyError, InvalidArgumentError
from scaler.serializer import Serializer
from scaler.values.failures import load_failure
from scaler.values.payload import ObjectReference, Parts, ResultOf, contains, dump_arguments, load_value

_NOT_IN_ARGUMENTS = (
    "a future cannot be part of a function, a result or an object: pass it to submit() as an argument, or pass its"
    " result()"
)

_dumping = threading.local()


class NeededFutures:
    """The futures met while the arguments of one task are pickled.

    Parameters:
        shell: of the client that the task is submitted to.
    """

    def __init__(self, shell: object) -> None:
        self.futures: List[Any] = []  # without a result, in the order in which they were met
        self._shell = shell
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
        """The future's place among the predecessors; None when it has its result."""
        if id(future) not in self._positions:
            before = future._keeps_content
            set_attribute(future, "_keeps_content", True)  # its result may be loaded at any moment
            if future.is_finished and not has_failed(future):
                set_attribute(future, "_keeps_content", before)
                return None
            self._positions[id(future)] = len(self.futures)
            self.futures.append(future)
        return self._positions[id(future)]

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
) -> Tuple[Parts, List[Any]]:
    """Like `dump_arguments`; also returns the futures whose results the task has to wait for."""
    needed = NeededFutures(shell)
    if serializer is not None:
        args, kwargs = needed.stand_in(args), needed.stand_in(kwargs)
        return dump_arguments(args, kwargs, serializer, references), needed.futures
    _dumping.needed = needed
    try:
        return dump_arguments(args, kwargs, None, references), needed.futures
    finally:
        _dumping.needed = None


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
