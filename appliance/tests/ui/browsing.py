"""scaler_ui without sockets: a feed that is told by hand, and a browser that calls the application.

Rule: time is what the test says it is.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Dict, List, Mapping, MutableMapping, Optional, Tuple
from urllib.parse import urlsplit

from feed.played_status import PlayedScheduler

from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_appliance.feed.task_history import TaskHistory
from scaler_appliance.ui.application import make_application
from scaler_appliance.ui.pages.queries import Query
from scaler_appliance.ui.ui_state import UiState
from scaler_appliance.ui.watching import Watch
from scaler_protocol import messages as m

START = 1_800_000_000.0
DEADLINE_SECONDS = 30.0


class ToldFeed:
    """A feed that knows what a played scheduler says, one step at a time."""

    def __init__(self, scheduler: Optional[PlayedScheduler] = None) -> None:
        self.address = "ipc:///tmp/played"
        self.cluster = ClusterModel()
        self.task_log = TaskHistory()
        self.scheduler = scheduler or PlayedScheduler(started=START)
        self.age = 0.0

    def step(self, count: int = 1, snapshot: bool = False) -> None:
        for _ in range(count):
            generation = self.cluster.generation
            status, runs = self.scheduler.step(snapshot)
            self.cluster.apply(status)
            if self.cluster.generation != generation:
                self.task_log.clear()
            self.tell(runs)
        self.age = 0.0

    def tell(self, runs: m.TaskRuns) -> None:
        """What ran, beside what the scheduler tells by itself."""
        self.task_log.append(runs)
        self.cluster.note_runs(runs)

    def restart(self, scheduler: PlayedScheduler) -> None:
        self.scheduler = scheduler
        self.step()

    def age_seconds(self) -> float:
        return self.age

    def is_connected(self) -> bool:
        return self.cluster.scheduler is not None and self.age < 3.5

    def silence_reason(self) -> str:
        return "" if self.is_connected() else "nothing listens"

    def fileno(self) -> int:
        raise AssertionError("there is no socket")

    def receive(self) -> bool:
        return False


def told_state(steps: int = 3, **played: Any) -> Tuple[UiState, ToldFeed]:
    """A state after some steps of a played scheduler."""
    feed = ToldFeed(PlayedScheduler(started=START, **played))
    state = UiState(feed, unix_time=lambda: feed.scheduler.now)
    for _ in range(steps):
        feed.step()
        state.sample()
    return state, feed


def query(**parameters: object) -> Query:
    return Query({name: str(value) for name, value in parameters.items()})


class Answer:
    def __init__(self, status: int, headers: List[Tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self.headers = {name.decode().lower(): value.decode("latin-1") for name, value in headers}
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class Browser:
    """Calls an application as uvicorn would."""

    def __init__(self, application: Any, headers: Optional[Mapping[str, str]] = None) -> None:
        self._application = application
        self._headers = {"host": "127.0.0.1:8081", **(headers or {})}

    def get(self, url: str, **headers: str) -> Answer:
        return self.request("GET", url, **headers)

    def post(self, url: str, **headers: str) -> Answer:
        return self.request("POST", url, **headers)

    def request(self, method: str, url: str, **headers: str) -> Answer:
        return self.ask(self.scope(method, url, headers))

    def ask(self, scope: Dict[str, Any]) -> Answer:
        async def run() -> Answer:
            return await Stream(self._application, scope).whole()

        return asyncio.run(asyncio.wait_for(run(), DEADLINE_SECONDS))

    def scope(self, method: str, url: str, headers: Mapping[str, str]) -> Dict[str, Any]:
        parts = urlsplit(url)
        sent = {**self._headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "root_path": "",
            "query_string": parts.query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8081),
        }


class Stream:
    """One request whose response comes bit by bit; made and used within one event loop.

    Parameters:
        has_room: clear it, and what is sent waits, as for a browser that does not read.
    """

    def __init__(self, application: Any, scope: Dict[str, Any]) -> None:
        self.has_room = asyncio.Event()
        self.has_room.set()
        self.status = 0
        self.headers: List[Tuple[bytes, bytes]] = []
        self._parts: asyncio.Queue[bytes] = asyncio.Queue()
        self._is_gone = asyncio.Event()
        self._has_asked = False
        self.task = asyncio.ensure_future(application(scope, self._receive, self._send))

    async def _receive(self) -> MutableMapping[str, Any]:
        if not self._has_asked:
            self._has_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._is_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message["headers"])
        else:
            self._parts.put_nowait(message.get("body", b""))
            await self.has_room.wait()

    @property
    def unread(self) -> int:
        """Parts that were sent and not looked at."""
        return self._parts.qsize()

    async def whole(self) -> Answer:
        await self.task
        parts = []
        while not self._parts.empty():
            parts.append(self._parts.get_nowait())
        return Answer(self.status, self.headers, b"".join(parts))

    async def event(self) -> Dict[str, Any]:
        """The next event."""
        while True:
            part = await asyncio.wait_for(self._parts.get(), DEADLINE_SECONDS)
            if part.startswith(b"data: "):
                assert part.endswith(b"\n\n")
                return dict(json.loads(part[len(b"data: ") :]))

    async def go(self) -> None:
        """The browser closes the page."""
        self._is_gone.set()
        await asyncio.wait_for(self.task, DEADLINE_SECONDS)


class Site:
    """An application over a played cluster."""

    def __init__(self, steps: int = 3, actions_allowed: bool = False, is_own: bool = True, **options: Any) -> None:
        self.state, self.feed = told_state(steps)
        self.state.actions_allowed = actions_allowed
        self.watch = Watch(self.feed, self.state)
        self.application = make_application(
            self.state, self.watch, clock=lambda: 0.0, is_own=lambda scope: is_own, **options
        )
        self.browser = Browser(self.application)

    def open(self, url: str, client: str = "127.0.0.1", **headers: str) -> Stream:
        """A stream of events for the browser at an address, within an event loop."""
        scope = self.browser.scope("GET", url, headers)
        return Stream(self.application, {**scope, "client": (client, 50000)})
