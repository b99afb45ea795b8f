"""The status stream in the event loop: received, sampled once a second, and sent to browsers.

    socket ─readable─▶ feed.receive() ─▶ tick: sample, wake every stream of events

Rule: a tick follows each publication, and also comes without one, because browsers must learn that the scheduler is
silent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Collection, Dict, Optional, Protocol

from scaler_appliance.ui.access import PageViewer
from scaler_appliance.ui.ui_state import UiState, Watched

SHORTEST_TICK_SECONDS = 0.8
LONGEST_TICK_SECONDS = 1.3

logger = logging.getLogger("scaler")


class ReadableFeed(Watched, Protocol):
    """The part of `feed.status_feed.Feed` for its socket."""

    def fileno(self) -> int: ...

    def receive(self) -> bool: ...


class Watch:
    """Keeps a state up to date, and wakes waiting streams of events.

    Attributes:
        is_closing: whether streams of events must end.
        turned_at: when the loop last ran, on the monotonic clock.
    """

    def __init__(self, feed: ReadableFeed, state: UiState) -> None:
        self._feed = feed
        self._state = state
        self._has_news: Optional[asyncio.Event] = None  # while this runs
        self._subscribers: Dict[asyncio.Event, PageViewer] = {}
        self.is_closing = False
        self.turned_at = time.monotonic()

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        self._has_news = asyncio.Event()
        descriptor = self._feed.fileno()
        loop.add_reader(descriptor, self._receive)
        try:
            while True:
                self._receive()  # the descriptor is edge-triggered
                self.tick()
                await asyncio.sleep(SHORTEST_TICK_SECONDS)
                self._has_news.clear()
                try:
                    await asyncio.wait_for(self._has_news.wait(), LONGEST_TICK_SECONDS - SHORTEST_TICK_SECONDS)
                except asyncio.TimeoutError:
                    pass
        finally:
            loop.remove_reader(descriptor)

    def _receive(self) -> None:
        if self._feed.receive() and self._has_news is not None:
            self._has_news.set()

    @property
    def subscribers(self) -> int:
        """How many streams of events there are."""
        return len(self._subscribers)

    def tick(self) -> None:
        """Take a sample, and wake waiting streams."""
        self.turned_at = time.monotonic()
        self._state.sample()
        self._wake()

    def close(self) -> None:
        """Let all streams of events end."""
        self.is_closing = True
        self._wake()

    def _wake(self) -> None:
        for event in self._subscribers:
            event.set()

    def viewers(self) -> Collection[PageViewer]:
        """Whose the streams of events are, one of each stream."""
        return self._subscribers.values()

    def subscribe(self, viewer: PageViewer) -> asyncio.Event:
        """An event that each tick sets, and the end of this program sets; the waiter clears it."""
        event = asyncio.Event()
        self._subscribers[event] = viewer
        return event

    def unsubscribe(self, event: asyncio.Event) -> None:
        self._subscribers.pop(event, None)
