from __future__ import annotations

from pathlib import Path
from typing import Iterator

import browser_driver
import pytest
from browser_driver import Browser
from feed.played_status import PlayedScheduler
from ui_server import Play, PlayedCluster, StartUi, UiServer


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    reason = browser_driver.unavailable()
    if reason:
        pytest.skip(reason)
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def start_ui(tmp_path: Path) -> Iterator[StartUi]:
    """Starts a scaler_ui that watches an address."""
    started = []

    def start(monitor_address: str, *options: str) -> UiServer:
        started.append(UiServer(tmp_path, monitor_address, *options))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def browser(chromium: Browser, start_ui: StartUi) -> Iterator[Browser]:
    """A browser that is to have nothing to complain of when the test ends, before any scaler_ui goes."""
    yield chromium
    problems = chromium.problems()
    chromium.close_page()
    assert problems == []


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Plays a cluster that publishes twice a second."""
    played = []

    def start(**figures: int) -> PlayedCluster:
        scheduler = PlayedScheduler(interval_seconds=0.5, **figures)
        played.append(PlayedCluster(f"ipc://{tmp_path}/monitor", 0.5, scheduler))
        return played[-1]

    yield start
    for cluster in played:
        cluster.close()


@pytest.fixture(scope="module")
def four_workers(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scaler_ui that watches four played workers of two processors each."""
    folder = tmp_path_factory.mktemp("four")
    cluster = PlayedCluster(f"ipc://{folder}/monitor", 0.5, PlayedScheduler(4, slots=2, interval_seconds=0.5))
    server = UiServer(folder, cluster.monitor_address, "--allow-actions")
    yield server.url
    server.close()
    cluster.close()


@pytest.fixture
def shown(browser: Browser, four_workers: str) -> Browser:
    """A browser that shows them."""
    browser.open(four_workers)
    return browser
