"""Draws the pictures of the documentation from text: `make pictures`.

    docs/images/NAME.toml ──▶ drawing ──▶ docs/images/NAME.svg
    benchmarks/RESULTS.json ──▶ charts ──▶ docs/images/chart-NAME.svg

Rules:
- What a picture shows is in its text: boxes and arrows with their places in a TOML file, bars in the figures
  that the benchmarks have written.
- The same text gives the same bytes; a test compares them with the files.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from html import escape
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TREE = Path(__file__).resolve().parents[2]
IMAGES = TREE / "docs/images"
RESULTS = TREE / "benchmarks/RESULTS.json"

FILLS = {
    "program": "#e8f1fb",
    "scheduler": "#fdf1d6",
    "worker": "#e6f4e6",
    "host": "#f7f7f7",
    "lost": "#fbe4e4",
    "step": "#f0eefb",
    "slot": "#ffffff",
}
STROKES = {"host": "#9a9a9a", "lost": "#b3261e"}
LINE = "#44484d"
LINE_HEIGHT = 17
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif' font-size='13'"

Point = Tuple[float, float]


class Box(NamedTuple):
    """A rectangle with lines of text in its middle, or at its top if other boxes are in it."""

    x: float
    y: float
    width: float
    height: float
    text: Sequence[str]
    kind: str
    is_frame: bool

    @property
    def middle(self) -> Point:
        return self.x + self.width / 2, self.y + self.height / 2

    def edge_towards(self, target: Point) -> Point:
        """Where a line from the middle to a point leaves the box."""
        (x, y), (to_x, to_y) = self.middle, target
        across, down = to_x - x, to_y - y
        scale = min(
            (self.width / 2) / abs(across) if across else math.inf, (self.height / 2) / abs(down) if down else math.inf
        )
        return x + across * scale, y + down * scale


def drawing(text: str) -> str:
    """The picture that a text in TOML describes, as SVG.

    Parameters:
        text: has a `title`, a `size`, tables `box` with `name`, `at`, `size`, `text`, `kind`, and tables `arrow` with
            `from`, `to`, `text`, and by how much it is moved to its right, `shift`.
    """
    described = tomllib.loads(text)
    boxes: Dict[str, Box] = {}
    for each in described["box"]:
        (x, y), (width, height) = each["at"], each["size"]
        boxes[each["name"]] = Box(
            x, y, width, height, each.get("text", []), each.get("kind", "slot"), each.get("frame", False)
        )
    parts = [_box(box) for box in boxes.values()]
    parts += [_arrow(boxes[each["from"]], boxes[each["to"]], each) for each in described.get("arrow", [])]
    return _document(described["title"], described["size"], parts)


def _document(title: str, size: Sequence[float], parts: List[str]) -> str:
    width, height = size
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' width='{width:g}'"
        f" height='{height:g}' role='img' {FONT}>"
    )
    marker = (
        "<defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7'"
        f" orient='auto-start-reverse'><path d='M0 0 8 4 0 8z' fill='{LINE}'/></marker></defs>"
    )
    background = f"<rect width='{width:g}' height='{height:g}' fill='#fff'/>"
    return "\n".join([head, f"<title>{escape(title)}</title>", marker, background, *parts, "</svg>", ""])


def _box(box: Box) -> str:
    stroke = STROKES.get(box.kind, LINE)
    dashes = " stroke-dasharray='5 4'" if box.kind == "lost" else ""
    rectangle = (
        f"<rect x='{box.x:g}' y='{box.y:g}' width='{box.width:g}' height='{box.height:g}' rx='6'"
        f" fill='{FILLS[box.kind]}' stroke='{stroke}'{dashes}/>"
    )
    x, middle = box.middle
    first = box.y + 19 if box.is_frame else middle - (len(box.text) - 1) * LINE_HEIGHT / 2 + 4.5
    lines = [_text(x, first + number * LINE_HEIGHT, line, number == 0) for number, line in enumerate(box.text)]
    return rectangle + "".join(lines)


def _text(x: float, y: float, text: str, is_bold: bool = False, anchor: str = "middle", colour: str = "#1c1e21") -> str:
    weight = " font-weight='600'" if is_bold else ""
    return f"<text x='{x:g}' y='{y:g}' text-anchor='{anchor}' fill='{colour}'{weight}>{escape(text)}</text>"


def _arrow(start: Box, end: Box, described: Dict[str, Any]) -> str:
    shift = described.get("shift", 0)
    from_x, from_y = start.edge_towards(end.middle)
    to_x, to_y = end.edge_towards(start.middle)
    length = math.hypot(to_x - from_x, to_y - from_y)
    aside_x, aside_y = -(to_y - from_y) / length * shift, (to_x - from_x) / length * shift
    from_x, to_x, from_y, to_y = from_x + aside_x, to_x + aside_x, from_y + aside_y, to_y + aside_y
    dashes = " stroke-dasharray='5 4'" if described.get("dashed") else ""
    line = (
        f"<path d='M{from_x:.1f} {from_y:.1f} {to_x:.1f} {to_y:.1f}' stroke='{LINE}' fill='none'{dashes}"
        " marker-end='url(#head)'/>"
    )
    label = described.get("text", "")
    if not label:
        return line
    across, down = described.get("label", [0, -7])
    return line + _text((from_x + to_x) / 2 + across, (from_y + to_y) / 2 + down, label, colour="#55595e")


# Charts.


class Chart(NamedTuple):
    """Bars from one of the tables of the results."""

    name: str
    heading: str  # of the table
    value: str  # the column of the bars' lengths
    label: Sequence[str]  # the columns of their names
    unit: str
    where: Tuple[str, str] = ("", "")  # a column, and what it has in the rows to show
    is_logarithmic: bool = False


CHARTS = [
    Chart(
        "submit",
        "No-op tasks through submit(), then result() one by one",
        "µs/task",
        ["engine"],
        "µs a task",
        ("workers", "10"),
    ),
    Chart("map", "No-op tasks through map()", "µs/task", ["engine"], "µs a call", is_logarithmic=True),
    Chart("round-trip", "Round trip of one task, one after the other", "p50 µs", ["engine"], "µs, median"),
    Chart("array", "A NumPy array of 100 MB, placed once, used by ten tasks", "median ms", ["engine"], "ms"),
    Chart(
        "scheduler",
        "Scheduler alone: workers connected, tasks streamed through",
        "scheduler CPU µs/task",
        ["engine", "workers"],
        "µs of CPU time a task",
    ),
]
BAR_HEIGHT = 14
ROW_HEIGHT = 42  # a name, and the bar below it: so a chart is narrow enough to be read on a telephone
CHART_WIDTH = 400
VALUE_WIDTH = 70


Row = Dict[str, Tuple[Any, str]]
"""The value of each column, and the text for it."""


def rows_of(heading: str, results: Dict[str, Any]) -> List[Row]:
    """The rows of a table of the results. Raises KeyError if there is no such table."""
    tables = {table["title"]: table for table in results["tables"]}
    table = tables[heading]
    return [
        {
            column["heading"]: (value, f"{value:,.{column['decimals']}f}" if isinstance(value, float) else str(value))
            for value, column in zip(row, table["columns"])
        }
        for row in table["rows"]
    ]


def bar_chart(chart: Chart, results: Dict[str, Any]) -> str:
    """A chart of bars, as SVG. Raises KeyError if the results have no such table or column."""
    rows = [
        row for row in rows_of(chart.heading, results) if not chart.where[0] or row[chart.where[0]][1] == chart.where[1]
    ]
    values = [float(row[chart.value][0]) for row in rows]
    longest = max(values)
    smallest = min(values)

    def length(value: float) -> float:
        share = value / longest
        if chart.is_logarithmic:
            share = (math.log10(value / smallest) + 0.5) / (math.log10(longest / smallest) + 0.5)
        return share * (CHART_WIDTH - VALUE_WIDTH)

    parts = []
    for number, (row, value) in enumerate(zip(rows, values)):
        y = 16 + number * ROW_HEIGHT
        engine = row["engine"][1]
        colour = "#1a5fb4" if "scaler" in engine.lower() or "scheduler" in engine else "#9aa0a6"
        width = max(length(value), 1)
        name = ", ".join(engine if column == "engine" else f"{column}: {row[column][1]}" for column in chart.label)
        parts += [
            _text(0, y, name, anchor="start"),
            f"<rect x='0' y='{y + 6}' width='{width:.1f}' height='{BAR_HEIGHT}' fill='{colour}'/>",
            _text(width + 6, y + 17.5, row[chart.value][1], anchor="start"),
        ]
    height = 16 + len(rows) * ROW_HEIGHT + 10
    scale = f"{chart.unit}{', logarithmic' if chart.is_logarithmic else ''}; shorter is better"
    parts.append(_text(0, height - 8, scale, anchor="start", colour="#55595e"))
    return _document(f"{chart.heading}: {chart.unit}", (CHART_WIDTH, height), parts)


def pictures() -> Dict[Path, str]:
    """All pictures, by their files."""
    made = {
        path.with_suffix(".svg"): drawing(path.read_text(encoding="utf-8")) for path in sorted(IMAGES.glob("*.toml"))
    }
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {**made, **{IMAGES / f"chart-{chart.name}.svg": bar_chart(chart, results) for chart in CHARTS}}


def main() -> int:
    """Run the program; its exit code."""
    argparse.ArgumentParser(description="Draw the pictures of the documentation again.").parse_args()
    for path, text in pictures().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
