"""The figures of a run as data: RESULTS.json keeps it; RESULTS.md and the charts of the documentation are made of it.

    series ──report.summary_of──▶ RESULTS.json ──markdown──▶ RESULTS.md
                                     └──docs/site/draw_pictures.py──▶ docs/images/chart-*.svg

Rules:
- A row has the medians of the runs, rounded as they are shown; null is a figure that was not measured. All runs are in
  benchmarks/results, which is not kept.
- The same data gives the same text; a test compares RESULTS.md with RESULTS.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Union

Summary = dict[str, Any]
Value = Union[float, str, None]

ABOUT = "what each table means, and what it does not, is in [README.md](README.md)"
RATIO = "× Scaler"
"""The heading of the column that compares."""


def formatted(value: Value, heading: str, decimals: int) -> str:
    """A cell of a table."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if heading == RATIO and value == 1 and isinstance(value, int):
        return "1"  # the row that others are compared with
    return f"{value:.{decimals}f}" if heading == "workers" else f"{value:,.{decimals}f}"


def markdown(summary: Summary) -> str:
    """The tables as a Markdown document that says where it comes from."""
    facts = summary["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    measured = [f"{facts['measured_at']}, revision {facts['revision']}"]
    measured += [
        f"{each['what']}: {each['measured_at']}, revision {each['revision']}" for each in facts.get("merged", [])
    ]
    head = [
        "# Benchmark results",
        "",
        f"Written by `{summary['command']}`; {ABOUT}.",
        "",
        f"- Machine: {facts['processor']}, {facts['cores']} cores, {facts['memory_gib']} GiB",
        f"- System: Linux {facts['kernel']}",
        f"- Measured: {'; '.join(measured)}",
        f"- Python: {facts['python']}; {packages}",
        f"- Engines: {', '.join(summary['engines'])}",
    ]
    tables = [f"\n## {table['title']}\n\n{_pipes(cells(table))}\n" for table in summary["tables"]]
    return "\n".join(head) + "\n" + "".join(tables) + str(summary["not_measured"])


def cells(table: dict[str, Any]) -> list[list[str]]:
    """The heading of a table and its rows, as they are shown."""
    columns = table["columns"]
    rows = [[column["heading"] for column in columns]]
    for row in table["rows"]:
        rows.append([formatted(value, column["heading"], column["decimals"]) for value, column in zip(row, columns)])
    return rows


def write(path: Path, summary: Summary) -> None:
    """Write a summary, a row of a table on a line."""
    head = {name: value for name, value in summary.items() if name != "tables"}
    lines = json.dumps(head, indent=1, ensure_ascii=False).rstrip("}\n")
    tables = []
    for table in summary["tables"]:
        parts = [f'  "{name}": {json.dumps(table[name], ensure_ascii=False)}' for name in ("title", "columns")]
        rows = ",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in table["rows"])
        tables.append(" {\n" + ",\n".join(parts) + f',\n  "rows": [\n{rows}\n  ]\n }}')
    path.write_text(f'{lines},\n "tables": [\n' + ",\n".join(tables) + "\n ]\n}\n", encoding="utf-8")


def read(path: Path) -> Summary:
    """A summary that was written before."""
    found: Summary = json.loads(path.read_text(encoding="utf-8"))
    return found


def _pipes(rows: list[list[str]]) -> str:
    rule = ["---"] + ["--:"] * (len(rows[0]) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], rule, *rows[1:]])
