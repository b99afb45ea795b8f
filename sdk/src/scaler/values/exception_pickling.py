"""Pickling the exceptions that tasks raise, with their causes and contexts, even if parts cannot be pickled.

Rules:
- Each exception of a chain has a pickle of its own: one that cannot be pickled or loaded is left out, and the others
  are unaffected.
- An exception that does not survive its own pickle is taken apart. A part that cannot be pickled, or is too large, is
  replaced by a `NotSent`, and a long text by its beginning and end; a note in the exception says so.
- The type and text are always preserved, whatever happens to the attributes.
"""

from __future__ import annotations

import io
import operator
import pickle
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from scaler.values.exception_reduction import (
    State,
    rebuild,
    reduces_itself,
    reduction_of,
    restore,
    taken_apart,
)
from scaler.values.pickling import Pickler
from scaler.values.texts import description_of, repr_of, shortened

MAXIMUM_CHAIN = 8
"""The depth of chains of causes; the traceback that travels as text has all of them."""

_PROTOCOL = 5
_SMALL_BYTES = 2 * 1024
_LINKED_BYTES = 8 * 1024
_REPR_CHARACTERS = 200
_CAUSE: Any = BaseException.__dict__["__cause__"]
_CONTEXT: Any = BaseException.__dict__["__context__"]
_SUPPRESS: Any = BaseException.__dict__["__suppress_context__"]


class NotSent:
    """Stands for a part of an exception that could not be sent.

    Parameters:
        text: its repr there.
        reason: why.
    """

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason

    def __repr__(self) -> str:
        return f"<not sent: {self.text} ({self.reason})>"


class _Chain(NamedTuple):
    """The exceptions that led to an exception, each pickled on its own."""

    cause: Optional[bytes]
    context: Optional[bytes]
    is_context_the_cause: bool
    is_suppressed: bool


_Linked = Dict[int, Optional[bytes]]
"""Pickles of exceptions in chains, by identity; None for those that cannot be pickled."""


class _Itself:
    """Reduces an exception as its own class does, without its chain."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._error.__reduce_ex__(protocol)


def dump_exception(error: BaseException, maximum_bytes: int) -> bytes:
    """The pickle of an exception and its chain, of at most `maximum_bytes`.

    Raises whatever the exception's own reduction or loading raises, pickle.PicklingError.
    """
    return _dump(error, maximum_bytes, frozenset(), {})


def load_exception(data: bytes) -> BaseException:
    """Raises whatever unpickling raises, and pickle.UnpicklingError if the result is not an exception."""
    loaded = pickle.loads(data)
    if not isinstance(loaded, BaseException):
        raise pickle.UnpicklingError("its pickle does not contain an exception")
    return loaded


def _dump(error: BaseException, maximum_bytes: int, above: FrozenSet[int], linked: _Linked) -> bytes:
    """
    Parameters:
        above: the identities of the exceptions whose chains lead here.
        linked: the pickles of exceptions in chains so far.
    """
    above |= {id(error)}
    failed: Optional[BaseException] = None
    for is_careful, has_chain in ((False, True), (False, False), (True, True), (True, False)):
        try:
            with io.BytesIO() as stream:
                _ExceptionPickler(stream, is_careful, above if has_chain else None, linked).dump(error)
                data = stream.getvalue()
            load_exception(data)
        except BaseException as problem:  # a user's class may raise anything here, including SystemExit
            failed = problem
            continue
        if len(data) <= maximum_bytes:
            return data
        failed = failed or pickle.PicklingError(f"its pickle of {len(data)} bytes is too large")
    assert failed is not None
    raise failed


class _ExceptionPickler(Pickler):
    """Pickles exceptions.

    Parameters:
        is_careful: ignore the classes' own reductions, and replace parts that cannot be pickled.
        above: as in `_dump`; None: without chains.
    """

    def __init__(self, stream: io.BytesIO, is_careful: bool, above: Optional[FrozenSet[int]], linked: _Linked) -> None:
        super().__init__(stream, protocol=_PROTOCOL)
        self._is_careful = is_careful
        self._above = above
        self._linked = linked

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, BaseException):
            return super().reducer_override(value)
        kind = type(value)
        chain = self._chain_of(value)
        is_trusted = not self._is_careful or (reduces_itself(kind) and _round_trips(value))
        if is_trusted and reduces_itself(kind):
            return (_with_chain, (_Itself(value), chain)) if chain is not None else NotImplemented
        if is_trusted and chain is None:
            return reduction_of(value)
        arguments, state = taken_apart(value)
        if self._is_careful:
            arguments, state = _without_what_cannot_be_sent(arguments, state)
        return (rebuild, (kind, arguments), (tuple(state), chain), None, None, _restore_with_chain)

    def _chain_of(self, error: BaseException) -> Optional[_Chain]:
        cause, context = _CAUSE.__get__(error), _CONTEXT.__get__(error)
        if self._above is None or (cause is None and context is None):
            return None
        is_same = context is cause
        return _Chain(self._link(cause), None if is_same else self._link(context), is_same, _SUPPRESS.__get__(error))

    def _link(self, error: Optional[BaseException]) -> Optional[bytes]:
        above = self._above
        if error is None or above is None or id(error) in above or len(above) > MAXIMUM_CHAIN:
            return None
        if id(error) not in self._linked:
            try:
                self._linked[id(error)] = _dump(error, _LINKED_BYTES, above, self._linked)
            except BaseException:
                self._linked[id(error)] = None
        return self._linked[id(error)]


class _PartPickler(Pickler):
    """Pickles a part of an exception as a trial; exceptions in it are handled separately."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            return (_stand_in, (type(value),))
        return super().reducer_override(value)


def _stand_in(kind: Any) -> BaseException:
    return BaseException(kind)


def _round_trips(error: BaseException) -> bool:
    """Whether the reduction of its own class works, and is small."""
    try:
        return len(_tried(_Itself(error), is_exception=True)) <= _SMALL_BYTES
    except BaseException:
        return False


def _tried(value: Any, is_exception: bool = False) -> bytes:
    """The pickle of a part, which has also been loaded. Raises any exception."""
    with io.BytesIO() as stream:
        _PartPickler(stream, protocol=_PROTOCOL).dump(value)
        data = stream.getvalue()
    load_exception(data) if is_exception else pickle.loads(data)
    return data


def _without_what_cannot_be_sent(arguments: Tuple[Any, ...], state: State) -> Tuple[Tuple[Any, ...], State]:
    lost: List[str] = []

    def sent(name: str, value: Any) -> Any:
        try:
            size = len(_tried(value))
            if size <= _SMALL_BYTES:
                return value
            if type(value) is str:
                lost.append(f"{name} of {len(value)} characters was shortened")
                return shortened(value, _SMALL_BYTES)
            reason = f"its {size} bytes are too many"
        except BaseException as error:
            reason = description_of(error)
        lost.append(f"{name} could not be sent: {reason}")
        return NotSent(shortened(repr_of(value), _REPR_CHARACTERS), reason)

    is_same = len(arguments) == len(state.arguments) and all(map(operator.is_, arguments, state.arguments))
    shown = tuple(sent(f"argument {place}", value) for place, value in enumerate(state.arguments))
    attributes = {name: sent(f"attribute {name!r}", value) for name, value in state.attributes.items()}
    members = {name: sent(f"attribute {name!r}", value) for name, value in state.members.items()}
    if lost:
        notes = attributes.get("__notes__")
        attributes["__notes__"] = [*(notes if isinstance(notes, list) else ()), *(f"({each})" for each in lost)]
    return shown if is_same else arguments, State(shown, attributes, members)


# Loading ------------------------------------------------------------------------------------------------------------


def _with_chain(error: BaseException, chain: Tuple[Any, ...]) -> BaseException:
    if isinstance(error, BaseException):
        _set_chain(error, _Chain(*chain))
    return error


def _restore_with_chain(error: BaseException, state: Tuple[Any, ...]) -> None:
    own, chain = state
    restore(error, own)
    if chain is not None:
        _set_chain(error, _Chain(*chain))


def _set_chain(error: BaseException, chain: _Chain) -> None:
    cause = _load_linked(chain.cause)
    context = cause if chain.is_context_the_cause else _load_linked(chain.context)
    if cause is not None:
        _CAUSE.__set__(error, cause)
    if context is not None:
        _CONTEXT.__set__(error, context)
    _SUPPRESS.__set__(error, chain.is_suppressed)


def _load_linked(data: Optional[bytes]) -> Optional[BaseException]:
    if data is None:
        return None
    try:
        return load_exception(data)
    except KeyboardInterrupt:  # from the user who waits
        raise
    except BaseException:
        return None
