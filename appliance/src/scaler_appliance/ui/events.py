"""Server-sent events: to each browser the page that it shows, about once a second.

Rules:
- An event is made when the previous one has been sent: a browser that reads slowly gets fewer, and no events queue up.
- A body that takes long to make is sent less often, so that no browser takes more than a small share of the time. The
  head is sent every second, because it shows a page that it is connected.
- A stream ends with its browser's connection, with its session, or with this program. It also ends when its session's
  cookie is to be replaced: the browser comes again by itself, and gets the new cookie.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Callable, Dict, Optional

from scaler_appliance.ui.access import PageViewer, Receive, Scope, Send
from scaler_appliance.ui.pages.page_names import Page
from scaler_appliance.ui.pages.queries import Query
from scaler_appliance.ui.ui_state import UiState
from scaler_appliance.ui.watching import Watch

LARGEST_SHARE = 0.1
"""The share of one core that bodies for one browser may take."""

RETRY_MILLISECONDS = 1000

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would gather events otherwise
)

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def to_json(value: Any) -> bytes:
    """JSON without spaces, in ASCII: always one well-formed line."""
    return _encode(value).encode("ascii")


class Events:
    """The events of one browser.

    Parameters:
        page, query: what it shows.
        clock: seconds of a monotonic clock.
        is_logged_in: whether it has a session, which it can end.
    """

    def __init__(
        self,
        state: UiState,
        page: Page,
        query: Query,
        clock: Callable[[], float] = time.perf_counter,
        is_logged_in: bool = False,
    ) -> None:
        self._state = state
        self._page = page
        self._query = query
        self._clock = clock
        self._is_logged_in = is_logged_in
        self._cursor: Optional[Any] = None
        self._not_before = 0.0

    def next(self) -> Dict[str, Any]:
        """The current head and body. Raises QueryError."""
        began = self._clock()
        body = None
        if began >= self._not_before:
            body, self._cursor = self._page(self._state, self._query, self._cursor)
            ended = self._clock()
            self._not_before = ended + (ended - began) * (1 / LARGEST_SHARE - 1)
        return {"head": {**self._state.head(), "is_logged_in": self._is_logged_in}, "body": body}


class EventStream:
    """The response with the events: an ASGI application for one request.

    Parameters:
        first: the event that is sent at once.
        viewer: whose stream it is.
    """

    def __init__(self, events: Events, first: Dict[str, Any], watch: Watch, viewer: PageViewer) -> None:
        self._events = events
        self._first = first
        self._watch = watch
        self._viewer = viewer

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        wake = self._watch.subscribe(self._viewer)
        gone = asyncio.ensure_future(_until_gone(receive))
        gone.add_done_callback(lambda _: wake.set())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await _send_part(send, b"retry: %d\n" % RETRY_MILLISECONDS)
            event = self._first
            while not (gone.done() or self._watch.is_closing):
                await _send_part(send, b"data: " + to_json(event) + b"\n\n")
                await wake.wait()
                wake.clear()
                if not self._viewer.is_current():
                    break
                event = self._events.next()
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._watch.unsubscribe(wake)
            gone.cancel()


async def _send_part(send: Send, data: bytes) -> None:
    """Sends; returns when there is room for more."""
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
