"""A frame: the whole screen as lines, from a cluster, a view and a size.

    scheduler  | task_manager | ...        sections.py
    ------------------------------
    Shortcuts: worker[n] agt_cpu[C] ...
    notices: no keys, silence, pause, filter, why tasks wait
    Total 7 worker(s) ...
            worker agt_cpu ... ITL | client_manager
    ...    rows.py                 | ...   panel.py

Rules:
- No line is wider than the size, none has a line break, and there are no more lines than fit; a size without a height
  has room for all.
- Figures are dim if they are stale, because the scheduler is silent or the view is paused.
- In a narrow terminal, columns are left out in the order of _SACRIFICES; the sort column stays.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_appliance.top import text
from scaler_appliance.top.lines import (
    ALARM,
    FAINT,
    NOTICE,
    SORTED,
    TITLE,
    Line,
    Span,
    clip,
    line,
    padded,
    stopped,
    width_of,
)
from scaler_appliance.top.panel import LEAST_COLUMNS, MOST_COLUMNS, panel
from scaler_appliance.top.rows import COLUMNS, ROWS_MEANING, Column, Row, Rows
from scaler_appliance.top.sections import MEANINGS, SEPARATOR, header
from scaler_appliance.top.view import KEYS, Extent, View

LEAST_NAME_COLUMNS = 12
USUAL_NAME_COLUMNS = 24
MOST_NAME_COLUMNS = 48
MOST_REASONS = 3
LEAST_LINES_FOR_SECTIONS = 12

# Columns in the order in which they are left out, after the panel beside them.
_SACRIFICES = ("ITL", "agt_rss", "agt_cpu", "lag", "free", "queued", "rss", "sent", "cpu")
_INSECURE = " INSECURE: all who reach this scheduler can run programs as its user (--insecure) "
_MORE_SHORTCUTS = "reverse[r] filter[/] pause[space] help[?] quit[q]"


class Size(NamedTuple):
    """Columns and lines of the screen; None: as many lines as it takes."""

    columns: int
    lines: Optional[int]


class FeedSource(NamedTuple):
    """Where the figures come from, and how old they are.

    Attributes:
        silent_seconds: since the last publication, or since the start if there was none.
        is_connected: the scheduler is not overdue.
        paused_seconds: since the view was paused; 0 if it is not.
        reason: why nothing is received, if that is known.
    """

    address: str
    silent_seconds: float = 0.0
    is_connected: bool = True
    paused_seconds: float = 0.0
    reason: str = ""


class ScreenFrame(NamedTuple):
    lines: List[Line]
    extent: Extent  # of the rows


def arrange(cluster: ClusterModel, view: View) -> Rows:
    """The rows that a view shows, in its order."""
    return Rows(cluster, view.sort, view.is_reversed, view.wanted)


def render(
    cluster: ClusterModel, view: View, source: FeedSource, size: Size, arranged: Optional[Rows] = None
) -> ScreenFrame:
    """The frame of a cluster in this view.

    Parameters:
        arranged: the result of `arrange` for the cluster and the view, if it was called before.
    """
    if view.shows_help:
        return ScreenFrame(_whole(_help(), size), Extent(0, 0))
    rows = arrange(cluster, view) if arranged is None else arranged
    above = _above(cluster, view, source, size, len(rows))
    page = len(rows) if size.lines is None else max(0, size.lines - len(above) - 1)
    extent = Extent(len(rows), page)
    offset = min(view.offset, extent.last_offset)
    below = _below(cluster, view, rows.part(offset, page), size.columns, None if size.lines is None else page + 1)
    lines = _whole([*above, *below], size)
    if cluster.scheduler is not None and (view.is_paused or not source.is_connected):
        lines = list(map(stopped, lines))
    return ScreenFrame(lines, extent)


def _whole(lines: Sequence[Line], size: Size) -> List[Line]:
    return [clip(each, size.columns) for each in lines[: size.lines]]


def _help() -> List[Line]:
    lines = [line("keys; press any key to go back. scaler_top -h shows all of this, too", TITLE), line("")]
    lines += [line(f"{keys:>18}  {meaning}") for keys, meaning in KEYS]
    lines += [line(""), line(ROWS_MEANING, TITLE), line("")]
    lines += [line(f"{column.title:>18}  {column.meaning}") for column in COLUMNS]
    lines += [line(""), line("figures", TITLE), line("")]
    lines += [line(f"{names:>18}  {meaning}") for names, meaning in MEANINGS]
    return lines


# Above the table ------------------------------------------------------------------------------------------------------


def _above(cluster: ClusterModel, view: View, source: FeedSource, size: Size, matching: int) -> List[Line]:
    """All lines above the table, shortened to the height."""
    notices = _notices(cluster, view, source, size.lines is None)
    total = _total(cluster, view, matching)
    room = 1000 if size.lines is None else size.lines
    if room < LEAST_LINES_FOR_SECTIONS:
        return [*notices[: max(0, room - 4)], total]
    lines = header(cluster, size.columns, max(6, room // 3) if room > 14 else room - 8)
    ruler = line("-" * min(size.columns, max(map(width_of, lines))), FAINT)
    return [*lines, ruler, _shortcuts(size.columns), *(notices or [line("")]), total]


def _shortcuts(columns: int) -> Line:
    sorts = " ".join(f"{column.title}[{column.key}]" for column in COLUMNS if column.key)
    keys = "".join(column.key for column in COLUMNS)
    for shortcuts in (f"Shortcuts: {sorts}  {_MORE_SHORTCUTS}", f"Shortcuts: {sorts}", sorts, f"[{keys}] help[?]"):
        if len(shortcuts) <= columns:
            break
    return line(shortcuts)


def _notices(cluster: ClusterModel, view: View, source: FeedSource, shows_all_reasons: bool) -> List[Line]:
    """The notices that are needed to interpret the figures, and above them the one about keys."""
    lines = []
    if cluster.scheduler is not None and cluster.scheduler.is_insecure:
        lines.append(line(_INSECURE, ALARM))
    if cluster.scheduler is None:
        lines.append(
            line(f"waiting for {text.safe(source.address)}, for {text.duration(source.silent_seconds)}", NOTICE)
        )
        if source.reason:
            lines.append(line(text.safe(source.reason), NOTICE))
        elif source.silent_seconds > 5:
            lines.append(line("Check that this is the monitor address, which a scheduler logs when it starts", NOTICE))
    elif not source.is_connected:
        silent = text.duration(source.silent_seconds)
        lines.append(line(f"waiting for {text.safe(source.address)}, silent for {silent}: the figures are old", NOTICE))
        if source.reason:
            lines.append(line(text.safe(source.reason), NOTICE))
    if view.is_paused:
        lines.append(line(f"paused for {text.duration(source.paused_seconds)}; press space to continue", NOTICE))
    if view.is_typing:
        lines.append((Span("filter: ", NOTICE), Span(text.safe(view.wanted)), Span("_", NOTICE)))
    elif view.wanted:
        lines.append((Span("filter: ", NOTICE), Span(text.safe(view.wanted)), Span("  (Esc clears it)", FAINT)))
    lines += _first_of("tasks wait", cluster.waiting_reasons, "reasons", shows_all_reasons)
    lines += _first_of("units", cluster.unit_notes, "notes", shows_all_reasons)
    lost = [f"{each.label}: {each.why_lost}" for each in cluster.actors.values() if each.why_lost]
    lines += _first_of("lost", lost, "lost actors", shows_all_reasons)
    return lines


def _first_of(label: str, texts: Sequence[str], kind: str, shows_all: bool) -> List[Line]:
    """Texts of the scheduler, a line each, as many as leave room for the table."""
    shown = texts if shows_all else texts[:MOST_REASONS]
    lines = [line(f"{label}: {text.safe(each)}", NOTICE) for each in shown]
    if len(shown) < len(texts):
        lines.append(line(f"and {text.count(len(texts) - len(shown))} more {kind}, which --once shows", NOTICE))
    return lines


def _total(cluster: ClusterModel, view: View, matching: int) -> Line:
    processors = sum(len(worker.processors) for worker in cluster.workers.values())
    words = f"Total {text.count(len(cluster.workers))} worker(s)"
    if processors != len(cluster.workers):
        words += f", {text.count(processors)} processors"
    if cluster.scheduler is not None and cluster.scheduler.address:
        words += f", at {text.safe(cluster.scheduler.address)}"
    if view.wanted:
        words += f"; {text.count(matching)} rows match"
    leaving = [worker for worker in cluster.workers.values() if worker.is_leaving]
    if leaving:
        causes = sorted({worker.drain_cause for worker in leaving if worker.drain_cause})
        words += f"; {text.count(len(leaving))} leaving" + (f" ({', '.join(causes)})" if causes else "")
    congested = sum(worker.is_congested for worker in cluster.workers.values())
    return (Span(words), Span(f"; {text.count(congested)} do not read their messages" if congested else "", NOTICE))


# The table, and what stands beside it ---------------------------------------------------------------------------------


def _below(cluster: ClusterModel, view: View, rows: List[Row], columns: int, most_lines: Optional[int]) -> List[Line]:
    shown = list(COLUMNS)
    cells = {column.title: [column.write(row) for row in rows] for column in COLUMNS}
    headings = {column.title: _heading(column, view) for column in COLUMNS}
    widths = {title: max(map(text.width, [headings[title], *column])) for title, column in cells.items()}
    widths["worker"] = max(LEAST_NAME_COLUMNS, min(widths["worker"], MOST_NAME_COLUMNS))

    def table_columns() -> int:
        return sum(widths[column.title] + 1 for column in shown) - 1

    lines_beside = _lines_beside(cluster, most_lines)
    wanted = max(map(width_of, panel(cluster, MOST_COLUMNS, lines_beside)), default=0)
    beside = _columns_beside(columns, table_columns(), widths["worker"], wanted)
    for title in _SACRIFICES:
        if table_columns() - widths["worker"] + LEAST_NAME_COLUMNS <= columns:
            break
        if title != view.sort:
            shown = [column for column in shown if column.title != title]
    room = columns - (beside + len(SEPARATOR) if beside else 0)
    widths["worker"] = max(1, min(widths["worker"], room - (table_columns() - widths["worker"])))
    table = [_heading_line(shown, headings, widths, view)]
    for index in range(len(rows)):
        table.append(line(" ".join(_cell(column, cells[column.title][index], widths) for column in shown)))
    if not beside:
        return table
    return _side_by_side(table, table_columns(), panel(cluster, beside, lines_beside))


def _columns_beside(columns: int, table: int, name: int, wanted: int) -> int:
    """The width of the panel, taken partly from the names of workers; 0 if there is no room for it."""
    room = columns - table - len(SEPARATOR)
    if room < wanted:
        room += max(0, min(name - USUAL_NAME_COLUMNS, wanted - room))
    return min(room, wanted) if room >= min(wanted, LEAST_COLUMNS) else 0


def _lines_beside(cluster: ClusterModel, most_lines: Optional[int]) -> int:
    everything = 3 + len(cluster.clients) + sum(not function.has_gone for function in cluster.functions.values())
    if cluster.actors:
        everything = max(everything + 2 + len(cluster.actors), 3 * (1 + len(cluster.actors)))
    return everything if most_lines is None else most_lines


def _heading(column: Column, view: View) -> str:
    if column.title != view.sort:
        return column.title
    return f"[^{column.title}]" if view.is_reversed else f"[{column.title}]"


def _heading_line(shown: Sequence[Column], headings: dict[str, str], widths: dict[str, int], view: View) -> Line:
    spans: List[Span] = []
    for column in shown:
        style = SORTED if column.title == view.sort else TITLE
        heading = text.right(headings[column.title], widths[column.title])
        blanks = len(heading) - len(heading.lstrip())
        spans += [Span(" " * (blanks + (1 if spans else 0))), Span(heading[blanks:], style)]
    return tuple(spans)


def _cell(column: Column, content: str, widths: dict[str, int]) -> str:
    place: Callable[[str, int], str] = text.left if column.title == "worker" else text.right
    return place(content, widths[column.title])


def _side_by_side(table: List[Line], columns: int, beside: List[Line]) -> List[Line]:
    lines: List[Line] = []
    for index in range(max(len(table), len(beside))):
        at_left: Line = table[index] if index < len(table) else ()
        at_right: Tuple[Span, ...] = beside[index] if index < len(beside) else ()
        lines.append((*padded(at_left, columns), Span(SEPARATOR, FAINT), *at_right))
    return lines
