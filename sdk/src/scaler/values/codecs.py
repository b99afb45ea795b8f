"""Payload codecs that any language can read: what named functions take and return.

Rules:
- A codec knows bytes and values, nothing of tasks. What it cannot write or read is an exception that says so.
- There is one object of each; `NEUTRAL_CODECS` has them by name.
- What the bytes are is defined by the protocol (SCL-COD-005, SCL-COD-006, SCL-COD-007), not here.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Sequence, Tuple, Union

Buffer = Union[bytes, bytearray, memoryview]


class NeutralCodec:
    """How the arguments and results of named functions become bytes."""

    name: str

    def dump_arguments(self, arguments: Sequence[Any]) -> bytes:
        """Raises TypeError or ValueError when they cannot be written."""
        raise NotImplementedError

    def load_arguments(self, content: Buffer) -> Tuple[Any, ...]:
        """Raises ValueError when the bytes are none."""
        raise NotImplementedError

    def dump_result(self, value: Any) -> bytes:
        """Raises TypeError or ValueError when it cannot be written."""
        raise NotImplementedError

    def load_result(self, content: Buffer) -> Any:
        """Raises ValueError when the bytes are none."""
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
        # There is no NaN in JSON: a reader of another language would choke on it.
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def load_result(self, content: Buffer) -> Any:
        return json.loads(bytes(content), parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


class RawCodec(NeutralCodec):
    """One argument, which is the bytes themselves; and so is the result."""

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
"""What Python objects travel in; see `scaler.values.payload`."""

NEUTRAL_CODECS: Dict[str, NeutralCodec] = {codec.name: codec for codec in (JsonCodec(), RawCodec())}

CODECS = (PYTHON_CODEC, *NEUTRAL_CODECS)
"""All that this package understands."""
