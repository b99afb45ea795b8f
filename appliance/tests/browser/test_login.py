"""Logging in by a link and out by a button, in a real browser.

Rule: a browser that keeps cookies by its own rules decides what holds, not a test that sends headers by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_driver import Browser
from ui_server import Play, StartUi

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-sixteen-and-more"
LIVE = "document.body.dataset.feed === 'live'"


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return str(path)


def test_a_link_logs_in_and_a_button_logs_out(
    chromium: Browser, play: Play, start_ui: StartUi, token_file: str
) -> None:
    server = start_ui(play(workers=2).monitor_address, "--token-file", token_file)
    assert server.url.endswith(f"?token={TOKEN}")
    chromium.open(server.url)
    chromium.wait(LIVE)
    chromium.wait_for_events()
    assert TOKEN not in chromium.evaluate("location.href")
    assert chromium.evaluate("document.cookie") == "", "scripts cannot read it"
    assert chromium.problems() == []

    chromium.wait("document.querySelector('#logout').checkVisibility()")
    chromium.click("#logout")

    chromium.wait("document.body && document.body.textContent.includes('This page needs a token')")
    assert chromium.evaluate("fetch('api/workers').then((answer) => answer.status)") == 401
    assert all("401" in problem for problem in chromium.problems())
    chromium.close_page()


def test_without_a_token_there_is_no_session_to_end(browser: Browser, play: Play, start_ui: StartUi) -> None:
    browser.open(start_ui(play(workers=2).monitor_address).url)
    browser.wait(LIVE)
    browser.wait_for_events()

    assert browser.evaluate("document.querySelector('#logout').checkVisibility()") is False
