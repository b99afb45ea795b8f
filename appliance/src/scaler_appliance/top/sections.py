"""The upper part: sections of figures side by side, and what is left out if there is little room.

Rules:
- Each figure is a total or a current value; a total has its increase in the last second beside it, if there is room.
- The most frequent messages come first, so that the rarest are cut off.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence, Tuple

from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_appliance.top import text
from scaler_appliance.top.lines import BAD, FAINT, PLAIN, TITLE, Line, Span

SEPARATOR = " | "

# Task states in their usual order; these are always shown, any others once they have occurred.
TASK_STATES = ("unassigned", "running", "success", "failed", "canceled")
_NOW = ("unassigned", "running")
_BAD = ("failed", "lost")

_WITHOUT_RATES = ("scheduler", "object_manager")
_LEAST_RATE_COLUMNS = 7

# What is left out, one after the other, until the rest fits: the rates of a section, or the whole section.
_RATES_OF, _ALL_OF = "rates", "all"
_SACRIFICES: Tuple[Tuple[str, str], ...] = (
    (_RATES_OF, "scheduler_received"),
    (_RATES_OF, "scheduler_sent"),
    (_ALL_OF, "object_manager"),
    (_ALL_OF, "scheduler_received"),
    (_ALL_OF, "scheduler_sent"),
    (_RATES_OF, "task_manager"),
    (_ALL_OF, "scheduler"),
)


MEANINGS: Tuple[Tuple[str, str], ...] = (
    ("cpu, rss, up", "processor time of the scheduler, of one core; its memory; how long it has been running"),
    ("clients, slots", "clients that are connected; tasks that all workers can run at once"),
    ("unassigned", "tasks that wait for a worker"),
    ("waiting", "tasks of graphs that wait for other tasks"),
    ("running", "tasks at workers: those that run, and those that workers hold ready"),
    ("success, failed,", "outcomes of tasks since the scheduler started; beside them, how many there were"),
    ("canceled, lost", "per second recently; lost: with their worker or processor"),
    ("stale", "results of tasks that already had an outcome"),
    ("objects, bytes", "objects that the scheduler keeps, their size, and how much of it is on disk"),
    ("scheduler_sent", "messages that it sent, and received (scheduler_received), by kind"),
    ("client_manager", "clients: tasks without an outcome, tasks that ended"),
    ("func_to_num_tasks", "functions: unfinished tasks, tasks that end per second, their median duration"),
    ("actor_to_num_calls", "actors: their worker, calls without an outcome, calls that ended"),
)
"""The figures above the table and beside it, with their meanings."""


class Figure(NamedTuple):
    name: str
    value: str
    rate: str = ""
    style: str = PLAIN


class Section(NamedTuple):
    title: str
    figures: List[Figure]


def sections(cluster: ClusterModel) -> List[Section]:
    """All sections; without figures before the first publication."""
    return [
        Section("scheduler", _scheduler(cluster)),
        Section("task_manager", _tasks(cluster)),
        Section("object_manager", _objects(cluster)),
        Section("scheduler_sent", _messages(cluster, "sent", cluster.sent)),
        Section("scheduler_received", _messages(cluster, "received", cluster.received)),
    ]


def _scheduler(cluster: ClusterModel) -> List[Figure]:
    scheduler = cluster.scheduler
    if scheduler is None:
        return []
    return [
        Figure("cpu", text.percent(scheduler.cpu_permille)),
        Figure("rss", text.size(scheduler.resident_bytes)),
        Figure("up", text.duration(scheduler.uptime_seconds)),
        Figure("clients", text.count(len(cluster.clients))),
        Figure("slots", text.count(scheduler.slots)),
    ]


def _tasks(cluster: ClusterModel) -> List[Figure]:
    others = sorted(name for name, value in cluster.tasks.items() if value and name not in TASK_STATES)
    return [
        Figure(
            text.safe(name),
            text.count(cluster.tasks.get(name, 0)),
            "" if name in _NOW else text.rate(cluster.rates.get(f"task.{name}", 0.0)),
            BAD if name in _BAD and cluster.tasks.get(name) else PLAIN,
        )
        for name in [*TASK_STATES, *others]
    ]


def _objects(cluster: ClusterModel) -> List[Figure]:
    scheduler = cluster.scheduler
    if scheduler is None:
        return []
    return [
        Figure("objects", text.count(scheduler.objects)),
        Figure("bytes", text.size(scheduler.object_bytes)),
        Figure("on_disk", text.size(scheduler.object_bytes_on_disk)),
    ]


def _messages(cluster: ClusterModel, prefix: str, totals: Dict[str, int]) -> List[Figure]:
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    return [
        Figure(text.safe(name), text.count(value), text.rate(cluster.rates.get(f"{prefix}.{name}", 0.0)))
        for name, value in ordered
        if value
    ]


def header(cluster: ClusterModel, columns: int, most_lines: int) -> List[Line]:
    """The sections side by side, in at most so many columns and lines, titles included."""
    shown = sections(cluster)
    rates = {section.title for section in shown}
    for what, title in _SACRIFICES:
        if _width(shown, rates) <= columns or len(shown) == 1:
            break
        if what == _ALL_OF:
            shown = [section for section in shown if section.title != title]
        rates.discard(title)
    blocks = [_block(section, section.title in rates, most_lines) for section in shown]
    height = max(map(len, blocks))
    return [_beside([_line_of(block, index) for block in blocks]) for index in range(height)]


def _widths(section: Section, with_rates: bool) -> Tuple[int, int, int]:
    """Of names, values and rates."""
    names = max([text.width(section.title), *(text.width(figure.name) for figure in section.figures)])
    values = max([0, *(len(figure.value) for figure in section.figures)])
    # The column for rates is always there, so that rates that come and go do not move other columns.
    can_have = with_rates and section.title not in _WITHOUT_RATES
    rates = max([_LEAST_RATE_COLUMNS, *(len(figure.rate) for figure in section.figures)]) if can_have else 0
    return names, values, rates


def _width(shown: Sequence[Section], rates: set[str]) -> int:
    widths = [_widths(section, section.title in rates) for section in shown]
    each = [names + 1 + values + (1 + rate if rate else 0) for names, values, rate in widths]
    return sum(each) + len(SEPARATOR) * (len(shown) - 1)


def _block(section: Section, with_rates: bool, most_lines: int) -> List[Line]:
    """A section's lines, all of the same width."""
    names, values, rates = _widths(section, with_rates)
    total = names + 1 + values + (1 + rates if rates else 0)
    title = text.right(section.title, names)
    lines: List[Line] = [(Span(title, TITLE), Span(" " * (total - text.width(title))))]
    room = max(0, most_lines - 1)
    shown = section.figures
    if len(shown) > room:
        shown = shown[: max(0, room - 1)]
    for figure in shown:
        spans = [Span(f"{text.right(figure.name, names)} {text.right(figure.value, values)}", figure.style)]
        if rates:
            spans.append(Span(" " + text.right(figure.rate, rates), FAINT))
        lines.append(tuple(spans))
    hidden = len(section.figures) - len(shown)
    if hidden and room:
        lines.append((Span(text.left(text.right(f"{hidden} more", names), total), FAINT),))
    return lines


def _line_of(block: List[Line], index: int) -> Line:
    if index < len(block):
        return block[index]
    return (Span(" " * sum(text.width(span.text) for span in block[0])),)


def _beside(parts: Sequence[Line]) -> Line:
    spans: List[Span] = list(parts[0])
    for part in parts[1:]:
        spans.append(Span(SEPARATOR, FAINT))
        spans.extend(part)
    return tuple(spans)
