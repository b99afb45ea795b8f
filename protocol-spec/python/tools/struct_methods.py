"""Write the methods that write and read a struct of any size with `Writer` and `Reader`: straight-line code.

write    one `pack` of data words and of the pointers that the writer returns
read     one `unpack` of data words and pointers, then the reader's method for each pointer
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List

if TYPE_CHECKING:
    from generate import Layout


def write_lines(layout: Layout) -> List[str]:
    lines = ["", "    def write(self, writer: Writer, at: int) -> bytes:"]
    if not layout.fields:
        return [*lines, '        return b""']
    values = layout.data_values()
    values += [each.written() for each in layout.pointers]
    return [*lines, f"        return {layout.constant}.pack({', '.join(values)},)"]


def read_lines(layout: Layout) -> List[str]:
    name = layout.name
    lines = ["", "    @classmethod", "    def read(cls, reader: Reader, segment: int, start: int,"]
    lines += [f"        data_words: int, pointer_words: int) -> {name}:"]
    if not layout.fields:
        return [*lines, "        return cls.__new__(cls)"]
    lines += ["        self = cls.__new__(cls)"]
    targets, conversions = layout.data_targets()
    targets += [each.name for each in layout.pointers]
    unpacking = f"({', '.join(targets)},) ="
    sizes = f"{layout.data_words}, {layout.pointer_words}"
    lines += [
        f"        if data_words == {layout.data_words} and pointer_words == {layout.pointer_words}:",
        f"            words = {layout.constant}.unpack_from(reader.data, start)",
        "        else:",
        f"            words = {layout.constant}.unpack(",
        f"                reader.resized(start, data_words, pointer_words, {sizes}))",
        f"        {unpacking} words",
    ]
    lines += [f"        {line}" for line in conversions]
    if layout.pointers:
        lines += ["        at = start + data_words * 8"]
        lines += [f"        self.{each.name} = {each.read()}" for each in layout.pointers]
    return [*lines, "        return self"]
