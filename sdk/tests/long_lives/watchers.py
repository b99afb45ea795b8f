"""Everything that reads the status of a scheduler: the feed, a user of scaler_top, a server of scaler_ui with browsers
that come and go, and Prometheus.
"""

from __future__ import annotations

import asyncio
from typing import Dict

from long_lives.reachable_sizes import sizes_of
from ui.browsing import Browser, Stream
from whole_system.system import System

from scaler_appliance.feed import cluster_model, slots
from scaler_appliance.feed.status_feed import STATUS_TOPIC, TASKS_TOPIC, Feed
from scaler_appliance.feed.task_history import TaskHistory
from scaler_appliance.top.frame import Size
from scaler_appliance.top.view import View
from scaler_appliance.top.watch import Viewer
from scaler_appliance.ui.application import make_application
from scaler_appliance.ui.pages.page_names import PAGES
from scaler_appliance.ui.ui_state import UiState
from scaler_appliance.ui.watching import Watch
from scaler_protocol import encode

LIMITS = (
    (cluster_model, "KEPT_WHEN_GONE"),
    (slots, "KEPT_WORKERS"),
    (slots, "KEPT_PROCESSORS"),
)
"""Of what is kept on purpose."""

LOG_BYTES = 30_000
KEYS = ("c", "/", "w", "KEY_ENTER", " ", " ", "KEY_ESCAPE", "KEY_DOWN", "r")


class Watchers:
    """All kinds of monitors of one scheduler, which are told what it publishes.

    Parameters:
        system: the scheduler's.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._sequence = 0
        self.feed = Feed("ipc:///tmp/no-scheduler-publishes-here", clock=lambda: system.world.now)
        self.feed.task_log = TaskHistory(LOG_BYTES)
        self.state = UiState(self.feed, unix_time=lambda: system.world.now)
        self.watch = Watch(self.feed, self.state)
        self.application = make_application(self.state, self.watch, is_own=lambda scope: True)
        self.viewer = Viewer(self.feed, View(), clock=lambda: system.world.now)
        system.scheduler._has_monitor = False  # of its own, which takes increments, too
        system.scheduler.core.watch(True, True)

    def listen(self) -> None:
        """A publication arrives."""
        core, now = self._system.scheduler.core, self._system.world.now
        status = None
        while status is None:
            status = core.take_status(now, is_snapshot=not self._sequence)
        self._sequence += 1
        status.sequence, status.scheduler_id = self._sequence, core.state.settings.scheduler_id
        status.unix_microseconds = int(now * 1e6)
        for topic, message in ((STATUS_TOPIC, status), (TASKS_TOPIC, core.take_runs(now, int(now * 1e6)))):
            self.feed._on_frames([topic, encode(message)])

    def look(self) -> None:
        """All monitors look at what there is; browsers come with it, and go."""
        asyncio.run(self._browse())
        for key in KEYS:
            self.viewer.press(key)
            assert self.viewer.frame(Size(120, 40)).lines

    async def _browse(self) -> None:
        browser = Browser(self.application)
        streams = [Stream(self.application, browser.scope("GET", f"/events?page={page}", {})) for page in PAGES]
        for stream in streams:
            await stream.event()
        self.watch.tick()
        for stream in streams:
            await stream.event()
            await stream.go()
        for url in ("/metrics", "/api/workers", "/readyz", "/api/tasks/1/1", "/nothing"):
            answer = await Stream(self.application, browser.scope("GET", url, {})).whole()
            assert answer.status in (200, 404, 503), answer.text

    def sizes(self) -> Dict[str, int]:
        return sizes_of(self.feed, self.state, self.watch, self.application, self.viewer)
