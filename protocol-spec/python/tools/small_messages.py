"""Write the methods that write and read small frames in one step (`scaler_protocol.wire.small_frames`).

    struct Task                    class Task(SmallMessage):
      ids, payloadSizes $payload     DATA_FORMAT, CONTENTS      what a layout is made of
      codec :Text              ──▶   write_small, read_small    values and contents instead of words and pointers
      options :TaskOptions         class TaskOptions(Struct):
                                     write_flat, read_flat      the struct, as long as its pointers are null

Rules: batches with a payload have these methods, because tasks and results are many. Other messages do not need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List

if TYPE_CHECKING:
    from generate import Field, Layout

KINDS = {"column", "text", "data", "bytes", "struct"}


def is_small(layout: Layout) -> bool:
    """Whether small frames with this message are to be written and read in one step."""
    has_payload = any("payload" in each.marks for each in layout.fields)
    return has_payload and all(each.kind in KINDS for each in layout.pointers)


def flat_structs(layouts: List[Layout]) -> Dict[str, Layout]:
    """The structs that such messages contain, by name."""
    names = {each.type_name for layout in layouts if is_small(layout) for each in layout.pointers}
    found = {layout.name: layout for layout in layouts if layout.name in names}
    for layout in found.values():
        if not layout.fields:  # a struct without words has a pointer that is not null, and no content
            raise SystemExit(f"{layout.name}: structs without fields are not supported in messages with a payload")
    return found


def constant_lines(layout: Layout) -> List[str]:
    contents = ", ".join(_content_kind(each) for each in layout.pointers)
    return [f"    DATA_FORMAT = {layout.data_format()!r}", f"    CONTENTS = ({contents})"]


def _content_kind(each: Field) -> str:
    if each.kind == "struct":
        return f"(struct_pointer(0, {each.type_name}.DATA_WORDS, {each.type_name}.POINTER_WORDS), 0)"
    return f'COLUMN_KINDS["{each.item[0] if each.element else "B"}"]'


def write_small_lines(layout: Layout) -> List[str]:
    entries = layout.marks["entries"]
    lines = ["", "    def write_small(self) -> Optional[Tuple[Tuple[Any, ...], Tuple[bytes, ...]]]:"]
    lines += [f"        {entries} = self.{entries}"]
    lines += [f"        if {entries} and len({entries}) > LARGEST_COUNT:", "            return None"]
    lines += [f"        {each.name} = self.{each.name}" for each in layout.pointers if each.name != entries]
    for each in layout.pointers:
        if each.kind == "struct":
            lines += [f"        flat_{each.name} = {each.name}.write_flat()"]
            lines += [f"        if flat_{each.name} is None:", "            return None"]
    contents = ", ".join(_content(each) for each in layout.pointers)
    values = "".join(f"{value}, " for value in layout.data_values())
    return [*lines, f"        return (({values}), ({contents},))"]


def _content(each: Field) -> str:
    name = each.name
    if each.kind == "struct":
        return f"flat_{name}"
    content = {
        "column": f"({each.as_column()}).tobytes()" if each.element else "",
        "text": f"ENCODED_TEXTS[{name}]",
    }.get(each.kind, f"({name} if type({name}) is bytes else octets({name}))")
    return f'{content} if {name} else b""'


def read_small_lines(layout: Layout) -> List[str]:
    lines = ["", "    @classmethod"]
    lines += [f"    def read_small(cls, values: Tuple[Any, ...]) -> Optional[{layout.name}]:"]
    targets, conversions = layout.data_targets()
    targets = ["_", *targets, "_", *(each.name for each in layout.pointers)]
    lines += ["        self = cls.__new__(cls)", f"        ({', '.join(targets)},) = values"]
    lines += [f"        {line}" for line in conversions]
    for each in layout.pointers:
        name = each.name
        if each.kind in ("text", "struct"):
            known = {"text": f"DECODED_TEXTS[{name}]"}.get(each.kind, f"{each.type_name}.read_flat({name})")
            lines += [f"        read_{name} = {known} if {name} else {each.default()}"]
            lines += [f"        if read_{name} is None:", "            return None"]
            lines += [f"        self.{name} = read_{name}"]
        elif each.is_always_there:  # not `array(code, bytes)`, which costs half as much again
            lines += [f"        self.{name} = filled = {each.default()}", f"        filled.frombytes({name})"]
        elif each.kind == "column":
            lines += [f'        self.{name} = array("{each.item[0]}", {name}) if {name} else {each.default()}']
        else:
            lines += [f"        self.{name} = {name}"]
    return [*lines, "        return self"]


def flat_lines(layout: Layout) -> List[str]:
    lines = ["", "    def write_flat(self) -> Optional[bytes]:"]
    lines += ['        """The words of the struct; None if it points to anything."""']
    if layout.pointers:
        lines += [f"        if {' or '.join(f'self.{each.name}' for each in layout.pointers)}:"]
        lines += ["            return None"]
    values = layout.data_values() + ["0"] * layout.pointer_words
    lines += [f"        return {layout.constant}.pack({', '.join(values)})"]
    lines += ["", "    @classmethod", f"    def read_flat(cls, words: bytes) -> Optional[{layout.name}]:"]
    lines += ['        """The struct with these words; None if it points to anything."""']
    targets, conversions = layout.data_targets()
    targets += [each.name for each in layout.pointers]
    lines += ["        self = cls.__new__(cls)", f"        ({', '.join(targets)},) = {layout.constant}.unpack(words)"]
    if layout.pointers:
        lines += [f"        if {' or '.join(each.name for each in layout.pointers)}:", "            return None"]
    lines += [f"        {line}" for line in conversions]
    lines += [f"        self.{each.name} = {each.default()}" for each in layout.pointers]
    return [*lines, "        return self"]
