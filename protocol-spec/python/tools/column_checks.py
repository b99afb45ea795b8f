"""Write the methods that check how the columns of a batch belong together, as the schema's annotations say.

    struct Task $entries("ids")               def check_columns(self, payload_bytes: int) -> None:
      payloadSizes $payload          ──▶          if len(self.payload_sizes) != count: ...
      dependencyCounts $counts(...)               if sum(self.dependency_counts) != len(self.dependencies): ...

Rules: knows annotations and names, and nothing of capnp. An annotation that names no column stops the program.
"""

from __future__ import annotations

from typing import Dict, List


def check_lines(struct: str, marks: Dict[str, str], columns: Dict[str, Dict[str, str]]) -> List[str]:
    """The method's lines; none if the struct is not a batch.

    Parameters:
        struct: the name of the class.
        marks: the struct's annotations, with their texts.
        columns: the annotations of its columns, by their names.
    """
    if "entries" not in marks:
        return []
    entries = marks["entries"]
    counted = {name: each["counts"].split(", ") for name, each in columns.items() if "counts" in each}
    apart = {name for names in counted.values() for name in names}
    _check_names(struct, {entries, *apart}, columns)
    apart |= {name for name, each in columns.items() if "apart" in each}
    needed: List[str] = []
    optional: List[str] = []
    for name, each in columns.items():
        if name != entries and name not in apart:
            is_needed = "complete" in marks or "always" in each or "payload" in each
            (needed if is_needed else optional).append(name)
    payloads = [name for name, each in columns.items() if "payload" in each]
    lines = _head(bool(payloads))
    if payloads:  # tasks and results, which are many: no call for each column
        lines.append(f"        count = len(self.{entries})")
        for name in needed + optional:
            lines.append(f"        if {'' if name in needed else f'self.{name} and '}len(self.{name}) != count:")
            lines.append(f'            raise columns_differ("{struct}", "{name}", self.{name}, "{entries}", count)')
    else:
        lines.append(f'        check_lengths(self, "{entries}", {tuple(needed)}, {tuple(optional)})')
    for name, others in counted.items():
        lines.append(f"        total = sum(self.{name}) if self.{name} else 0")
        for other in others:
            lines += _sum_lines(struct, name, other, f"len(self.{other})")
    for name in payloads:
        lines.append(f"        total = sum(self.{name})")
        lines += _sum_lines(struct, name, "the payload frame", "payload_bytes")
    return lines


def _check_names(struct: str, named: set[str], columns: Dict[str, Dict[str, str]]) -> None:
    unknown = sorted(named - columns.keys())
    if unknown:
        raise SystemExit(f"{struct}: an annotation names {unknown[0]}, which is not a column")


def _head(has_payload: bool) -> List[str]:
    words = "Raise MalformedMessageError unless the columns agree with each other."
    if not has_payload:
        return ["", "    def check_columns(self) -> None:", f'        """{words}"""']
    return [
        "",
        "    def check_columns(self, payload_bytes: int) -> None:",
        f'        """{words}',
        "",
        "        Parameters:",
        "            payload_bytes: the length of the payload frame.",
        '        """',
    ]


def _sum_lines(struct: str, name: str, what: str, length: str) -> List[str]:
    error = f'sum_differs("{struct}", "{name}", total, "{what}", {length})'
    return [f"        if total != {length}:", f"            raise {error}"]
