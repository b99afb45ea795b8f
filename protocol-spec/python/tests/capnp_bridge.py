"""The real Cap'n Proto, to compare with: messages built and read by pycapnp and by the `capnp` program.

Rules of this module: nothing here uses this package's codec, only its message classes. Tests that import it are skipped
where pycapnp is missing.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from array import array
from enum import IntEnum
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

from scaler_protocol import messages as m
from scaler_protocol.wire.capnproto import Struct

capnp = pytest.importorskip("capnp", reason="pycapnp is not installed", exc_type=ImportError)
capnp.remove_import_hook()

SCHEMA = Path(__file__).resolve().parents[2] / "schema"
CAPNP_PROGRAM = shutil.which("capnp")
# Text limits of the reader: these tests are about content, not about limits.
READER_LIMITS = {"traversal_limit_in_words": 2**40, "nesting_limit": 64}


def load(path: Path) -> Any:
    """A schema file, apart from all others: several versions of one schema can live side by side."""
    return capnp.SchemaParser().load(str(path))


SCHEMA_MODULE = load(SCHEMA / "message.capnp")
COMMON_MODULE = load(SCHEMA / "common.capnp")


def camel(name: str) -> str:
    head, *tail = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in tail)


def member_field(message: Struct) -> str:
    name = type(message).__name__
    return name[0].lower() + name[1:]


# --- our objects to Cap'n Proto's ---


def fill(builder: Any, value: Struct) -> None:
    """Copy the fields of our object into Cap'n Proto's builder, those that it has in its version of the schema."""
    for name in value.__slots__:
        if camel(name) not in builder.schema.fields:
            continue
        content = getattr(value, name)
        if isinstance(content, Struct):
            fill(builder.init(camel(name)), content)
        elif isinstance(content, list) and content and isinstance(content[0], Struct):
            items = builder.init(camel(name), len(content))
            for index, item in enumerate(content):
                fill(items[index], item)
        elif isinstance(content, (list, array)) or (isinstance(content, bytes) and not is_data(builder, name)):
            items = builder.init(camel(name), len(content))
            for index, item in enumerate(content):
                items[index] = item
        else:
            setattr(builder, camel(name), int(content) if isinstance(content, IntEnum) else content)


def is_data(builder: Any, name: str) -> bool:
    """Data and List(UInt8) are both bytes on our side."""
    proto = builder.schema.fields[camel(name)].proto
    return str(proto.slot.type.which()) == "data"


def build(message: Struct, schema: Any = SCHEMA_MODULE, **options: Any) -> Any:
    """Cap'n Proto's builder with the content of our `message`, as a member of the union."""
    root = schema.Message.new_message(**options)
    fill(root.init(member_field(message)), message)
    return root


def frame_of(message: Struct) -> bytes:
    return bytes(build(message, num_first_segment_words=1 << 14).to_bytes())  # one segment is enough for any sample


def segmented_frame_of(message: Struct) -> bytes:
    """The same in as many segments as can be: each object gets a segment that has room for nothing else."""
    root = build(message, num_first_segment_words=1, allocate_seg_callable=lambda words: bytearray(8 * words))
    return bytes(root.to_bytes())


# --- Cap'n Proto's objects to ours ---


def read_into(struct_class: Any, reader: Any) -> Any:
    """Our object with the content of Cap'n Proto's reader."""
    fields = {}
    empty = struct_class()
    for name in struct_class.__slots__:
        fields[name] = read_value(struct_class, name, getattr(empty, name), getattr(reader, camel(name)))
    return struct_class(**fields)


def read_value(struct_class: Any, name: str, default: Any, content: Any) -> Any:
    if isinstance(default, Struct):
        return read_into(type(default), content)
    if isinstance(default, list):
        match = re.fullmatch(r"List\[(\w+)\]", struct_class.__annotations__[name])
        assert match
        if match.group(1) == "str":
            return [str(text) for text in content]
        return [read_into(getattr(m, match.group(1)), item) for item in content]
    if isinstance(default, (bytes, array)):
        return bytes(content) if isinstance(content, bytes) else list(content)
    return content.raw if hasattr(content, "raw") else content


def read_frame(frame: bytes, schema: Any = SCHEMA_MODULE) -> Any:
    """Our message object, read by pycapnp."""
    with schema.Message.from_bytes(frame, **READER_LIMITS) as root:
        member = str(root.which())
        return read_into(getattr(m, member[0].upper() + member[1:]), getattr(root, member))


# --- the `capnp` program ---


def capnp_program(*arguments: str, content: bytes) -> bytes:
    assert CAPNP_PROGRAM
    done = subprocess.run([CAPNP_PROGRAM, *arguments], input=content, capture_output=True, check=False)
    assert not done.returncode, done.stderr.decode()
    return done.stdout


def convert(conversion: str, content: bytes, schema: Path = SCHEMA, struct_name: str = "Message") -> bytes:
    """`capnp convert`, e.g. with "binary:text"."""
    return capnp_program("convert", conversion, str(schema / "message.capnp"), struct_name, content=content)


def frames_in(stream: bytes) -> Iterator[bytes]:
    """The frames of a stream, by their segment tables."""
    while stream:
        count = struct.unpack_from("<I", stream)[0] + 1
        sizes = struct.unpack_from(f"<{count}I", stream, 4)
        size = (4 + 4 * count + 7) // 8 * 8 + 8 * sum(sizes)
        yield stream[:size]
        stream = stream[size:]


# --- other versions of the schema ---


def rewritten_schema(folder: Path, rewrite: Callable[[str, str, List[str]], List[str]]) -> Path:
    """A copy of the schema in `folder` with each block changed by `rewrite(kind, name, lines of the body)`.

    It relies on how the schema is written: no block within a struct but the union of `Message`.
    """
    for path in SCHEMA.glob("*.capnp"):
        text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))

        def changed(match: Any) -> str:
            kind, name, marks, body = match.groups()
            lines = [line.strip() for line in re.findall(r"[^;{}]+;", body)]
            body = "\n".join(f"  {line}" for line in rewrite(kind, name, lines))
            if name == "Message":
                body = f"  union {{\n{body}\n  }}"
            return f"{kind} {name} {marks}{{\n{body}\n}}"

        text = re.sub(r"(?ms)^(struct|enum) (\w+) ((?:\$[^\n{]*)?)\{(\}|.*?^\})", changed, text)
        (folder / path.name).write_text(text, encoding="utf-8")
    return folder


def ordinal(line: str) -> int:
    match = re.search(r"@(\d+)", line)
    assert match
    return int(match.group(1))


def with_more(kind: str, name: str, lines: List[str]) -> List[str]:
    """A rewriting that adds something at the end of everything."""
    following = max(map(ordinal, lines), default=-1) + 1
    if kind == "enum":
        return [*lines, f"newerMember @{following};"]
    if name == "Message":
        return [*lines, f"newerMessage @{following} :Text;"]
    names = ["newerNumber :UInt64", "newerText :Text", "newerFlag :Bool", "newerList :List(Text)"]
    more = [each.replace(" :", f" @{following + position} :") + ";" for position, each in enumerate(names)]
    return [*lines, *more]


def fill_what_is_newer(builder: Any) -> None:
    """Give the fields that we don't know a value, in this struct and all that hang below it."""
    builder.newerNumber = 2**64 - 1
    builder.newerText = "from the future"
    builder.newerFlag = True
    builder.newerList = ["a", "b"]
    for field in builder.schema.fields_list:
        kind = field.proto.slot.type
        content = getattr(builder, field.proto.name)
        if kind.which() == "struct":
            fill_what_is_newer(content)
        elif kind.which() == "list" and kind.list.elementType.which() == "struct":
            for item in content:
                fill_what_is_newer(item)
