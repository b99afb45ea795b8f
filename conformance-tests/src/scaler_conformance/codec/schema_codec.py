"""Messages: built and read with pycapnp from the schema that the suite carries.

Rules:
- This is the only module that knows Cap'n Proto. It shares nothing with the implementations: a codec that is tested by
  itself agrees with its own mistakes.
- Types and fields have the names of the schema, such as `TaskResult` and `payloadSizes`, so that cases, specification
  and traces read alike.
- A message is judged by its decoded content, never by its bytes: Cap'n Proto allows many encodings.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

import capnp

from scaler_conformance.judging.register import SPECIFICATION

capnp.remove_import_hook()

_MOST_SHOWN = 8


class UnreadableMessageError(Exception):
    """The frames are not a valid message."""


class Struct:
    """Fields by their names in the schema: `message.options.profiling`. Enums are texts, lists are lists."""

    def __init__(self, fields: Dict[str, Any]) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this struct has no field {name}; it has {', '.join(self.__dict__)}")

    def fields(self) -> Dict[str, Any]:
        return dict(self.__dict__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        shown = [f"{name}={_shown(value)}" for name, value in self.__dict__.items() if not _is_default(value)]
        return f"({', '.join(shown)})"


class Message:
    """A message that was sent or received: its type, its fields as attributes, and its payload.

    `position` is the number of the message in its conversation, in the order of arrival.
    """

    def __init__(self, type_: str, fields: Dict[str, Any], payload: bytes = b"", position: int = 0) -> None:
        self.type = type_
        self.body = Struct(fields)
        self.payload = payload
        self.position = position

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["body"], name)

    if TYPE_CHECKING:  # a field that is set hides the one that was received

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __repr__(self) -> str:
        payload = f" + {len(self.payload)} bytes {_excerpt(self.payload)}" if self.payload else ""
        return f"{self.type}{self.body}{payload}"


def _is_default(value: Any) -> bool:
    return not value or (isinstance(value, Struct) and all(_is_default(each) for each in value.fields().values()))


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) > _MOST_SHOWN:
        return f"[{', '.join(map(repr, value[:_MOST_SHOWN]))}, ... {len(value)} entries]"
    if isinstance(value, (bytes, str)) and len(value) > 80:
        return f"{value[:80]!r}... ({len(value)} {'bytes' if isinstance(value, bytes) else 'characters'})"
    return repr(value)


def _excerpt(payload: bytes) -> str:
    return repr(payload[:60]) + ("..." if len(payload) > 60 else "")


class Schema:
    """The messages of one version of the protocol.

    Parameters:
        folder: of the `.capnp` files.
    """

    def __init__(self, folder: Path) -> None:
        parser = capnp.SchemaParser()
        self._module = parser.load(str(folder / "message.capnp"))
        self._common = parser.load(str(folder / "common.capnp"))
        self._modules = [parser.load(str(path)) for path in sorted(folder.glob("*.capnp"))]
        self._members: List[str] = list(self._module.Message.schema.fields)
        self.types = [_type_name(member) for member in self._members]

    def encode(self, type_: str, fields: Dict[str, Any], segmented: bool = False) -> bytes:
        """Frame 0 of a message.

        Parameters:
            segmented: use as many segments, and so far pointers, as possible.

        Raises KeyError for a type that the schema does not have, and an exception of pycapnp for such a field.
        """
        options = {"num_first_segment_words": 1, "allocate_seg_callable": _smallest_segment} if segmented else {}
        root = self._module.Message.new_message(**options)
        root.from_dict({self._member(type_): fields})
        return bytes(root.to_bytes())

    def decode(self, frames: Sequence[bytes]) -> Tuple[str, Dict[str, Any]]:
        """The type and fields of a message.

        Raises UnreadableMessageError.
        """
        try:
            with self._module.Message.from_bytes(frames[0], **_limits(frames[0])) as root:
                member = str(root.which())
                return _type_name(member), _plain_fields(getattr(root, member))
        except (capnp.KjException, IndexError, ValueError, UnicodeDecodeError) as error:
            raise UnreadableMessageError(_reason(error)) from None

    def type_of(self, frame: bytes) -> str:
        """The type that a header claims, even if the rest of it is invalid; empty if even that cannot be read."""
        try:
            with self._module.Message.from_bytes(frame, **_limits(frame)) as root:
                return _type_name(str(root.which()))
        except (capnp.KjException, ValueError):
            return ""

    def decode_failure(self, payload: bytes) -> Struct:
        """The Failure in the payload of a task.

        Raises UnreadableMessageError.
        """
        try:
            with self._common.Failure.from_bytes(payload, **_limits(payload)) as root:
                return Struct(_plain_fields(root))
        except (capnp.KjException, ValueError, UnicodeDecodeError) as error:
            raise UnreadableMessageError(_reason(error)) from None

    def encode_failure(self, **fields: Any) -> bytes:
        """The payload of a task that failed or was lost."""
        return bytes(self._common.Failure.new_message(**fields).to_bytes())

    def enum(self, name: str) -> List[str]:
        """The names of an enum of the schema in the order of their numbers: `enum("TaskStatus")`."""
        for module in self._modules:
            if hasattr(module, name):
                numbers: Dict[str, int] = getattr(module, name).schema.enumerants
                return sorted(numbers, key=lambda each: numbers[each])
        raise KeyError(name)

    def _member(self, type_: str) -> str:
        member = type_[0].lower() + type_[1:]
        if member not in self._members:
            raise KeyError(f"the schema has no message {type_}")
        return member


def _limits(frame: bytes) -> Dict[str, int]:
    """Limits for readers, so that a small frame whose pointers repeat the same words cannot exhaust the memory."""
    return {"traversal_limit_in_words": len(frame) + 65536, "nesting_limit": 64}


def _reason(error: Exception) -> str:
    """The readable sentence at the end of pycapnp's message."""
    return (str(error).strip().splitlines() or [repr(error)])[0].rpartition("; ")[2]


def _smallest_segment(words: int) -> bytearray:
    return bytearray(8 * words)


def _type_name(member: str) -> str:
    return member[0].upper() + member[1:]


def _plain_fields(reader: Any) -> Dict[str, Any]:
    return {name: _plain(getattr(reader, name)) for name in reader.schema.fields}


def _plain(value: Any) -> Any:
    kind = type(value).__name__
    if kind == "_DynamicStructReader":
        return Struct(_plain_fields(value))
    if kind == "_DynamicListReader":
        return [_plain(each) for each in value]
    if kind == "_DynamicEnum":
        try:
            return str(value)
        except (capnp.KjException, RuntimeError):
            return f"#{value.raw}"
    return value


SCHEMA = Schema(SPECIFICATION / "schema")
"""The version of the protocol that the suite tests."""
