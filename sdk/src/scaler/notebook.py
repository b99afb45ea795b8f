"""How clients, futures, graphs and clusters are displayed in a notebook.

Rules:
- Only known state is shown: nothing here asks a scheduler, takes a lock or waits.
- All texts are escaped, and links lead to web pages only, because names of functions and workers are untrusted.
- Colours are those of the page, light or dark.
"""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import Any, Dict, List, NamedTuple, Tuple, Union

from scaler.values.texts import repr_of, shortened

_BOX = (
    "display:inline-block;color:inherit;background:none;border:1px solid currentColor;border-radius:6px;"
    "padding:8px 14px;line-height:1.5"
)
_CELL = "text-align:left;border:0;background:none;color:inherit;padding:0 1em 0 0"


class Link(NamedTuple):
    """A web page; empty if there is none."""

    url: str

    def html(self) -> str:
        if not self.url.startswith(("http://", "https://")):
            return escape(self.url)
        url = escape(self.url, quote=True)
        text = escape(self.url.partition("?")[0])  # the rest may contain a token
        return f'<a href="{url}" target="_blank" rel="noopener noreferrer" style="color:inherit">{text}</a>'


Row = Tuple[str, Union[str, int, Link]]


def card(title: str, rows: List[Row]) -> str:
    """A box with a title and a line for each row that has a value."""
    lines = [
        f'<tr style="background:none"><td style="{_CELL};opacity:0.7">{escape(label)}</td>'
        f'<td style="{_CELL}">{value.html() if isinstance(value, Link) else escape(str(value))}</td></tr>'
        for label, value in rows
        if value not in ("", Link(""))
    ]
    return (
        f'<div style="{_BOX}"><strong>{escape(title)}</strong>'
        f'<table style="border:0;background:none;margin:4px 0 0">{"".join(lines)}</table></div>'
    )


SHOWN_KEYS = 20
KEY_CHARACTERS = 80


class FuturesByKey(Dict[Any, Any]):
    """The futures of a graph's keys: a dictionary with a box of its own. For anything else, it is a dictionary."""

    def _repr_html_(self) -> str:
        return _graph_card([(repr_of(key), future) for key, future in self.items()])

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class FuturesInOrder(List[Any]):
    """The same as a list, in the order of the keys that were asked for."""

    def _repr_html_(self) -> str:
        return _graph_card([(f"{position}", future) for position, future in enumerate(self)])

    def __reduce__(self) -> Any:
        return list, (list(self),)


def _graph_card(futures: List[Tuple[str, Any]]) -> str:
    """A box with the states of a graph's futures."""
    states = [(shortened(key, KEY_CHARACTERS), future._outcome()) for key, future in futures]
    rows: List[Row] = [("keys", len(states)), *sorted(Counter(_kind(state) for _, state in states).items())]
    rows += states[:SHOWN_KEYS]
    rows.append(("other keys", max(0, len(states) - SHOWN_KEYS) or ""))
    return card("Graph", rows)


def _kind(state: str) -> str:
    how = state.partition(" ")[2].partition(" ")[0]
    return "failed" if how in ("raised", "failed") else state.partition(",")[0]
