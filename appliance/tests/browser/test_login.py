"""Logging in by a link and out by a button, in a real browser.

Rule: a browser that keeps cookies by its own rules decides what holds, not a test that sends headers by hand.
"""

from __future__ import annotations

import http.server
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Iterator, List

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


class Neighbour:
    """A server of someone else at another port of the same host, and the cookies that browsers have sent it."""

    def __init__(self) -> None:
        cookies: List[str] = []
        self.cookies = cookies

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cookies.append(self.headers.get("Cookie") or "")
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b"<!doctype html><title>Hello</title><link rel=icon href=data:,>")

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def neighbour() -> Iterator[Neighbour]:
    server = Neighbour()
    yield server
    server.close()


def status_of(url: str, **headers: str) -> int:
    """Of the answer to a program that has what it has."""
    request = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


STATE = ("api/overview", "api/workers", "api/tasks", "events?page=workers", "metrics", "readyz")


def test_a_server_at_another_port_gets_the_cookie_and_sees_nothing_with_it(
    chromium: Browser, play: Play, start_ui: StartUi, token_file: str, neighbour: Neighbour
) -> None:
    server = start_ui(play(workers=2).monitor_address, "--token-file", token_file)
    own = server.url.partition("?")[0]
    assert own.startswith("http://127.0.0.1:")
    chromium.open(server.url)
    chromium.wait(LIVE)
    key = chromium.evaluate("localStorage.getItem(`scaler_ui page key ${location.pathname}`)")

    chromium.go_to(neighbour.url)

    cookie = neighbour.cookies[0]
    assert cookie.startswith("scaler_ui_"), "browsers send the cookies of a host to all its ports"
    assert chromium.evaluate("localStorage.length") == 0, "storage is a port's own"
    assert [status_of(own + path, cookie=cookie) for path in STATE] == [401] * len(STATE)
    assert status_of(own + "api/workers", cookie=cookie, x_scaler_page_key=key) == 200, "so the cookie is valid"
    for path in STATE:  # nor does its page, in the browser of who is logged in
        asked = f"fetch({own + path!r}, {{credentials: 'include'}}).then((answer) => answer.status, () => 'blocked')"
        assert chromium.evaluate(asked) == "blocked"
    chromium.forget_problems()
    chromium.close_page()


def test_a_new_tab_and_a_reload_stay_logged_in(
    chromium: Browser, play: Play, start_ui: StartUi, token_file: str
) -> None:
    server = start_ui(play(workers=2).monitor_address, "--token-file", token_file)
    chromium.open(server.url)
    chromium.wait(LIVE)

    chromium.reload("#/workers")
    chromium.wait(LIVE)
    chromium.wait_for_events()
    chromium.go_to(server.url.partition("?")[0])

    chromium.wait(LIVE)
    chromium.wait_for_events()
    assert chromium.problems() == []
    chromium.close_page()


def test_without_a_token_there_is_no_session_to_end(browser: Browser, play: Play, start_ui: StartUi) -> None:
    browser.open(start_ui(play(workers=2).monitor_address).url)
    browser.wait(LIVE)
    browser.wait_for_events()

    assert browser.evaluate("document.querySelector('#logout').checkVisibility()") is False
