"""Write src/scaler_protocol/wire/messages.py from the schema. For developers; needs pycapnp and ruff.

    python tools/generate.py           write the file
    python tools/generate.py --check   exit 1 when the checked-in file is not what the schema says

Rules of this program:
- It uses pycapnp's reflection and defines the form of a class; it refers to no field or message by name, the union
  `Message` aside.
- What it cannot express (groups, other unions, non-zero defaults, lists of lists, recursive structs) stops it
  with an error: better no file than one that reads another value than the schema means.

    *.capnp ─ pycapnp ─▶ Layout, EnumLayout (plain descriptions) ─ *_lines() ─▶ text ─ ruff ─▶ messages.py
"""

from __future__ import annotations

import argparse
import keyword
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import capnp
from column_checks import check_lines
from small_messages import constant_lines, flat_lines, flat_structs, is_small, read_small_lines, write_small_lines
from struct_methods import read_lines, write_lines

HERE = Path(__file__).resolve().parent
SCHEMA = HERE.parents[1] / "schema"
MODULE = HERE.parent / "src" / "scaler_protocol" / "wire" / "messages.py"
TARGET = MODULE
UNION = "Message"
NESTING_DEPTH_LIMIT = 64

HEADER = '''"""The message classes of the protocol, one for each struct and enum of the schema.

GENERATED from protocol-spec/schema/*.capnp by protocol-spec/python/tools/generate.py: change the schema and
run that program, do not edit. A test compares this file with the schema.

How the schema's types appear here:

    integers, Float64, Bool       int, float, bool
    enum                          the IntEnum of that name; a plain int when the value is newer than this file
    Text, Data, List(UInt8)       str, bytes, bytes
    List(UInt64) and the like     array.array, the column of a batch. A constructor takes any sequence of
                                  numbers; an array of the right type code is kept as it is, without a copy
    List(Text), List(struct)      list
    struct                        an object, with default values when the sender left it out

All arguments of the constructors are keywords and optional. Objects are mutable, comparable, not hashable. Batches
have a method that checks whether their columns agree, as the annotations of the schema say (`columns.capnp`).
"""

# ruff: noqa: A002 (the schema decides how fields are called, `id` among them)

from __future__ import annotations

import struct
from array import array
from enum import IntEnum
from typing import Any, Dict, Iterable, List, Optional, Tuple, Type, Union

from scaler_protocol.wire.capnproto import (
    COLUMN_KINDS, NOTHING, Column, Reader, Struct, Writer, column, octets, struct_pointer,
)
from scaler_protocol.wire.columns import check_lengths, columns_differ, sum_differs
from scaler_protocol.wire.small_frames import DECODED_TEXTS, ENCODED_TEXTS, LARGEST_COUNT, SmallMessage

# Copying an empty column costs a third of making one.
'''

# Schema type -> (format character, bytes). Bool is apart: its offset counts bits.
NUMBERS = {
    "int8": ("b", 1),
    "uint8": ("B", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "uint64": ("Q", 8),
    "float32": ("f", 4),
    "float64": ("d", 8),
    "enum": ("H", 2),
}
FLOATS = ("float32", "float64")
RESERVED = {
    "array",
    "at",
    "cls",
    "column",
    "data_words",
    "filled",
    "octets",
    "pointer_words",
    "read",
    "reader",
    "segment",
    "self",
}
RESERVED |= {"start", "struct", "values", "words", "write", "writer"}


@dataclass
class EnumLayout:
    name: str
    members: List[Tuple[str, int]]


@dataclass
class Field:
    """One field of a struct. `offset`: in bits for data, in pointers for pointers."""

    name: str
    kind: str  # a key of NUMBERS, or: bool text data bytes column texts structs struct
    offset: int
    type_name: str = ""  # the class of an enum, struct or list element
    element: str = ""  # a key of NUMBERS, for a column
    enum_default: str = ""  # the member with the value 0
    marks: Dict[str, str] = field(default_factory=dict)  # annotations of columns.capnp, with their texts
    is_always_there: bool = False  # a column that no task and no result leaves out

    @property
    def is_pointer(self) -> bool:
        return self.kind not in NUMBERS and self.kind != "bool"

    @property
    def item(self) -> Tuple[str, int]:
        return NUMBERS[self.element]

    @property
    def annotation(self) -> str:
        """The type of the attribute."""
        if self.kind == "enum":
            return f"Union[{self.type_name}, int]"
        if self.kind in NUMBERS:
            return "float" if self.kind in FLOATS else "int"
        if self.kind == "column":
            return "array[float]" if self.element in FLOATS else "array[int]"
        simple = {"bool": "bool", "text": "str", "data": "bytes", "bytes": "bytes", "texts": "List[str]"}
        listed = f"List[{self.type_name}]" if self.kind == "structs" else self.type_name
        return simple.get(self.kind, listed)

    @property
    def parameter(self) -> str:
        """The declaration of the constructor's argument."""
        if self.kind == "enum":
            return f"{self.name}: {self.annotation} = {self.type_name}.{self.enum_default}"
        if self.kind in NUMBERS:
            return f"{self.name}: {self.annotation} = {'0.0' if self.kind in FLOATS else '0'}"
        return f"{self.name}: " + {
            "bool": "bool = False",
            "text": 'str = ""',
            "data": 'Union[bytes, bytearray, memoryview] = b""',
            "bytes": 'Column = b""',
            "column": "Column = NOTHING",
            "texts": "Iterable[str] = ()",
            "structs": f"Iterable[{self.type_name}] = ()",
            "struct": f"Optional[{self.type_name}] = None",
        }.get(self.kind, "")

    @property
    def initial(self) -> str:
        """What the constructor stores."""
        name = self.name
        return {
            "data": f"{name} if type({name}) is bytes else octets({name})",
            "bytes": f"{name} if type({name}) is bytes else octets({name})",
            "column": f"{self.default()} if {name} is NOTHING else {self.as_column()}" if self.element else "",
            "texts": f"list({name})",
            "structs": f"list({name})",
            "struct": f"{self.type_name}() if {name} is None else {name}",
        }.get(self.kind, name)

    def as_column(self) -> str:
        """The expression for a column made of the local variable of the field's name."""
        converted = f'column("{self.item[0]}", {self.name})'
        if not self.is_always_there:
            return converted
        # Without a call, as it mostly is an array: tasks and results are many.
        return (
            f'{self.name} if type({self.name}) is array and {self.name}.typecode == "{self.item[0]}" else {converted}'
        )

    def default(self) -> str:
        """The expression for the value of a null pointer."""
        if self.kind == "column":
            return f"_empty_{self.element}()"
        return {"text": '""', "data": 'b""', "bytes": 'b""', "struct": f"{self.type_name}()"}.get(self.kind, "[]")

    def written(self) -> str:
        """The expression for the pointer that Writer stores."""
        value = f"self.{self.name}"
        at = "at" if self.offset == 0 else f"at + {self.offset}"
        if self.kind == "struct":
            return f"writer.struct({value}, {at})"
        call = {
            "text": f"writer.text({value}, {at})",
            "data": f"writer.octets({value}, {at})",
            "bytes": f"writer.octets({value}, {at})",
            "column": f'writer.column({value}, "{self.item[0]}", {at})' if self.element else "",
            "texts": f"writer.texts({value}, {at})",
            "structs": f"writer.structs({value}, {at})",
        }[self.kind]
        return f"{call} if {value} else 0"

    def read(self) -> str:
        """The expression for the content of the pointer in the local variable of the field's name."""
        at = "at" if self.offset == 0 else f"at + {8 * self.offset}"
        where = f"{self.name}, segment, {at}"
        code, size = self.item if self.element else ("", 0)
        if self.kind == "column":
            return f'reader.column({where}, "{code}", {size}) if {self.name} else {self.default()}'
        method = {"data": "octets", "bytes": "octets"}.get(self.kind, self.kind)
        extra = f", {self.type_name}.read" if self.kind in ("structs", "struct") else ""
        return f"reader.{method}({where}{extra}) if {self.name} else {self.default()}"


@dataclass
class Layout:
    name: str
    data_words: int
    pointer_words: int
    fields: List[Field]
    marks: Dict[str, str] = field(default_factory=dict)
    data: List[Field] = field(init=False)
    pointers: List[Field] = field(init=False)

    def __post_init__(self) -> None:
        ordered = sorted(self.fields, key=lambda each: each.offset)
        has_payload = any("payload" in each.marks for each in self.fields)
        for each in self.fields:
            each.is_always_there = has_payload and (each.name == self.marks["entries"] or "payload" in each.marks)
        self.data = [each for each in ordered if not each.is_pointer]
        self.pointers = [each for each in ordered if each.is_pointer]
        if [each.offset for each in self.pointers] != list(range(self.pointer_words)):
            raise SystemExit(f"{self.name}: pointer fields do not fill the pointer section")

    @property
    def constant(self) -> str:
        return f"_{upper_snake(self.name)}_WORDS"

    def columns(self) -> Dict[str, Dict[str, str]]:
        """The annotations of the columns, by their names."""
        return {each.name: each.marks for each in self.fields if each.kind in ("bytes", "column", "texts")}

    def slots(self) -> List[Tuple[int, List[Field]]]:
        """(byte offset, fields stored there) in order; only bools share a byte."""
        result: List[Tuple[int, List[Field]]] = []
        for each in self.data:
            byte = each.offset // 8
            if result and result[-1][0] == byte:
                result[-1][1].append(each)
            else:
                result.append((byte, [each]))
        return result

    def data_values(self) -> List[str]:
        """The expressions for the values in the data words."""
        values = []
        for byte, fields in self.slots():
            if fields[0].kind == "bool":
                values.append(" | ".join(bool_bit(each, byte) for each in fields))
            else:
                values.append(f"self.{fields[0].name}")
        return values

    def data_targets(self) -> Tuple[List[str], List[str]]:
        """Where these values go when read, and the statements that convert some of them."""
        targets, conversions = [], []
        for byte, fields in self.slots():
            first = fields[0]
            if first.kind == "bool":
                targets.append(f"flags_{byte}")
                for each in fields:
                    conversions.append(f"self.{each.name} = flags_{byte} & {1 << each.offset - 8 * byte} != 0")
            elif first.kind == "enum":
                targets.append(first.name)
                table = f"_{upper_snake(first.type_name)}"
                conversions.append(f"self.{first.name} = {table}.get({first.name}, {first.name})")
            else:
                targets.append(f"self.{first.name}")
        return targets, conversions

    def format(self) -> str:
        """The `struct` format of the whole struct, data and pointers."""
        return "<" + shortened(self.data_format() + "Q" * self.pointer_words)

    def data_format(self) -> str:
        """The format of the data words."""
        text, position = "", 0
        for byte, fields in self.slots():
            code, size = ("B", 1) if fields[0].kind == "bool" else NUMBERS[fields[0].kind]
            text += "x" * (byte - position) + code
            position = byte + size
        return text + "x" * (self.data_words * 8 - position)


def shortened(text: str) -> str:
    """A format with counts in place of repetitions."""
    return re.sub(r"(.)\1{2,}", lambda run: f"{len(run.group(0))}{run.group(1)}", text)


# --- reflection ---


def snake(name: str) -> str:
    result = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if result in RESERVED:
        raise SystemExit(f"field name {name} is in the way of the generated code")
    return result + "_" if keyword.iskeyword(result) else result


def upper_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def short_name(node: Any) -> str:
    return str(node.displayName)[node.displayNamePrefixLength :]


def field_of(struct_name: str, proto: Any, names: Dict[int, str], zeros: Dict[str, str]) -> Field:
    where = f"{struct_name}.{proto.name}"
    if proto.which() != "slot":
        raise SystemExit(f"{where}: groups are not supported")
    slot = proto.slot
    if slot.hadExplicitDefault:
        raise SystemExit(f"{where}: default values other than zero are not supported")
    kind = str(slot.type.which())
    name = snake(proto.name)
    if kind == "bool":
        return Field(name, kind, slot.offset)
    if kind in NUMBERS:
        type_name = names[slot.type.enum.typeId] if kind == "enum" else ""
        offset = slot.offset * NUMBERS[kind][1] * 8
        return Field(name, kind, offset, type_name, enum_default=zeros.get(type_name, ""))
    if kind in ("text", "data"):
        return Field(name, kind, slot.offset)
    if kind == "struct":
        return Field(name, kind, slot.offset, names[slot.type.struct.typeId])
    if kind == "list":
        element = slot.type.list.elementType
        element_kind = str(element.which())
        if element_kind == "uint8":
            return Field(name, "bytes", slot.offset)
        if element_kind == "text":
            return Field(name, "texts", slot.offset)
        if element_kind == "struct":
            return Field(name, "structs", slot.offset, names[element.struct.typeId])
        if element_kind in NUMBERS and element_kind != "enum":
            return Field(name, "column", slot.offset, element=element_kind)
        raise SystemExit(f"{where}: List({element_kind}) is not supported")
    raise SystemExit(f"{where}: type {kind} is not supported")


def marks_of(proto: Any, names: Dict[int, str]) -> Dict[str, str]:
    """The annotations of a struct or field, by name; of `counts` the texts are attributes' names."""
    texts = {names[each.id]: each.value.text if each.value.which() == "text" else "" for each in proto.annotations}
    return {name: ", ".join(map(snake, filter(None, text.split(", ")))) for name, text in texts.items()}


def enum_of(node: Any) -> EnumLayout:
    members = [(upper_snake(each.name), value) for value, each in enumerate(node.enum.enumerants)]
    return EnumLayout(short_name(node), members)


def read_schema(folder: Path) -> Tuple[List[EnumLayout], List[Layout], List[str]]:
    """Enums, structs, and the members of the union in the order of their discriminants."""
    parser = capnp.SchemaParser()
    nodes: List[Any] = []
    marks: Dict[int, str] = {}
    for path in sorted(folder.glob("*.capnp")):
        module = parser.load(str(path))
        for nested in module.schema.node.nestedNodes:
            if hasattr(module, nested.name):
                nodes.append(getattr(module, nested.name).schema.node)
            else:  # an annotation
                marks[nested.id] = nested.name
    names = {node.id: short_name(node) for node in nodes}
    if len(set(names.values())) != len(names):
        raise SystemExit("two types of the schema have the same name")
    enums = [enum_of(node) for node in nodes if node.which() == "enum"]
    zeros = {enum.name: enum.members[0][0] for enum in enums}
    structs, members = [], []
    for node in (node for node in nodes if node.which() == "struct"):
        name = names[node.id]
        if name == UNION:
            members = union_members(node, names)
        else:
            if node.struct.discriminantCount:
                raise SystemExit(f"{name}: unions are not supported here")
            fields = [field_of(name, proto, names, zeros) for proto in node.struct.fields]
            for each, proto in zip(fields, node.struct.fields):
                each.marks = marks_of(proto, marks)
            sizes = node.struct.dataWordCount, node.struct.pointerCount
            structs.append(Layout(name, *sizes, fields, marks_of(node, marks)))
    check_depth({layout.name: layout for layout in structs})
    return enums, structs, members


def union_members(node: Any, names: Dict[int, str]) -> List[str]:
    """The codec relies on this struct's shape: one word with the discriminant, one pointer, nothing else."""
    shape = (node.struct.dataWordCount, node.struct.pointerCount, node.struct.discriminantOffset)
    fields = sorted(node.struct.fields, key=lambda proto: int(proto.discriminantValue))
    is_union = [proto.discriminantValue for proto in fields] == list(range(len(fields)))
    if shape != (1, 1, 0) or not is_union or any(proto.slot.type.which() != "struct" for proto in fields):
        raise SystemExit(f"{UNION} must be a union of structs and nothing else")
    members = [names[proto.slot.type.struct.typeId] for proto in fields]
    if len(set(members)) != len(members):
        raise SystemExit(f"{UNION} has two members of the same type")
    return members


def check_depth(layouts: Dict[str, Layout]) -> None:
    """Reading descends as far as the schema does and no further: this bounds its depth for any frame."""

    def depth(name: str, above: Tuple[str, ...]) -> int:
        if name in above or len(above) > NESTING_DEPTH_LIMIT:
            raise SystemExit(f"recursive struct: {' -> '.join((*above, name))}")
        inner = [each.type_name for each in layouts[name].pointers if each.type_name]
        return 1 + max((depth(each, (*above, name)) for each in inner), default=0)

    for name in layouts:
        depth(name, ())


# --- writing ---


def enum_lines(layout: EnumLayout) -> List[str]:
    lines = ["", "", f"class {layout.name}(IntEnum):"]
    lines += [f"    {name} = {value}" for name, value in layout.members]
    table = f"_{upper_snake(layout.name)}: Dict[int, {layout.name}]"
    lines += ["", "", f"{table} = {{member.value: member for member in {layout.name}}}"]
    return lines


def class_lines(layout: Layout, is_flat: bool) -> List[str]:
    """The class; with the methods of a struct that small messages contain, if `is_flat`."""
    lines = ["", "", f"{layout.constant} = struct.Struct({layout.format()!r})"]
    small = is_small(layout)
    lines += ["", "", f"class {layout.name}({'SmallMessage' if small else 'Struct'}):"]
    slots = ", ".join(repr(each.name) for each in layout.fields)
    lines += [f"    __slots__ = ({slots}{',' if len(layout.fields) == 1 else ''})"]
    lines += [f"    DATA_WORDS = {layout.data_words}", f"    POINTER_WORDS = {layout.pointer_words}"]
    lines += constant_lines(layout) if small else []
    lines += [""]
    if layout.fields:
        lines += [f"    {each.name}: {each.annotation}" for each in layout.fields]
        parameters = ", ".join(each.parameter for each in layout.fields)
        lines += ["", f"    def __init__(self, *, {parameters}) -> None:"]
        lines += [f"        self.{each.name} = {each.initial}" for each in layout.fields]
    lines += write_lines(layout) + read_lines(layout)
    lines += write_small_lines(layout) + read_small_lines(layout) if small else []
    lines += flat_lines(layout) if is_flat else []
    return lines + check_lines(layout.name, layout.marks, layout.columns())


def bool_bit(each: Field, byte: int) -> str:
    bit = 1 << each.offset - 8 * byte
    return f"({bit} if self.{each.name} else 0)"


def unknown_lines() -> List[str]:
    return '''

class UnknownMessage(Struct):
    """A message of a newer version of the schema: to be counted and ignored."""

    __slots__ = ("discriminant",)

    discriminant: int

    def __init__(self, discriminant: int) -> None:
        self.discriminant = discriminant
'''.splitlines()


def union_lines(members: List[str]) -> List[str]:
    return [
        "",
        "",
        "# The members of the union, in the order of their discriminants.",
        f"MEMBERS: Tuple[Type[Member], ...] = ({', '.join(members)})",
    ]


def generate(folder: Path = SCHEMA) -> str:
    """The text of messages.py."""
    enums, structs, members = read_schema(folder)
    lines = HEADER.splitlines()
    elements = {each.element: each for layout in structs for each in layout.fields if each.element}
    lines += [f'_empty_{name} = array("{elements[name].item[0]}").__copy__' for name in sorted(elements)]
    for enum in enums:
        lines += enum_lines(enum)
    flat = flat_structs(structs)
    for layout in structs:
        lines += class_lines(layout, layout.name in flat)
    lines += unknown_lines()
    lines += ["", "", f"Member = Union[{', '.join(members)}]", "Message = Union[Member, UnknownMessage]"]
    lines += union_lines(members)
    return formatted("\n".join(lines) + "\n")


def formatted(text: str) -> str:
    """`text` in the style of the workspace, whose settings ruff finds by the name of the file."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(MODULE), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"ruff format: {done.stderr}")
    return done.stdout


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Write messages.py from the schema.")
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if out of date")
    options = parser.parse_args(arguments)
    text = generate()
    if not options.check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET} does not match the schema: run {Path(__file__).name}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
