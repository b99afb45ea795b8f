"""Futures inside the arguments of a task.

    submit(g, f) ──pickling──▶ NeededFutures: f is done ──▶ its result, as it came from the worker, in the arguments
                                     │
                                     └── f is not done ──▶ a place for its result, and a predecessor of g

Rules:
- Whatever pickling reaches may hold a future: lists, dictionaries, attributes. A task gets the value in its place.
- Nothing is loaded and nothing is waited for here.
- A future means something to its own client alone, and only in arguments: elsewhere it is refused by name.
"""

from __future__ import annotations

import pickle
import threading
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED
from operator import getitem
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from scaler.exceptions import ArgumentTypeError, DependencyError, InvalidArgumentError
from scaler.serializer import Serializer
from scaler.values.failures import load_failure
from scaler.values.payload import ObjectReference, Parts, ResultOf, contains, dump_arguments, load_value

if TYPE_CHECKING:
    from scaler.client.future import ScalerFuture
    from scaler.client.shell.client_shell import ClientCore

_NOT_IN_ARGUMENTS = (
    "a future cannot be part of a function, a result or an object: pass it to submit() as an argument, or pass its"
    " result()"
)

_dumping = threading.local()


class NeededFutures:
    """The futures met while the arguments of one task are pickled.

    Parameters:
        core: the client's that the task is submitted to.
    """

    def __init__(self, core: ClientCore) -> None:
        self.futures: List[ScalerFuture] = []  # without a result, in the order in which they were met
        self._core = core
        self._positions: Dict[int, int] = {}  # by identity

    def check(self, future: ScalerFuture) -> None:
        """Raises InvalidArgumentError when the task cannot have the future's result."""
        if future._client._core is not self._core:
            raise InvalidArgumentError(
                f"{future!r} belongs to another client: pass its result(), or submit the task there"
            )
        if future._is_neutral:
            raise InvalidArgumentError(
                f"{future!r} is of a function called by name, in a codec of its own: pass its result()"
            )

    def place_of(self, future: ScalerFuture) -> Optional[int]:
        """The future's place among the predecessors; None when it has its result."""
        if id(future) not in self._positions:
            before, future._keeps_content = future._keeps_content, True  # its result may be loaded at any moment
            if future._state == FINISHED and not has_failed(future):
                future._keeps_content = before
                return None
            self._positions[id(future)] = len(self.futures)
            self.futures.append(future)
        return self._positions[id(future)]

    def reduce(self, future: ScalerFuture) -> Tuple[Any, ...]:
        self.check(future)
        place = self.place_of(future)
        if place is not None:
            return ResultOf(place).__reduce__()
        content = content_of(future)
        if content is not None:
            return load_value, (pickle.PickleBuffer(content), None)
        return getitem, ([future._result], 0)  # the value itself: a reduction needs a call

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


def reduce_future(future: ScalerFuture) -> Tuple[Any, ...]:
    """`ScalerFuture.__reduce__`."""
    needed: Optional[NeededFutures] = getattr(_dumping, "needed", None)
    if needed is None:
        raise ArgumentTypeError(_NOT_IN_ARGUMENTS)
    return needed.reduce(future)


def dump_with_futures(
    core: ClientCore,
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
    serializer: Optional[Serializer],
    references: List[ObjectReference],
) -> Tuple[Parts, List[ScalerFuture]]:
    """As `dump_arguments`; returns the futures, too, whose results the task has to wait for."""
    needed = NeededFutures(core)
    if serializer is not None:
        args, kwargs = needed.stand_in(args), needed.stand_in(kwargs)
        return dump_arguments(args, kwargs, serializer, references), needed.futures
    _dumping.needed = needed
    try:
        return dump_arguments(args, kwargs, None, references), needed.futures
    finally:
        _dumping.needed = None


# What is known of a future that is done ------------------------------------------------------------------------------


def is_cancelled(future: ScalerFuture) -> bool:
    return future._state in (CANCELLED, CANCELLED_AND_NOTIFIED)


def has_failed(future: ScalerFuture) -> bool:
    """Whether a future that is done has an exception, without loading it."""
    return future._has_failed or future._exception is not None


def content_of(future: ScalerFuture) -> Any:
    """The bytes of a future's result as they came, if they are still here."""
    return future._content if future._payload is None else future._payload


def origin_of(failed: ScalerFuture) -> Optional[ScalerFuture]:
    """Whose failure it is that a future has: its own, or that of a task which it needed; None: of one unknown here."""
    return failed if failed._inherited_from is None else failed._inherited_from[0]


def dependency_error(future: ScalerFuture, cause: Optional[ScalerFuture], payload: bytes) -> DependencyError:
    """What a future raises whose task needed, directly or through others, one that failed.

    Parameters:
        cause: the future of that task, if it is known.
        payload: the failure, as it came.
    """
    if cause is None:
        failed, error = "a task that it needs", load_failure(payload)
    else:
        failed, error = _title(cause), cause.exception()  # type: ignore[assignment]
    text = f"{_title(future)} was not run, because {failed} has failed: {type(error).__name__}: {error}"
    dependent = DependencyError(text)
    dependent.__cause__ = error
    return dependent


def _title(future: ScalerFuture) -> str:
    name = f" of {future._function.name}" if future._function is not None and future._function.name else ""
    return f"task {future.task_id}{name}"
