"""A day of a cluster, in a few seconds: what is kept is what was kept after an hour."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Dict, List

import pytest
from feed.played_status import PlayedScheduler
from ui.browsing import START, ToldFeed, query

from scaler_appliance.feed.task_history import TaskHistory
from scaler_appliance.ui.events import to_json
from scaler_appliance.ui.metrics import Metrics
from scaler_appliance.ui.pages.page_names import PAGES
from scaler_appliance.ui.ui_state import UiState

STEP_SECONDS = 10
HOUR_STEPS = 3600 // STEP_SECONDS
LOG_BYTES = 300_000


class Day:
    """A cluster whose workers come and go, with a browser on every page and Prometheus."""

    def __init__(self) -> None:
        scheduler = PlayedScheduler(workers=10, rate=20.0, interval_seconds=STEP_SECONDS, started=START)
        self.feed = ToldFeed(scheduler)
        self.feed.task_log = TaskHistory(LOG_BYTES)
        self.state = UiState(self.feed, unix_time=lambda: self.feed.scheduler.now)
        self.metrics = Metrics(self.state)
        self.cursors: Dict[str, Any] = {}
        self.steps = 0

    def hours(self, count: int) -> None:
        for _ in range(count * HOUR_STEPS):
            self.steps += 1
            if self.steps % 7 == 0:
                self.feed.scheduler.add_worker()
                self.feed.scheduler.finished.pop(self.feed.scheduler.lose_worker(), None)
            self.feed.step()
            self.state.sample()
            if self.steps % 20 == 0:
                self._look()

    def _look(self) -> None:
        for name, page in PAGES.items():
            body, self.cursors[name] = page(self.state, query(), self.cursors.get(name))
            to_json(body)
        self.metrics.text()

    def bytes(self) -> int:
        """Of all that hangs on the state, the metrics and what browsers have been told; not of who plays."""
        seen = {id(self.feed.scheduler)}
        waiting: List[Any] = [self.state, self.metrics, self.cursors]
        total = 0
        while waiting:
            each = waiting.pop()
            if id(each) in seen or isinstance(each, (type, ModuleType, FunctionType, BuiltinFunctionType)):
                continue
            seen.add(id(each))
            total += sys.getsizeof(each)
            waiting.extend(gc.get_referents(each))
        return total


@pytest.mark.slow
def test_a_day_takes_no_more_memory_than_some_hours() -> None:
    day = Day()
    day.hours(4)
    sizes = [day.bytes()]
    for _ in range(5):
        day.hours(4)
        sizes.append(day.bytes())

    assert LOG_BYTES / 2 < day.feed.task_log.bytes <= LOG_BYTES
    assert max(sizes) < 1.05 * sizes[0], sizes
