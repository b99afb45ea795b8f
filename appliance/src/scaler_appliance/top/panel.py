"""The panel beside the workers: the clients, functions and actors with the most tasks.

Rules:
- Those with the most tasks come first; the number of omitted ones is shown.
- A client without a name is shown by process and host; functions of the same name of different clients are separate.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

from scaler_appliance.feed.cluster_entities import ActorFigures, ClientRecord, FunctionFigures
from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_appliance.top import text
from scaler_appliance.top.lines import FAINT, TITLE, Line, Span

LEAST_COLUMNS = 26
MOST_COLUMNS = 76
_LEAST_NAME_COLUMNS = 17
_PLACE_COLUMNS = 16  # of the name of an actor's worker


class _Entry(NamedTuple):
    name: str
    cells: Sequence[str]


def panel(cluster: ClusterModel, columns: int, most_lines: int) -> List[Line]:
    """Lines of at most that width. Clients may use half of the lines, and those that functions do not need.

    Actors, if there are any, have a third of the lines at most.
    """
    actors = sorted(cluster.actors.values(), key=lambda each: (-(each.waiting + each.running), each.actor_id))
    below: List[Line] = []
    if actors:
        headings = ("at", "calls", "finished")
        entries = [_actor(each, cluster) for each in actors[:most_lines]]
        below = [(Span(""),), *_table("actor_to_num_calls", headings, entries, columns, most_lines // 3, len(actors))]
        most_lines -= len(below)
    clients = sorted(cluster.clients.values(), key=lambda each: (-each.tasks, each.session))
    functions = [each for each in cluster.functions.values() if not each.has_gone]
    functions.sort(key=lambda each: (-(each.running + each.waiting), -each.finished_per_second, each.number))
    functions_lines = 1 + len(functions)
    clients_lines = max(min(1 + len(clients), most_lines // 2), most_lines - 1 - functions_lines)
    lines = _table("client_manager", ("tasks", "finished"), [_client(c) for c in clients], columns, clients_lines)
    lines.append((Span(""),))
    lines += _table(
        "func_to_num_tasks",
        ("tasks", "per s", "median"),
        [_function(each) for each in functions[:most_lines]],
        columns,
        most_lines - len(lines),
        len(functions),
    )
    return lines[:most_lines] + below if most_lines > 0 else []


def _actor(actor: ActorFigures, cluster: ClusterModel) -> _Entry:
    worker = cluster.workers.get(actor.worker)
    place = actor.state if worker is None else text.fit(text.safe(worker.name), _PLACE_COLUMNS)
    return _Entry(
        text.safe(actor.label),
        (
            "lost" if actor.why_lost else place,
            text.count(actor.waiting + actor.running),
            text.count(actor.finished),
        ),
    )


def _client(client: ClientRecord) -> _Entry:
    parts = [str(client.process_id), text.safe(client.host)]
    if client.name not in ("", parts[0]):
        parts.append(text.safe(client.name))
    return _Entry("|".join(parts), (text.count(client.tasks), text.count(client.finished)))


def _function(function: FunctionFigures) -> _Entry:
    median = function.quantile_microseconds(0.5)
    return _Entry(
        text.safe(function.name) or f"function {function.number}",
        (
            text.count(function.running + function.waiting),
            text.rate(function.finished_per_second)[:-2],
            text.lag(int(median)) if median else "",
        ),
    )


def _table(
    title: str, headings: Sequence[str], entries: List[_Entry], columns: int, most_lines: int, of: int = 0
) -> List[Line]:
    """A title, and the entries below it; `of`: the total number of entries."""
    shown = entries[: max(0, most_lines - 1)]
    hidden = max(of, len(entries)) - len(shown)
    if hidden and shown:
        shown = shown[:-1]
        hidden += 1
    widths = [
        max(len(heading), *(len(entry.cells[index]) for entry in shown)) if shown else len(heading)
        for index, heading in enumerate(headings)
    ]
    while len(widths) > 1 and columns - sum(widths) - len(widths) < _LEAST_NAME_COLUMNS:
        widths.pop()
    longest = max([text.width(title), *(text.width(entry.name) for entry in shown)])
    names = min(longest, columns - sum(widths) - len(widths))
    lines: List[Line] = [
        (
            Span(text.left(title, names), TITLE),
            Span("".join(" " + text.right(heading, width) for heading, width in zip(headings, widths)), FAINT),
        )
    ]
    for entry in shown:
        cells = "".join(" " + text.right(cell, width) for cell, width in zip(entry.cells, widths))
        lines.append((Span(text.left(entry.name, names) + cells),))
    if hidden and most_lines > 1:
        lines.append((Span(text.fit(f"{text.count(hidden)} more", columns), FAINT),))
    return lines
