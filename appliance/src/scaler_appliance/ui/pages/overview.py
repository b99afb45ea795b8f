"""The page `overview`: the last hour in figures, the functions that take the most time, and the hosts."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from scaler_appliance.ui.pages.entity_pages import functions_table
from scaler_appliance.ui.pages.figure_history import FINE_SAMPLES
from scaler_appliance.ui.pages.queries import Query
from scaler_appliance.ui.ui_state import UiState, hosts

FUNCTIONS_SHOWN = 8
HOSTS_SHOWN = 50

Cursor = Tuple[int, int]  # how many samples the browser has, and how many there were when it last got all of them


def overview(state: UiState, _query: Query, cursor: Optional[Cursor] = None) -> Tuple[Dict[str, Any], Cursor]:
    """The whole history first, then new samples; and all of it again when a browser has as many as it can show."""
    count = state.history.count
    series = None
    if cursor is not None and count - cursor[1] < FINE_SAMPLES:
        series = state.history.since(cursor[0])
    is_reset = series is None
    if is_reset:
        cursor = (count, count)
    assert cursor is not None
    busiest = sorted(state.cluster.functions.values(), key=lambda function: -function.busy_microseconds)
    row = functions_table(state).row
    body = {
        "series": state.history.whole() if series is None else series,
        "is_reset": is_reset,
        "functions": [row(function) for function in busiest[:FUNCTIONS_SHOWN]],
        "hosts": hosts(state, HOSTS_SHOWN),
        "hosts_total": len({worker.host for worker in state.cluster.workers.values()}),
    }
    return body, (count, cursor[1])
