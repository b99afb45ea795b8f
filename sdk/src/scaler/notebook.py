"""How clients, futures and clusters are displayed in a notebook.

Rules:
- Only known state is shown: nothing here asks a scheduler, takes a lock or waits.
- All texts are escaped, and links lead to web pages only, because names of functions and workers are untrusted.
- Colours are those of the page, light or dark.
"""

from __future__ import annotations

from html import escape
from typing import List, NamedTuple, Tuple, Union

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
