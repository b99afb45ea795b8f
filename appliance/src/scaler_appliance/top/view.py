"""Which part of a cluster is shown, and how keys change that.

Rules:
- `press` is a pure function of a view, a key and the extent of the rows, which returns the next view.
- Every key is listed in KEYS, which the help shows.
"""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple, Tuple

from scaler_appliance.top.rows import BY_KEY

MOST_FILTER_CHARACTERS = 100


class View(NamedTuple):
    """The view.

    Attributes:
        sort: the title of the sort column.
        is_reversed: the smallest first, names from Z to A.
        wanted: only rows whose name contains this are shown.
        offset: how many rows were scrolled off the top.
        is_typing: keys go to the filter.
        wanted_before: the filter before it was edited.
        is_paused: no updates are shown.
    """

    sort: str = "cpu"
    is_reversed: bool = False
    wanted: str = ""
    offset: int = 0
    is_typing: bool = False
    wanted_before: str = ""
    is_paused: bool = False
    shows_help: bool = False
    has_quit: bool = False


class Extent(NamedTuple):
    """How much there is to scroll: rows that match, and rows that fit."""

    rows: int
    page: int

    @property
    def last_offset(self) -> int:
        return max(0, self.rows - self.page)


KEYS: Tuple[Tuple[str, str], ...] = (
    ("n C M c m f w d l", "sort by worker agt_cpu agt_rss cpu rss free sent queued lag"),
    ("the same again", "reverse the order"),
    ("r", "reverse the order"),
    ("up down, k j", "scroll by a row"),
    ("page up/down, b", "scroll by a page"),
    ("home end, g G", "go to the first row, to the last"),
    ("/", "only workers with this text in their name; Enter keeps it, Esc clears it"),
    ("space", "pause, and continue"),
    ("? h", "this help; any key closes it"),
    ("q, Ctrl-C", "quit (in earlier versions q sorted by queued, which is now d)"),
)

_Scroll = Callable[[int, Extent], int]
_SCROLLS: Dict[str, _Scroll] = {
    "KEY_UP": lambda offset, _: offset - 1,
    "k": lambda offset, _: offset - 1,
    "KEY_DOWN": lambda offset, _: offset + 1,
    "j": lambda offset, _: offset + 1,
    "KEY_PGUP": lambda offset, extent: offset - max(1, extent.page - 1),
    "b": lambda offset, extent: offset - max(1, extent.page - 1),
    "KEY_PGDOWN": lambda offset, extent: offset + max(1, extent.page - 1),
    "KEY_HOME": lambda offset, _: 0,
    "g": lambda offset, _: 0,
    "KEY_END": lambda _, extent: extent.last_offset,
    "G": lambda _, extent: extent.last_offset,
}


def press(view: View, key: str, extent: Extent) -> View:
    """The view after a key: a character, or a name such as KEY_UP."""
    if key == "\x03":
        return view._replace(has_quit=True)
    if view.is_typing:
        return _type(view, key)
    if view.shows_help:
        return view._replace(shows_help=False, has_quit=key == "q")
    if key in BY_KEY:
        return _sort(view, BY_KEY[key].title)
    if key in _SCROLLS:
        offset = _SCROLLS[key](min(view.offset, extent.last_offset), extent)
        return view._replace(offset=min(max(0, offset), extent.last_offset))
    return _command(view, key)


def _sort(view: View, title: str) -> View:
    if view.sort == title:
        return view._replace(is_reversed=not view.is_reversed)
    return view._replace(sort=title, is_reversed=False, offset=0)


def _command(view: View, key: str) -> View:
    if key == "q":
        return view._replace(has_quit=True)
    if key == "r":
        return view._replace(is_reversed=not view.is_reversed)
    if key == " ":
        return view._replace(is_paused=not view.is_paused)
    if key in ("?", "h", "KEY_F1"):
        return view._replace(shows_help=True)
    if key == "/":
        return view._replace(is_typing=True, wanted_before=view.wanted)
    if key == "KEY_ESCAPE":
        return view._replace(wanted="", offset=0)
    return view


def _type(view: View, key: str) -> View:
    """A key while the filter is typed; the rows are filtered after each one."""
    if key in ("KEY_ENTER", "\n", "\r"):
        return view._replace(is_typing=False)
    if key == "KEY_ESCAPE":
        return view._replace(is_typing=False, wanted=view.wanted_before, offset=0)
    if key in ("KEY_BACKSPACE", "KEY_DELETE", "\x7f", "\b"):
        return view._replace(wanted=view.wanted[:-1], offset=0)
    if key == "\x15":  # Ctrl-U
        return view._replace(wanted="", offset=0)
    if len(key) == 1 and key.isprintable() and len(view.wanted) < MOST_FILTER_CHARACTERS:
        return view._replace(wanted=view.wanted + key, offset=0)
    return view
