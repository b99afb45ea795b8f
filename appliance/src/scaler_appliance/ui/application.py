"""The routes of the web application.

    /            the page            /events?page=…   a page's body, live
    /static/…    its files           /api/PAGE?…      the same, once
    /metrics     for Prometheus      /api/tasks/C/T   one task
    /healthz /livez /readyz          POST /api/workers/SESSION/drain, stop

Rule: a route turns a request into arguments and a result into a response; other modules make the content.
"""

from __future__ import annotations

import time
from typing import Any, Awaitable, Callable, Dict, Iterable, Optional, Union

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from scaler_appliance.ui import health
from scaler_appliance.ui.access import ACTION_HEADER, VIEWER, Guard, PageViewer, Scope, TrustedProxies
from scaler_appliance.ui.actions import ActionError, NotAllowedError, reachable, shut_down_worker
from scaler_appliance.ui.browser_sessions import BrowserSessions
from scaler_appliance.ui.events import Events, EventStream, to_json
from scaler_appliance.ui.local_users import is_of_this_user
from scaler_appliance.ui.metrics import CONTENT_TYPE, Metrics
from scaler_appliance.ui.pages.page_names import page_named
from scaler_appliance.ui.pages.queries import Query, QueryError
from scaler_appliance.ui.pages.task_pages import task
from scaler_appliance.ui.slot_demand import pool_demand, slot_demand
from scaler_appliance.ui.static_files import PageFiles, own_folder
from scaler_appliance.ui.ui_state import UiState
from scaler_appliance.ui.watching import Watch

MAXIMUM_STREAMS = 200
MAXIMUM_STREAMS_OF_ADDRESS = 100
MAXIMUM_STREAMS_OF_SESSION = 16

Asker = Callable[[str, int, bool], Awaitable[str]]

_LATER = {"Retry-After": "10"}
_NO_PAGE = (
    b"<!doctype html><title>Scaler</title><p>The pages are not part of this build. There are: metrics, api/workers.\n"
)


def make_application(
    state: UiState,
    watch: Watch,
    token: Optional[str] = None,
    hosts: Iterable[str] = (),
    files: Optional[PageFiles] = None,
    ask_to_shut_down: Asker = shut_down_worker,
    clock: Callable[[], float] = time.perf_counter,
    sessions: Optional[BrowserSessions] = None,
    proxies: Optional[TrustedProxies] = None,
    is_own: Callable[[Scope], bool] = is_of_this_user,
) -> Guard:
    """The web application.

    Parameters:
        token, hosts, sessions, proxies, is_own: for access control, see `Guard`.
        files: the page's; by default the package's.
        ask_to_shut_down: asks the scheduler to let a worker leave.
        clock: measures how long making bodies takes.
    """
    files = files or PageFiles(own_folder())
    handlers = _Handlers(state, watch, files, ask_to_shut_down, clock)
    routes = [
        Route("/", handlers.index),
        Route("/events", handlers.events),
        Route("/metrics", handlers.metrics),
        Route("/healthz", handlers.healthy),
        Route("/livez", handlers.live),
        Route("/readyz", handlers.ready),
        Route("/api/workers/{session}/{action}", handlers.shut_down, methods=["POST"]),
        Route("/api/tasks/{client}/{task}", handlers.task),
        Route("/api/demand", handlers.demand),
        Route("/api/{page}", handlers.page),
        *([Mount("/static", files)] if files.is_there else []),
    ]
    errors: Dict[Any, Any] = {QueryError: _on_query_error, HTTPException: _on_http_error}
    return Guard(Starlette(routes=routes, exception_handlers=errors), token, hosts, sessions, proxies, is_own)


class _Handlers:
    def __init__(
        self, state: UiState, watch: Watch, files: PageFiles, ask_to_shut_down: Asker, clock: Callable[[], float]
    ) -> None:
        self._state = state
        self._watch = watch
        self._files = files
        self._ask_to_shut_down = ask_to_shut_down
        self._clock = clock
        self._metrics = Metrics(state)

    async def index(self, request: Request) -> Response:
        if not self._files.is_there:
            return Response(_NO_PAGE, media_type="text/html")
        return await self._files.get_response("index.html", request.scope)

    async def events(self, request: Request) -> Union[Response, EventStream]:
        viewer: PageViewer = request.scope[VIEWER]
        self._check_streams(viewer)
        query = Query(request.query_params)
        page = page_named(query.text("page", "overview"))
        events = Events(self._state, page, query, self._clock, bool(viewer.session))
        return EventStream(events, events.next(), self._watch, viewer)

    def _check_streams(self, viewer: PageViewer) -> None:
        """Raises HTTPException if there are too many streams of events for one more."""
        streams = self._watch.viewers()
        if len(streams) >= MAXIMUM_STREAMS:
            why = f"{MAXIMUM_STREAMS} pages are open already, the most that scaler_ui serves; close one"
            raise HTTPException(503, why, _LATER)
        of_address = sum(other.address == viewer.address and not other.user for other in streams)
        if not viewer.user and of_address >= MAXIMUM_STREAMS_OF_ADDRESS:  # that of all users of a trusted proxy is one
            why = f"{of_address} pages are open already from {viewer.address}, the most for one address; close one"
            raise HTTPException(429, why, _LATER)
        who = (viewer.session, viewer.user)
        of_browser = sum((other.session, other.user) == who for other in streams)
        if any(who) and of_browser >= MAXIMUM_STREAMS_OF_SESSION:
            why = f"{of_browser} pages are open already, the most for one session or user; close one"
            raise HTTPException(429, why, _LATER)

    async def page(self, request: Request) -> Response:
        try:
            page = page_named(request.path_params["page"])
        except QueryError as error:  # here the query is part of the path
            raise HTTPException(404, str(error)) from None
        viewer: PageViewer = request.scope[VIEWER]
        events = Events(self._state, page, Query(request.query_params), is_logged_in=bool(viewer.session))
        return _json(events.next())

    async def task(self, request: Request) -> Response:
        numbers = Query(request.path_params)
        found = task(self._state, numbers.whole("client", 0), numbers.whole("task", 0))
        if found is None:
            raise HTTPException(404, "this task is unknown, or no longer kept")
        return _json(found)

    async def demand(self, request: Request) -> Response:
        asked = Query(request.query_params)
        names = asked.text("capabilities") if "capabilities" in request.query_params else None
        found = slot_demand(self._state, names)
        if found is None:
            raise HTTPException(503, "the scheduler is silent at the moment")
        if "pool" in request.query_params:
            found = pool_demand(self._state, asked.text("pool"))
            if found is None:
                raise HTTPException(404, "no provisioner has a pool of this name; /api/demand lists all pools")
        return _json(found)

    async def shut_down(self, request: Request) -> Response:
        numbers = Query(request.path_params)
        session = numbers.whole("session", 0, highest=2**32 - 1)
        action = request.path_params["action"]
        if action not in ("drain", "stop"):
            raise HTTPException(404, "a worker can drain or stop")
        if not self._state.actions_allowed:
            raise HTTPException(403, "actions are off: start scaler_ui with --allow-actions")
        if request.headers.get(ACTION_HEADER) != "1":
            raise HTTPException(403, f"the header {ACTION_HEADER}: 1 is missing")
        scheduler = self._state.cluster.scheduler
        if scheduler is None or not self._state.feed.is_connected():
            raise HTTPException(503, "the scheduler is silent at the moment")
        if scheduler.is_protected and action == "stop":
            raise HTTPException(
                409, "the scheduler is protected: it was started without --no-protected; drain the worker"
            )
        if session not in self._state.cluster.workers:
            raise HTTPException(404, "this worker does not exist, or has left")
        address = reachable(scheduler.address, self._state.feed.address)
        try:
            message = await self._ask_to_shut_down(address, session, action == "drain")
        except NotAllowedError as error:
            raise HTTPException(409, str(error)) from None
        except ActionError as error:
            raise HTTPException(502, str(error)) from None
        return _json({"accepted": True, "message": message})

    async def metrics(self, _request: Request) -> Response:
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    async def live(self, _request: Request) -> Response:
        return _health(health.live(time.monotonic() - self._watch.turned_at))

    async def healthy(self, _request: Request) -> Response:
        return _health(health.healthy(self._state))

    async def ready(self, request: Request) -> Response:
        workers = Query(request.query_params).whole("workers", 1, highest=10**9)
        return _health(health.ready(self._state, workers))


def _health(found: health.Health) -> Response:
    return _json(found.details, 200 if found.is_good else 503)


def _json(value: Any, status: int = 200) -> Response:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    return Response(to_json(value) + b"\n", status, headers)


async def _on_query_error(_request: Request, error: QueryError) -> Response:
    return _json({"error": str(error)}, 400)


async def _on_http_error(_request: Request, error: HTTPException) -> Response:
    response = _json({"error": str(error.detail)}, error.status_code)
    response.headers.update(error.headers or {})
    return response
