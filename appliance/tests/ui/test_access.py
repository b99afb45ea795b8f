"""Who may look."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Dict, Iterator
from urllib.parse import quote

import pytest
from ui.browsing import Answer, Browser, Site

from scaler_appliance.ui.access import TrustedProxies
from scaler_appliance.ui.browser_sessions import OVERLAP_SECONDS, ROTATION_SECONDS, BrowserSessions

TOKEN = "a-token-of-sixteen-and-more"
HTML = "text/html,application/xhtml+xml"


def cookie_of(answer: Answer) -> str:
    """As a browser sends it back."""
    return answer.headers["set-cookie"].partition(";")[0]


def log_in(browser: Browser) -> Dict[str, str]:
    """Open the link; returns the headers with which the page asks from then on."""
    answer = browser.get(f"/?token={TOKEN}", accept=HTML)
    key = re.search(r'<meta name="page-key" content="([^"]*)">', answer.text)
    assert key is not None
    return {"cookie": cookie_of(answer), "x_scaler_page_key": key[1]}


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


def test_without_a_token_another_user_of_the_host_sees_nothing_and_reads_what_to_do() -> None:
    browser = Site(is_own=False).browser
    for path in ("/", "/api/workers", "/events?page=workers", "/metrics", "/readyz", "/static/x"):
        answer = browser.get(path)
        assert answer.status == 403
        assert "--token-file" in answer.text
    assert browser.get("/livez").status == 200


def test_with_a_token_another_user_of_the_host_needs_just_that() -> None:
    browser = Site(is_own=False, token=TOKEN).browser
    assert browser.get("/api/workers", authorization=f"Bearer {TOKEN}").status == 200


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
        assert open_site.application._refusal(scope, None) is not None


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
    target = re.search(r'id="continue" href="([^"]*)"', answer.text)
    assert target is not None and target[1] == "./?x=1"
    assert TOKEN not in answer.text
    session = log_in(closed)
    session["cookie"] = f"a=b; {session['cookie']}; c=d"
    assert closed.get("/api/workers", **session).status == 200


STATE = ("/api/workers", "/api/overview", "/api/tasks/1/1", "/events?page=workers", "/metrics", "/readyz", "/x")


@pytest.mark.parametrize("path", STATE)
def test_who_has_the_cookie_alone_sees_the_page_s_own_files_and_nothing_of_the_cluster(
    closed: Browser, path: str
) -> None:
    """Another server at a port of this host gets the cookie, and never the key."""
    session, other = log_in(closed), log_in(closed)
    cookie = session["cookie"]
    assert closed.get("/", cookie=cookie).status == closed.get("/static/js/main.js", cookie=cookie).status == 200
    for key in ("", "x", cookie, cookie.partition(".")[2], TOKEN, other["x_scaler_page_key"]):
        answer = closed.get(path, cookie=cookie, x_scaler_page_key=key)
        assert answer.status == 401 and "open the link" in answer.text
    assert closed.get(path, cookie=cookie).status == 401
    assert closed.get(path, x_scaler_page_key=session["x_scaler_page_key"]).status == 401
    assert closed.post("/api/workers/1/drain", cookie=cookie, x_scaler_ui="1").status == 401


def test_two_keys_in_a_request_are_none(closed: Browser) -> None:
    session = log_in(closed)
    scope = closed.scope("GET", "/api/workers", session)
    scope["headers"] += [(b"x-scaler-page-key", b"x")]

    assert closed.ask(scope).status == 401


def test_the_key_is_in_no_address_and_says_nothing_about_the_cookie(closed: Browser) -> None:
    answer = closed.get(f"/?token={TOKEN}", accept=HTML)
    key = re.search(r'<meta name="page-key" content="([^"]*)">', answer.text)
    assert key is not None and len(key[1]) >= 43
    assert answer.text.count(key[1]) == 1 and key[1] not in cookie_of(answer)
    assert closed.get("/api/workers", authorization=f"Bearer {key[1]}").status == 401
    assert closed.get(f"/?token={key[1]}", accept=HTML).status == 401


def test_a_cookie_says_nothing_about_the_token(closed: Browser) -> None:
    first, second = (closed.get(f"/?token={TOKEN}", accept=HTML).headers["set-cookie"] for _ in range(2))

    assert first.startswith("scaler_ui_8081=") and first != second
    name, _, value = first.partition(";")[0].partition("=")
    for known in (TOKEN, hashlib.sha256(TOKEN.encode()).hexdigest()[:12]):
        assert known not in first and quote(known) not in first
    assert closed.get("/api/workers", authorization=f"Bearer {value}").status == 401
    assert closed.get(f"/api/workers?token={value}").status == 401
    assert closed.get("/api/workers", cookie=f"{name}={TOKEN}").status == 401


def test_a_cookie_of_another_server_on_the_same_host_is_not_accepted(closed: Browser) -> None:
    other = Site(token=TOKEN).browser
    session = log_in(other)

    assert other.get("/api/workers", **session).status == 200
    assert closed.get("/api/workers", **session).status == 401


def test_the_cookie_is_named_after_the_port(closed: Browser) -> None:
    session = log_in(closed)
    session["cookie"] = session["cookie"].replace("8081", "8082")

    assert closed.get("/api/workers", **session).status == 401


@pytest.mark.parametrize(("forwarded", "is_secure"), [({}, False), ({"x_forwarded_proto": "https"}, True)])
def test_behind_a_proxy_with_tls_the_cookie_is_secure(
    closed: Browser, forwarded: Dict[str, str], is_secure: bool
) -> None:
    cookie = closed.get(f"/?token={TOKEN}", accept=HTML, **forwarded).headers["set-cookie"]

    assert ("; Secure" in cookie) is is_secure


def test_a_cookie_is_replaced_at_the_top_and_the_old_one_ends() -> None:
    now = [0.0]
    browser = Site(token=TOKEN, sessions=BrowserSessions(lambda: now[0], secrets.token_urlsafe)).browser
    old = log_in(browser)
    assert "set-cookie" not in browser.get("/readyz", **old).headers
    now[0] += ROTATION_SECONDS

    assert "set-cookie" not in browser.get("/api/workers", **old).headers  # its path would be /api
    assert "set-cookie" not in browser.get("/", cookie=old["cookie"]).headers  # without the key
    replaced = browser.get("/readyz", **old)
    new = {**old, "cookie": cookie_of(replaced)}

    assert replaced.status == 200 and new != old
    assert "HttpOnly" in replaced.headers["set-cookie"] and "SameSite=Strict" in replaced.headers["set-cookie"]
    assert browser.get("/api/workers", **new).status == 200
    assert browser.get("/api/workers", **old).status == 200
    now[0] += OVERLAP_SECONDS
    assert browser.get("/api/workers", **old).status == 401
    assert browser.get("/api/workers", **new).status == 200


def test_a_login_is_a_new_session_even_with_a_valid_cookie(closed: Browser) -> None:
    first = cookie_of(closed.get(f"/?token={TOKEN}", accept=HTML))
    second = cookie_of(closed.get(f"/?token={TOKEN}", accept=HTML, cookie=first))

    assert first.partition(".")[0] != second.partition(".")[0]


def test_logging_out_ends_the_session_and_removes_the_cookie(closed: Browser) -> None:
    session, other = log_in(closed), log_in(closed)

    answer = closed.post("/logout", **session, x_scaler_ui="1")

    assert answer.status == 200
    assert answer.headers["set-cookie"].startswith("scaler_ui_8081=; ") and "Max-Age=0" in answer.headers["set-cookie"]
    assert closed.get("/api/workers", **session).status == 401
    assert closed.get("/api/workers", **other).status == 200


def test_another_page_cannot_log_out(closed: Browser) -> None:
    session = log_in(closed)

    assert closed.post("/logout", **session).status == 403
    assert closed.get("/logout", **session, x_scaler_ui="1").status == 405
    assert closed.post("/logout", x_scaler_ui="1").status == 401
    assert closed.post("/logout", cookie=session["cookie"], x_scaler_ui="1").status == 401
    assert closed.get("/api/workers", **session).status == 200


def test_the_page_knows_whether_it_can_log_out(closed: Browser, open_site: Site) -> None:
    session = log_in(closed)

    assert closed.get("/api/workers", **session).json()["head"]["is_logged_in"] is True
    assert closed.get("/api/workers", authorization=f"Bearer {TOKEN}").json()["head"]["is_logged_in"] is False
    assert open_site.browser.get("/api/workers").json()["head"]["is_logged_in"] is False


def test_the_way_on_is_relative_and_cannot_lead_elsewhere(closed: Browser) -> None:
    for query, wanted in (
        ("", "./"),
        ('&"><script>=1', "./?%22%3E%3Cscript%3E=1"),
        ("&next=//evil.example/", "./?next=%2F%2Fevil.example%2F"),
    ):
        answer = closed.get(f"/?token={TOKEN}{query}", accept=HTML)
        assert f'href="{wanted}"' in answer.text


@pytest.mark.parametrize("path", ["/api/workers", "/metrics", "/evil.example/", "/javascript:alert(1)"])
def test_only_the_page_itself_begins_a_session(closed: Browser, path: str) -> None:
    answer = closed.get(f"{path}?token={TOKEN}", accept=HTML)

    assert "set-cookie" not in answer.headers and "page-key" not in answer.text


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


PROXIES = TrustedProxies("x-forwarded-user", frozenset({"127.0.0.1"}))


def test_a_user_whom_a_trusted_proxy_names_needs_no_token() -> None:
    browser = Site(token=TOKEN, proxies=PROXIES).browser

    assert browser.get("/api/workers", x_forwarded_user="ada").status == 200
    assert browser.get("/api/workers").status == 401
    assert browser.get("/api/workers", x_forwarded_user=" ").status == 401
    assert browser.get("/api/workers", x_forwarded_email="ada").status == 401
    assert browser.get("/api/workers", authorization=f"Bearer {TOKEN}").status == 200


@pytest.mark.parametrize(
    ("client", "is_served"),
    [("127.0.0.1", True), ("::ffff:127.0.0.1", True), ("127.0.0.2", False), ("::1", False), ("", False)],
)
def test_only_a_trusted_proxy_can_name_a_user(client: str, is_served: bool) -> None:
    site = Site(token=TOKEN, proxies=PROXIES)
    scope = site.browser.scope("GET", "/api/workers", {"x-forwarded-user": "ada"})

    assert bool(PROXIES.user({**scope, "client": (client, 5000)})) is is_served
    assert PROXIES.user({**scope, "client": None}) == ""


def test_a_users_name_does_not_help_under_a_name_that_is_not_ours() -> None:
    browser = Site(token=TOKEN, hosts=["ui.example"], proxies=PROXIES).browser

    assert browser.get("/api/workers", x_forwarded_user="ada", host="evil.example").status == 403
    assert browser.get("/api/workers", x_forwarded_user="ada", host="ui.example").status == 200
    assert browser.get("/api/workers", authorization=f"Bearer {TOKEN}", host="evil.example").status == 200


def test_two_names_of_a_user_are_none() -> None:
    scope = Site().browser.scope("GET", "/", {"x-forwarded-user": "ada"})

    assert PROXIES.user({**scope, "headers": [(b"x-forwarded-user", b"ada"), (b"x-forwarded-user", b"eve")]}) == ""


def test_without_the_option_the_header_of_a_proxy_says_nothing(closed: Browser) -> None:
    assert closed.get("/api/workers", x_forwarded_user="ada").status == 401
