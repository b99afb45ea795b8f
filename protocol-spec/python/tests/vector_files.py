"""What is in protocol-spec/vectors: see its README.md. Pure Python, for every interpreter."""

from __future__ import annotations

import json
import re
from array import array
from enum import IntEnum
from pathlib import Path
from typing import Any, Dict, List, Type

from codec_samples import element_class

from scaler_protocol import messages as m
from scaler_protocol.wire.capnproto import Struct

VECTORS = Path(__file__).resolve().parents[2] / "vectors"


def names(kind: str) -> List[str]:
    """The names of all vectors of a kind, "valid" or "invalid"."""
    folder = VECTORS / kind
    return sorted(str(path.relative_to(folder))[: -len(".json")] for path in folder.rglob("*.json"))


def read(name: str, suffix: str = ".bin") -> bytes:
    return (VECTORS / f"{name}{suffix}").read_bytes()


def read_json(name: str) -> Dict[str, Any]:
    content: Dict[str, Any] = json.loads(read(name, ".json"))
    return content


def message_from(meaning: Dict[str, Any]) -> Any:
    """Our object of what tagged JSON says a header means."""
    if meaning["root"] == "Failure":
        return struct_from(m.Failure, meaning["fields"])
    member = meaning["member"]
    if member.startswith("#"):
        return m.UnknownMessage(int(member[1:]))
    return struct_from(getattr(m, member[0].upper() + member[1:]), meaning["fields"])


def struct_from(struct_class: Type[Struct], fields: Dict[str, Any]) -> Any:
    empty = struct_class()
    values = {snake(name): tagged["value"] for name, tagged in fields.items()}
    assert set(values) == set(struct_class.__slots__), f"{struct_class.__name__}: {sorted(values)}"
    return struct_class(
        **{name: value_from(struct_class, name, getattr(empty, name), value) for name, value in values.items()}
    )


def value_from(struct_class: Type[Struct], name: str, default: Any, value: Any) -> Any:
    if isinstance(default, bool):
        return {"true": True, "false": False}[value]
    if isinstance(default, IntEnum):
        return int(value[1:]) if value.startswith("#") else type(default)[snake(value).upper()]
    if isinstance(default, (int, float, str)):
        return type(default)(value)
    if isinstance(default, bytes):
        return bytes.fromhex(value) if isinstance(value, str) else bytes(map(int, value))
    if isinstance(default, array):
        return array(default.typecode, map(int, value))
    if isinstance(default, list):
        element = element_class(struct_class, name)
        return value if element is str else [struct_from(element, each) for each in value]
    return struct_from(type(default), value)


def snake(name: str) -> str:
    return re.sub("(?<!^)([A-Z])", r"_\1", name).lower()
