"""Payload codecs that any language can read: the arguments and results of named functions.

Rules:
- A codec converts between bytes and values, and is independent of tasks. Unsupported values and bytes raise an
  exception that says so.
- There is one object of each codec; `NEUTRAL_CODECS` has them by name.
- The protocol defines the bytes (SCL-COD-005, SCL-COD-006, SCL-COD-007), not this module.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Sequence, Tuple, Union

Buffer = Union[bytes, bytearray, memoryview]


class NeutralCodec:
    """Converts the arguments and results of named functions to and from bytes."""

    name: str

    def dump_arguments(self, arguments: Sequence[Any]) -> bytes:
        """Raises TypeError or ValueError if they are unsupported."""
        raise NotImplementedError

    def load_arguments(self, content: Buffer) -> Tuple[Any, ...]:
        """Raises ValueError if the bytes are malformed."""
        raise NotImplementedError

    def dump_result(self, value: Any) -> bytes:
        """Raises TypeError or ValueError if it is unsupported."""
        raise NotImplementedError

    def load_result(self, content: Buffer) -> Any:
        """Raises ValueError if the bytes are malformed."""
        raise NotImplementedError


class JsonCodec(NeutralCodec):
    """Arguments are an array, a result is any value."""

    name = "json"

    def dump_arguments(self, arguments: Sequence[Any]) -> bytes:
        return self.dump_result(list(arguments))

    def load_arguments(self, content: Buffer) -> Tuple[Any, ...]:
        if not len(content):
            return ()
        arguments = self.load_result(content)
        if type(arguments) is not list:
            raise ValueError(f"the arguments must be a JSON array, not {type(arguments).__name__}")
        return tuple(arguments)

    def dump_result(self, value: Any) -> bytes:
        # JSON has no NaN: readers in other languages would fail.
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def load_result(self, content: Buffer) -> Any:
        return json.loads(bytes(content), parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


class RawCodec(NeutralCodec):
    """One argument, the bytes themselves; the result likewise."""

    name = "raw"

    def dump_arguments(self, arguments: Sequence[Any]) -> bytes:
        if len(arguments) != 1:
            raise TypeError(f"codec 'raw' takes one argument, the bytes, not {len(arguments)}")
        return self.dump_result(arguments[0])

    def load_arguments(self, content: Buffer) -> Tuple[Any, ...]:
        return (bytes(content),)

    def dump_result(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"codec 'raw' takes bytes, not {type(value).__name__}")
        return bytes(value)

    def load_result(self, content: Buffer) -> Any:
        return bytes(content)


PYTHON_CODEC = "cloudpickle"
"""The codec of Python objects; see `scaler.values.payload`."""

NEUTRAL_CODECS: Dict[str, NeutralCodec] = {codec.name: codec for codec in (JsonCodec(), RawCodec())}

CODECS = (PYTHON_CODEC, *NEUTRAL_CODECS)
"""All codecs that this package supports."""
