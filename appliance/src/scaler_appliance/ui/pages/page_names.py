"""Every page by its name, as a function of the state, the query, and what the browser already has.

Rule: a page is a pure function: it returns the same body and cursor for the same arguments.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

from scaler_appliance.ui.pages import entity_pages
from scaler_appliance.ui.pages.overview import overview
from scaler_appliance.ui.pages.queries import Query, one_of
from scaler_appliance.ui.pages.tables import Body
from scaler_appliance.ui.pages.task_pages import tasks
from scaler_appliance.ui.pages.timeline import stream
from scaler_appliance.ui.ui_state import UiState

Page = Callable[[UiState, Query, Optional[Any]], Tuple[Optional[Body], Any]]


def _whole(page: Callable[[UiState, Query], Body]) -> Page:
    """A page that is always sent as a whole."""

    def body(state: UiState, query: Query, _cursor: Optional[Any] = None) -> Tuple[Optional[Body], Any]:
        return page(state, query), None

    return body


def _nothing(_state: UiState, _query: Query, _cursor: Optional[Any] = None) -> Tuple[Optional[Body], Any]:
    """For a page that shows only the head."""
    return None, None


PAGES: Dict[str, Page] = {
    "head": _nothing,
    "overview": overview,
    "stream": stream,
    "workers": _whole(entity_pages.workers),
    "tasks": _whole(tasks),
    "functions": _whole(entity_pages.functions),
    "clients": _whole(entity_pages.clients),
    "objects": _whole(entity_pages.objects),
    "graphs": _whole(entity_pages.graphs),
    "actors": _whole(entity_pages.actors),
}


def page_named(name: str) -> Page:
    """Raises QueryError."""
    return PAGES[one_of("page", name, PAGES)]
