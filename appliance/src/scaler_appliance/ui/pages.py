"""Every page by its name, as one function: of the state, the query, and what the browser has been told already.

Rule: a page gives the same body for the same three, and changes nothing but the cursor that it returns.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

from scaler_appliance.ui import entities
from scaler_appliance.ui.overview import overview
from scaler_appliance.ui.queries import Query, one_of
from scaler_appliance.ui.state import State
from scaler_appliance.ui.tables import Body
from scaler_appliance.ui.tasks import tasks
from scaler_appliance.ui.timeline import stream

Page = Callable[[State, Query, Optional[Any]], Tuple[Optional[Body], Any]]


def _whole(page: Callable[[State, Query], Body]) -> Page:
    """A page that is told as a whole each time."""

    def told(state: State, query: Query, _cursor: Optional[Any] = None) -> Tuple[Optional[Body], Any]:
        return page(state, query), None

    return told


def _nothing(_state: State, _query: Query, _cursor: Optional[Any] = None) -> Tuple[Optional[Body], Any]:
    """For a page that shows the head alone."""
    return None, None


PAGES: Dict[str, Page] = {
    "head": _nothing,
    "overview": overview,
    "stream": stream,
    "workers": _whole(entities.workers),
    "tasks": _whole(tasks),
    "functions": _whole(entities.functions),
    "clients": _whole(entities.clients),
    "objects": _whole(entities.objects),
    "graphs": _whole(entities.graphs),
}


def page_named(name: str) -> Page:
    """Raises QueryError."""
    return PAGES[one_of("page", name, PAGES)]
