"""Addresses: the page's files, JSON, probes, actions."""

from __future__ import annotations

from pathlib import Path
from typing import List, Tuple

import pytest
from feed.played_status import PlayedScheduler
from ui.browsing import START, Site

from scaler_appliance.ui.actions import ActionError, NotAllowedError
from scaler_appliance.ui.pages.page_names import PAGES
from scaler_appliance.ui.static_files import PageFiles

ASKED = {"x_scaler_ui": "1"}


# Files


@pytest.fixture
def site(tmp_path: Path) -> Site:
    folder = tmp_path / "static"
    (folder / "js/deep").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>page")
    (folder / "js/deep/main.js").write_text("let x;")
    (tmp_path / "secret").write_text("secret")
    return Site(files=PageFiles(folder))


def test_the_page_and_its_files_are_served_with_their_types(site: Site) -> None:
    assert site.browser.get("/").text == "<!doctype html>page"
    assert site.browser.get("/").headers["content-type"] == "text/html; charset=utf-8"
    script = site.browser.get("/static/js/deep/main.js")
    assert (script.text, script.headers["content-type"]) == ("let x;", "text/javascript; charset=utf-8")


def test_a_browser_that_has_a_file_is_told_so(site: Site) -> None:
    first = site.browser.get("/static/js/deep/main.js")
    assert first.headers["cache-control"] == "no-cache"

    for condition in (first.headers["etag"], f'"x", W/{first.headers["etag"]}'):
        again = site.browser.get("/static/js/deep/main.js", if_none_match=condition)
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
    assert site.browser.get("/static/js/deep/main.js", if_none_match='"x"').status == 200


@pytest.mark.parametrize(
    "path", ["../secret", "js/../../secret", "js/deep", "", "/etc/passwd", "%2e%2e/secret", "js\\deep\\main.js", "\0"]
)
def test_nothing_else_is_served(site: Site, path: str) -> None:
    answer = site.browser.get(f"/static/{path}")
    assert answer.status == 404
    assert "error" in answer.json()


def test_the_packages_own_page_is_served() -> None:
    answer = Site().browser.get("/")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/html")


# JSON


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_page_is_there_as_json(site: Site, page: str) -> None:
    answer = site.browser.get(f"/api/{page}")

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert set(answer.json()) == {"head", "body"}


def test_sort_filter_and_paging_are_in_the_address(site: Site) -> None:
    body = site.browser.get("/api/workers?sort=-session&limit=2&filter=worker").json()["body"]
    assert [row["session"] for row in body["rows"]] == [1003, 1002]


@pytest.mark.parametrize(
    "path",
    [
        "/api/workers?sort=x",
        "/api/tasks/x/1",
        "/api/tasks/1/-1",
        "/events?page=x",
        "/events?page=workers&limit=0",
    ],
)
def test_a_wrong_question_is_answered_by_what_is_wrong(site: Site, path: str) -> None:
    answer = site.browser.get(path)
    assert answer.status == 400
    assert answer.json()["error"]


def test_a_page_that_there_is_not_is_not_found(site: Site) -> None:
    answer = site.browser.get("/api/wrokers")
    assert (answer.status, answer.json()) == (404, {"error": "page: there is no 'wrokers'; did you mean workers?"})


def test_one_task_is_told_or_said_to_be_unknown(site: Site) -> None:
    row = site.browser.get("/api/tasks?state=success&limit=1").json()["body"]["rows"][0]

    assert site.browser.get(f"/api/tasks/{row['client']}/{row['task']}").json()["function"] == row["function"]
    assert site.browser.get("/api/tasks/1/999999999").status == 404


# Probes


def test_health_is_that_of_the_scheduler(site: Site) -> None:
    assert site.browser.get("/healthz").json() == {
        "status": "ok", "reasons": [], "age_seconds": 0.0, "workers": 4, "generation": 1,
    }  # fmt: skip

    site.feed.age = 7.0
    answer = site.browser.get("/healthz")
    assert answer.status == 503
    assert answer.json()["reasons"] == [
        "the scheduler at ipc:///tmp/played has been silent for 7.0 s",
        "nothing listens",
    ]
    assert site.browser.get("/livez").status == 200

    site.feed.restart(PlayedScheduler(seed=2, started=START))
    assert site.browser.get("/healthz").json()["generation"] == 2


def test_before_the_scheduler_is_there_the_reason_says_so() -> None:
    answer = Site(steps=0).browser.get("/healthz")
    assert answer.status == 503
    assert "is this the scheduler's monitor address?" in answer.json()["reasons"][0]


def test_a_loop_that_does_not_come_round_is_not_alive(site: Site) -> None:
    site.watch.turned_at -= 60
    assert site.browser.get("/livez").status == 503


def test_ready_is_who_has_its_workers(site: Site) -> None:
    assert site.browser.get("/readyz").status == 200
    assert site.browser.get("/readyz?workers=4").status == 200
    answer = site.browser.get("/readyz?workers=5")
    assert (answer.status, answer.json()["reasons"]) == (503, ["4 of 5 workers are connected"])
    assert site.browser.get("/readyz?workers=many").status == 400


# Actions


class Scheduler:
    """Who is asked that a worker leaves."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: List[Tuple[str, int, bool]] = []
        self._error = error

    async def __call__(self, address: str, session: int, is_draining: bool) -> str:
        self.asked.append((address, session, is_draining))
        if self._error is not None:
            raise self._error
        return "it leaves"


def test_a_worker_is_asked_to_drain_or_to_stop() -> None:
    scheduler = Scheduler()
    site = Site(actions_allowed=True, ask_to_shut_down=scheduler)

    assert site.browser.post("/api/workers/1001/drain", **ASKED).json() == {"accepted": True, "message": "it leaves"}
    assert site.browser.post("/api/workers/1002/stop", **ASKED).status == 200
    assert scheduler.asked == [("tcp://127.0.0.1:2345", 1001, True), ("tcp://127.0.0.1:2345", 1002, False)]


def test_actions_are_off_by_default_and_not_for_other_sites() -> None:
    scheduler = Scheduler()
    off = Site(ask_to_shut_down=scheduler)
    on = Site(actions_allowed=True, ask_to_shut_down=scheduler)

    assert "--allow-actions" in off.browser.post("/api/workers/1001/drain", **ASKED).json()["error"]
    assert on.browser.post("/api/workers/1001/drain").status == 403
    assert on.browser.get("/api/workers/1001/drain", **ASKED).status == 405
    assert on.browser.post("/api/workers/1001/reboot", **ASKED).status == 404
    assert on.browser.post("/api/workers/4711/drain", **ASKED).status == 404
    on.feed.age = 9.0
    assert on.browser.post("/api/workers/1001/drain", **ASKED).status == 503
    assert scheduler.asked == []


def test_a_protected_scheduler_is_not_even_asked_to_stop_a_worker() -> None:
    scheduler = Scheduler()
    site = Site(actions_allowed=True, ask_to_shut_down=scheduler)
    assert site.state.cluster.scheduler is not None
    site.state.cluster.scheduler.is_protected = True

    answer = site.browser.post("/api/workers/1001/stop", **ASKED)

    assert (answer.status, scheduler.asked) == (409, [])
    assert "--no-protected" in answer.json()["error"]


@pytest.mark.parametrize(("error", "status"), [(NotAllowedError("no"), 409), (ActionError("nothing listens"), 502)])
def test_what_the_scheduler_says_to_it_is_told(error: Exception, status: int) -> None:
    site = Site(actions_allowed=True, ask_to_shut_down=Scheduler(error))

    answer = site.browser.post("/api/workers/1001/drain", **ASKED)

    assert (answer.status, answer.json()["error"]) == (status, str(error))
