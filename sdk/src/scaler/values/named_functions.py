"""Functions that workers serve by name, in any language.

    thumbnail = NamedFunction("example.org/thumbnail", codec="raw")
    client.submit(thumbnail, image).result()

Rules:
- Only the name of the function is known here: it is sent only to workers that announce that they serve it.
- Arguments and results travel in a codec that all languages read: JSON, or raw bytes. Keyword arguments and object
  references are not supported.
- On the worker's side, a Python function can declare the codecs it accepts, and reject its arguments.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Sequence, Tuple, TypeVar

from scaler.exceptions import ArgumentTypeError, CodecNotTakenError, InvalidArgumentError
from scaler.values.codecs import NEUTRAL_CODECS, Buffer, NeutralCodec
from scaler.values.coroutines import awaited

MAXIMUM_NAME_BYTES = 255

Function = TypeVar("Function", bound=Callable[..., Any])


class NamedFunction:
    """A function that workers serve by name.

    Parameters:
        name: such as "example.org/thumbnail"; a function that Python workers can import is "python:MODULE:NAME".
        codec: how arguments and result travel. "json": any positional arguments that JSON can represent. "raw": one
            argument of bytes, and bytes as the result.

    Raises InvalidArgumentError if the name or the codec is invalid.

    Example:
        >>> client.submit(NamedFunction("python:math:hypot"), 3, 4).result()
        5.0
    """

    __slots__ = ("name", "codec", "__weakref__")

    def __init__(self, name: str, codec: str = "json") -> None:
        if not name or len(name.encode()) > MAXIMUM_NAME_BYTES or not name.isprintable():
            raise InvalidArgumentError(
                f"the function name {name!r} is invalid: use OWNER/FUNCTION, at most {MAXIMUM_NAME_BYTES} bytes"
            )
        if codec not in NEUTRAL_CODECS:
            raise InvalidArgumentError(f"codec {codec!r} is not one of {', '.join(map(repr, NEUTRAL_CODECS))}")
        self.name = name
        self.codec = codec

    @property
    def neutral_codec(self) -> NeutralCodec:
        """The codec of its payloads."""
        return NEUTRAL_CODECS[self.codec]

    def __call__(self, *arguments: Any) -> Any:  # for type checkers, this is what `submit` and `map` return
        raise ArgumentTypeError(f"{self.name} runs on workers only: call it with client.submit(function, ...)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedFunction) and (self.name, self.codec) == (other.name, other.codec)

    def __hash__(self) -> int:
        return hash((self.name, self.codec))

    def __repr__(self) -> str:
        return f"NamedFunction({self.name!r}, codec={self.codec!r})"


# Of workers ---------------------------------------------------------------------------------------------------------


class ServedFunction:
    """A Python function that is called by name, in one codec.

    Raises CodecNotTakenError.
    """

    def __init__(self, function: Callable[..., Any], codec: str) -> None:
        taken = getattr(function, "_scaler_codecs", None)
        if taken is not None and codec not in taken:
            raise CodecNotTakenError(f"the function takes codec {' and '.join(map(repr, taken))}, not {codec!r}")
        self.function = awaited(function)
        self.codec = NEUTRAL_CODECS[codec]
        try:
            self._signature: Any = inspect.signature(function)
        except (TypeError, ValueError):  # some builtin functions have no signature
            self._signature = None

    def load_arguments(self, content: Buffer) -> Tuple[Any, ...]:
        """Raises ValueError or TypeError if these are not valid arguments of the function."""
        arguments = self.codec.load_arguments(content)
        if self._signature is not None:
            self._signature.bind(*arguments)
        return arguments


def takes_codecs(*codecs: str) -> Callable[[Function], Function]:
    """Decorate a function that workers serve by name with the codecs it accepts; by default it accepts all."""
    taken: Sequence[str] = codecs

    def decorate(function: Function) -> Function:
        function._scaler_codecs = taken  # type: ignore[attr-defined]
        return function

    return decorate
