"""Who may look."""

from __future__ import annotations

import re
from typing import Iterator

import pytest
from ui.browsing import Browser, Site

TOKEN = "a-token-of-sixteen-and-more"
HTML = "text/html,application/xhtml+xml"


@pytest.fixture
def open_site() -> Site:
    return Site()


@pytest.fixture
def closed() -> Iterator[Browser]:
    yield Site(token=TOKEN).browser


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8081", "127.0.0.1:8081", "127.1.2.3", "[::1]:8081", "a.localhost"]
)
def test_on_loopback_names_of_this_machine_are_answered(open_site: Site, host: str) -> None:
    assert open_site.browser.get("/api/workers", host=host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8081", "127.0.0.1.evil.example", "localhost.evil.example", "", "[", "0x7f.1"]
)
def test_another_sites_name_that_leads_here_is_not(open_site: Site, host: str) -> None:
    for path in ("/", "/api/workers", "/events?page=workers", "/metrics", "/readyz", "/static/x"):
        answer = open_site.browser.get(path, host=host)
        assert answer.status == 403
        assert "--allowed-host" in answer.text


def test_a_request_with_two_hosts_or_none_is_refused(open_site: Site) -> None:
    browser = open_site.browser
    for hosts in ([], [(b"host", b"localhost"), (b"host", b"evil.example")]):
        scope = browser.scope("GET", "/api/workers", {})
        scope["headers"] = hosts
        assert open_site.application._refusal(scope) is not None


def test_a_proxys_name_is_answered_when_it_is_allowed() -> None:
    browser = Site(hosts=["Cluster.Example"]).browser

    assert browser.get("/api/workers", host="cluster.example").status == 200
    assert browser.get("/api/workers", host="other.example").status == 403


@pytest.mark.parametrize(
    "path", ["/", "/api/workers", "/events?page=workers", "/metrics", "/readyz", "/static/x", "/x"]
)
def test_without_the_token_nothing_is_shown(closed: Browser, path: str) -> None:
    for answer in (
        closed.get(path),
        closed.get(path, authorization="Bearer wrong"),
        closed.get(path, authorization=f"Basic {TOKEN}"),
        closed.get(path, cookie="scaler_ui=x; other"),
        closed.get(path, cookie=f"token={TOKEN}"),
        closed.get(f"{path}{'&' if '?' in path else '?'}token=wrong", accept=HTML),
        closed.get(f"{path}{'&' if '?' in path else '?'}token=", accept=HTML),
    ):
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "open the link" in answer.text


def test_probes_need_no_token(closed: Browser) -> None:
    assert closed.get("/healthz").status == 200
    assert closed.get("/livez").status == 200


def test_scripts_send_the_token_in_a_header(closed: Browser) -> None:
    assert closed.get("/api/workers", authorization=f"Bearer {TOKEN}").status == 200
    assert closed.get("/metrics", authorization=f"bearer {TOKEN}", host="any.example").status == 200


def test_a_browser_trades_the_token_for_a_cookie_and_forgets_it(closed: Browser) -> None:
    answer = closed.get(f"/?token={TOKEN}&x=1", accept=HTML)

    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    target = re.search(r'url=([^"]*)"', answer.text)
    assert target is not None and target[1] == "./?x=1"
    assert TOKEN not in answer.text
    assert closed.get("/api/workers", cookie=f"a=b; {cookie.partition(';')[0]}; c=d").status == 200


def test_the_way_on_is_relative_and_cannot_lead_elsewhere(closed: Browser) -> None:
    for path, wanted in (
        ("/api/workers", "./workers"),
        ("//evil.example/", "./"),
        ("/javascript:alert(1)", "./javascript%3Aalert%281%29"),
        ('/"><script>', "./%22%3E%3Cscript%3E"),
    ):
        answer = closed.get(f"{path}?token={TOKEN}", accept=HTML)
        assert f'url={wanted}"' in answer.text


def test_a_program_with_the_token_in_the_address_is_answered_at_once(closed: Browser) -> None:
    assert closed.get(f"/api/workers?token={TOKEN}").json()["body"]["total"] == 4


def test_every_answer_keeps_the_page_to_itself(closed: Browser, open_site: Site) -> None:
    for answer in (
        closed.get("/"),
        open_site.browser.get("/"),
        open_site.browser.get("/nothing"),
        closed.get("/livez"),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers
