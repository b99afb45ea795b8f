"""The pages beside real schedulers and workers: a restart, and a run of 100 000 tasks.

Rules: as in test_pages.py; nothing is played here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest
from browser_driver import Browser
from quiet_addresses import quiet_address
from scheduler_process import INTERPRETERS, SchedulerProcess
from ui_server import StartUi, monitor_address_of

from scaler import Client, SchedulerClusterCombo

pytestmark = pytest.mark.slow

TASKS = 100_000
ROWS = "#page table.data tbody tr:not(.detail)"
LIVE = "document.body.dataset.feed === 'live'"


def start_scheduler(folder: Path, address: str) -> SchedulerProcess:
    folder.mkdir()
    scheduler = SchedulerProcess(INTERPRETERS["cpython"], folder / "address", address)
    scheduler.wait_until_ready()
    return scheduler


def test_a_killed_scheduler_is_reported_and_its_successor_starts_from_zero(
    browser: Browser, start_ui: StartUi, tmp_path: Path
) -> None:
    address = quiet_address()
    browser.open(start_ui(monitor_address_of(address)).url, "#/workers")
    browser.wait_for_text(".banner", "No scheduler has been heard of")

    first = start_scheduler(tmp_path / "first", address)
    browser.wait_for_text(".empty", f"scaler_cluster -n 4 {address}")
    first.worker(slots=3)
    browser.wait(f"document.querySelectorAll({ROWS!r}).length === 1")
    assert not browser.evaluate("document.querySelectorAll('.notice[data-kind=restart]').length")

    first.close()
    browser.wait("document.body.dataset.feed === 'stale'")
    browser.wait_for_text(".banner", f"the scheduler at {address} publishes nothing")

    second = start_scheduler(tmp_path / "second", address)
    browser.wait_for_text(".notice", f"Another scheduler is at {address}")
    browser.wait(f"{LIVE} && document.querySelector('.banner').hidden")
    browser.wait_for_text(".empty", "No workers yet")
    assert browser.evaluate(f"document.querySelectorAll({ROWS!r}).length") == 0
    second.worker(slots=2)
    browser.wait(f"document.querySelectorAll({ROWS!r}).length === 1")
    second.close()


@pytest.fixture
def cluster() -> Iterator[SchedulerClusterCombo]:
    with SchedulerClusterCombo(n_workers=2, logging_level="WARNING") as cluster:
        yield cluster


def halve(number: int) -> int:
    if number % 1000 == 7:
        raise ValueError(f"{number} is odd: <b>no</b> half")
    return number // 2


def test_a_run_of_100_000_tasks_is_followed_to_its_end(
    browser: Browser, start_ui: StartUi, cluster: SchedulerClusterCombo
) -> None:
    browser.open(start_ui(monitor_address_of(cluster.get_address())).url)
    browser.wait_for_text(".empty", "Three lines of Python")
    with Client(address=cluster.get_address()) as client:
        futures = [client.submit(halve, number) for number in range(TASKS)]
        browser.visit("#/stream")
        browser.wait("Number(document.querySelector('.stream-canvas')?.dataset.runs) > 0")
        failed = sum(future.exception() is not None for future in futures)
    assert failed == TASKS // 1000

    browser.visit("#/overview")
    browser.wait_for_text(".outcome-list b", "99\u2009900")
    browser.visit("#/functions")
    browser.wait(f"document.querySelector({ROWS!r})?.textContent.includes('100\u2009000')")
    browser.visit("#/tasks?state=failed&search=odd")
    browser.wait(f"document.querySelectorAll({ROWS!r}).length > 0")
    browser.click(f"{ROWS} a")
    browser.wait_for_text(".failure h3", "is odd: <b>no</b> half")
    browser.wait_for_text(".failure pre", "in halve")
