"""Figures as tables: on the terminal, as Markdown, and as JSON. Nothing is measured here.

Every table cell is the median of the runs. Each comparison has a ratio column: how many times Scaler's
figure the competitor's is, in the table's first figure; above 1 the competitor is slower (or larger).
"""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Optional, Union

import psutil
import summary
from engines import engine_class
from plan import Measurement
from runner import FOLDER, Series

_OWN_ENGINE = "scaler"


@dataclass(frozen=True)
class Column:
    """One figure of a table: its heading, its name in the figures, a factor for the unit, decimals shown."""

    heading: str
    figure: str
    factor: float = 1.0
    decimals: int = 1


@dataclass(frozen=True)
class Table:
    """A benchmark's table; the ratio is taken of its first column."""

    title: str
    columns: tuple[Column, ...]
    amount: str
    """What the amount counts; empty: it is not worth a column."""


_LARGE = (Column("median ms", "median_seconds", 1000), Column("first ms", "first_seconds", 1000))
_LOAD = Column("other jobs (cores)", "other_jobs_cores", decimals=2)
_GRAPH = (
    Column("µs/node", "microseconds_per_node"),
    Column("ms in all", "seconds", 1000),
    Column("preparing µs/node", "prepare_microseconds_per_node", decimals=2),
    Column("CPU µs/node", "cpu_microseconds_per_node"),
    _LOAD,
)
_ALONE = (
    Column("scheduler CPU µs/task", "scheduler_cpu_microseconds_per_task", decimals=2),
    Column("of it Python", "scheduler_main_thread_microseconds_per_task", decimals=2),
    Column("wall tasks/s", "tasks_per_second", decimals=0),
    Column("tasks in a batch to a worker", "tasks_per_worker_batch", decimals=0),
    Column("tasks in a batch to the client", "tasks_per_client_batch", decimals=0),
)

TABLES = {
    "submit": Table(
        "No-op tasks through submit(), then result() one by one",
        (
            Column("µs/task", "microseconds_per_task"),
            Column("CPU µs/task", "cpu_microseconds_per_task"),
            Column("submit() µs", "submit_microseconds_per_task"),
            _LOAD,
        ),
        "tasks",
    ),
    "map": Table(
        "No-op tasks through map()",
        (
            # first, and so the ratio's: a peer that needs minutes maps over fewer items
            Column("µs/task", "microseconds_per_task", decimals=2),
            Column("ms in all", "seconds", 1000),
            Column("CPU µs/task", "cpu_microseconds_per_task", decimals=2),
            _LOAD,
        ),
        "tasks",
    ),
    "round-trip": Table(
        "Round trip of one task, one after the other",
        (
            Column("p50 µs", "p50_microseconds", decimals=0),
            Column("p99 µs", "p99_microseconds", decimals=0),
            Column("CPU µs/call", "cpu_microseconds_per_call", decimals=0),
            _LOAD,
        ),
        "calls",
    ),
    "graph-tree": Table("A graph: sums of pairs of sums of pairs (reduction tree)", _GRAPH, "nodes"),
    "graph-fan": Table("A graph: one node, that many need, which one needs", _GRAPH, "nodes"),
    "graph-chain": Table("A graph: each node needs the one before", _GRAPH, "nodes"),
    "makespan": Table(
        "Tasks that sleep for 10 to 100 ms: all of them, beside the ideal",
        (
            Column("time / ideal", "makespan_by_ideal", decimals=3),
            Column("s in all", "seconds", decimals=2),
            Column("ideal s", "ideal_seconds", decimals=2),
            Column("late worker from s", "late_worker_seconds", decimals=2),
            Column("its tasks", "late_worker_tasks", decimals=0),
            _LOAD,
        ),
        "tasks",
    ),
    "argument": Table("100 MB of bytes as an argument (len)", _LARGE, ""),
    "result": Table("100 MB of bytes as a result", _LARGE, ""),
    "array": Table(
        "A NumPy array of 100 MB, placed once, used by ten tasks",
        (
            *_LARGE,
            Column("placing ms", "place_seconds", 1000),
            Column("array in the task is", "array_memory"),
            Column("owns its data", "array_owns_data"),
            Column("has a base", "array_has_base"),
        ),
        "",
    ),
    "queued": Table(
        "Scheduler alone: tasks queued before any worker connects, then drained",
        (*_ALONE, Column("submit CPU µs/task", "submit_cpu_microseconds_per_task", decimals=2)),
        "tasks",
    ),
    "streamed": Table("Scheduler alone: workers connected, tasks streamed through", _ALONE, "tasks"),
    "memory": Table(
        "Scheduler's memory for each queued no-op task",
        (
            Column("bytes/task", "bytes_per_task", decimals=0),
            Column("RSS before MiB", "before_mib"),
            Column("RSS after MiB", "after_mib"),
        ),
        "tasks",
    ),
    "footprint": Table(
        "Idle local cluster, client excluded",
        (
            Column("PSS MiB", "proportional_mib"),
            Column("RSS MiB", "resident_mib"),
            Column("processes", "processes", decimals=0),
            Column("idle CPU (cores)", "idle_cpu_cores", decimals=4),
            Column("client's idle CPU", "client_idle_cpu_cores", decimals=4),
        ),
        "",
    ),
    "startup": Table(
        "From nothing (a fresh interpreter) to the first result",
        (
            Column("ms", "first_result_seconds", 1000, 0),
            Column("ms until exit", "until_exit_seconds", 1000, 0),
        ),
        "",
    ),
}


def machine() -> dict[str, Any]:
    """What the figures were measured on, and with what."""
    packages = ("pyzmq", "cloudpickle", "numpy", "psutil")
    return {
        "processor": _processor_name(),
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: metadata.version(name) for name in packages},
        "revision": _revision(),
        "measured_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def write_json(path: Path, facts: dict[str, Any], series: Sequence[Series]) -> None:
    """Everything that was measured, every run of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": facts, "series": [asdict(one) for one in series]}, indent=1) + "\n")


def read_json(path: Path) -> list[Series]:
    """The series of an earlier run, to be shown beside those of this one."""
    records = json.loads(path.read_text())["series"]
    return [Series(**{**record, "measurement": Measurement(**record["measurement"])}) for record in records]


def read_origin(path: Path) -> dict[str, str]:
    """When an earlier run was made, and of which revision."""
    facts = json.loads(path.read_text())["machine"]
    return {"what": "rows of an earlier run", **{name: facts[name] for name in ("measured_at", "revision")}}


def merged(series: Sequence[Series], earlier: Sequence[Series]) -> list[Series]:
    """This run's series and what earlier ones have beyond it; of the same line, this run's counts."""
    measured = {_line_of(one) for one in series}
    return [*series, *(one for one in earlier if _line_of(one) not in measured)]


def _line_of(series: Series) -> tuple[object, ...]:
    measurement = series.measurement
    # our own engine's lines are the reference of every ratio: one for each benchmark and number of workers
    amount = None if measurement.engine == _OWN_ENGINE else measurement.amount
    return measurement.benchmark, measurement.engine, measurement.style, measurement.workers, amount


def terminal_text(series: Sequence[Series], skipped: Sequence[str] = ()) -> str:
    """The tables with aligned columns."""
    tables = [f"\n{table['title']}\n{_aligned(summary.cells(table))}" for table in _tables(series)]
    return "\n".join(tables) + _errors(series, skipped)


def summary_of(
    facts: dict[str, Any], series: Sequence[Series], command: str, skipped: Sequence[str] = ()
) -> dict[str, Any]:
    """The tables as data: see summary.py."""
    versions = {f"{_plain_title(one)} ({one.version})": None for one in series if one.version}
    return {
        "command": command,
        "machine": facts,
        "engines": list(versions),
        "not_measured": _errors(series, skipped),
        "tables": _tables(series),
    }


def markdown_text(facts: dict[str, Any], series: Sequence[Series], command: str, skipped: Sequence[str] = ()) -> str:
    """The tables as a Markdown document that says where it comes from."""
    return summary.markdown(summary_of(facts, series, command, skipped))


def median_of(series: Series, figure: str) -> Optional[Union[float, str]]:
    """The median of a figure over the runs; words are joined when the runs disagree."""
    values = [run[figure] for run in series.runs if figure in run]
    if not values:
        return None
    if all(isinstance(value, (int, float)) for value in values):
        return float(statistics.median(values))
    return "/".join(sorted({str(value) for value in values}))


def _tables(series: Sequence[Series]) -> list[dict[str, Any]]:
    found = []
    for benchmark, table in TABLES.items():
        members = [one for one in series if one.measurement.benchmark == benchmark]
        if members:
            members.sort(key=_place_in_table)
            columns, rows = _rows(table, members)
            found.append({"title": table.title, "columns": columns, "rows": rows})
    return found


def _place_in_table(series: Series) -> int:
    # merged figures come last: put them beside those with as many workers; the scheduler's are in order of size
    measurement = series.measurement
    return 0 if measurement.engine.startswith("scheduler-") else -measurement.workers


def _rows(table: Table, members: list[Series]) -> tuple[list[dict[str, Any]], list[list[summary.Value]]]:
    compared = any(not one.measurement.engine.startswith("scheduler-") for one in members)
    columns = [{"heading": name, "decimals": 0} for name in ("engine", "workers", table.amount) if name]
    columns += [{"heading": column.heading, "decimals": column.decimals} for column in table.columns]
    if compared:
        columns.append({"heading": summary.RATIO, "decimals": 2})
    rows = []
    for one in members:
        measurement = one.measurement
        row: list[summary.Value] = [_title(one), measurement.workers]
        if table.amount:
            row.append(measurement.amount)
        row += (
            [_value(one, column) for column in table.columns]
            if one.runs
            else ["failed"] + [None] * (len(table.columns) - 1)
        )
        if compared:
            row.append(_ratio(table.columns[0], one, members))
        rows.append(row)
    return columns, rows


def _value(series: Series, column: Column) -> summary.Value:
    value = median_of(series, column.figure)
    if value is None or isinstance(value, str):
        return value
    rounded = round(value * column.factor, column.decimals)
    return rounded if column.decimals else int(rounded)


def _ratio(column: Column, one: Series, members: list[Series]) -> summary.Value:
    own = next((other for other in members if _is_reference_for(other, one)), None)
    if own is None:
        return None
    reference, value = median_of(own, column.figure), median_of(one, column.figure)
    if not isinstance(reference, (int, float)) or not isinstance(value, (int, float)) or not reference:
        return None
    return 1 if one is own else round(value / reference, 2)


def _is_reference_for(other: Series, one: Series) -> bool:
    # by workers only: a peer that needs minutes runs fewer tasks, and the figures compared are per task
    return other.measurement.engine == _OWN_ENGINE and other.measurement.workers == one.measurement.workers


def _title(series: Series) -> str:
    measurement = series.measurement
    if measurement.engine.startswith("scheduler-"):
        return f"scheduler on {series.version or measurement.scheduler_python}"
    shows_style = measurement.benchmark in ("map", "makespan") and measurement.style != "map"
    return f"{_plain_title(series)}, {measurement.style}" if shows_style else _plain_title(series)


def _plain_title(series: Series) -> str:
    engine = series.measurement.engine
    return "scheduler" if engine.startswith("scheduler-") else engine_class(engine).title


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[position]) for row in rows) for position in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  " + "  ".join(cells))
    return "\n".join(lines) + "\n"


def _errors(series: Sequence[Series], skipped: Sequence[str]) -> str:
    failed = [one for one in series if one.errors]
    lines = [
        f"- {one.measurement.benchmark}, {_title(one)}, {one.measurement.workers} workers: "
        + " / ".join(one.errors[-1].splitlines()[-2:])
        for one in failed
    ]
    lines += [f"- {reason}" for reason in skipped]
    return "\nNot measured:\n\n" + "\n".join(lines) + "\n" if lines else ""


def _processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _revision() -> str:
    try:
        asked = subprocess.run(
            ["git", "-C", str(FOLDER), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return "unknown, since there is no git here"
    return asked.stdout.strip() or "unknown"
