"""What a reader does on the pages, in a real browser: going about, sorting, searching, opening, zooming.

Rules: a played cluster gives the figures; each test ends with a look at the browser's own complaints, of which there
must be none: no error or warning of the console, no request that failed.
"""

from __future__ import annotations

import json

import pytest
from browser_driver import Browser
from quiet_addresses import quiet_address
from ui_server import Play, StartUi

pytestmark = pytest.mark.slow

PAGES = ("overview", "stream", "workers", "tasks", "functions", "clients", "objects", "graphs", "actors")
LIVE = "document.body.dataset.feed === 'live'"
ROWS = "#page table.data tbody tr:not(.detail)"


def has_rows(count: int = 1) -> str:
    return f"document.querySelectorAll({ROWS!r}).length >= {count}"


def column(browser: Browser, number: int) -> list[str]:
    return browser.texts(f"{ROWS} > td:nth-child({number})")


def test_keys_go_to_every_page_and_each_shows_something(shown: Browser) -> None:
    shown.wait(LIVE)
    for number, name in enumerate(PAGES, start=1):
        shown.press(str(number))
        shown.wait(
            f"location.hash.startsWith('#/{name}') && document.querySelector('nav a[aria-current]').hash === '#/{name}'"
        )
        if name not in ("overview", "stream"):
            shown.wait(has_rows())
    shown.back()
    shown.wait("location.hash.startsWith('#/graphs')")


def test_the_overview_draws_its_charts(shown: Browser) -> None:
    shown.wait("document.querySelectorAll('.chart canvas').length === 5")
    shown.wait("document.querySelector('.chart .legend b').textContent !== '–'")
    shown.wait_for_text(".panel table.data", "numpy.linalg.svd")
    shown.click("button[data-seconds='3600']")
    shown.wait("location.hash === '#/overview?span=3600'")


def test_workers_are_sorted_by_their_heads(shown: Browser) -> None:
    shown.visit("#/workers")
    shown.wait(has_rows(4))
    shown.click("th:has-text('worker') button.sort")
    shown.wait("document.querySelector('th[aria-sort=ascending]')?.textContent.includes('worker')")
    shown.wait(f"document.querySelector({ROWS + ' .name'!r}).textContent === 'worker-1000'")
    shown.click("th:has-text('worker') button.sort")
    shown.wait(f"document.querySelector({ROWS + ' .name'!r}).textContent === 'worker-1003'")
    assert column(shown, 2) == ["worker-1003", "worker-1002", "worker-1001", "worker-1000"]
    assert shown.evaluate("location.hash") == "#/workers?sort=-name"


@pytest.mark.parametrize(
    "wrong",
    [
        [
            ("#/__proto__", "There is no page “__proto__”.", "#/overview"),
            ("#/constructor/1", "There is no page “constructor/1”.", "#/overview"),
            ("#/workers/7", "There is no page “workers/7”.", "#/overview"),
            ("#/tasks%3Fstate=failed", "There is no page “tasks?state=failed”.", "#/overview"),
            ("#/%E0%A4%A", "There is no page “%E0%A4%A”.", "#/overview"),
            ("#/task/1/abc", "There is no task “1/abc”", "#/tasks"),
            ("#/overview?span=77", "span is 300, 900, 3600 seconds, not “77”.", "#/overview"),
            ("#/stream?window=abc", "window is a number of seconds, not “abc”.", "#/stream"),
        ],
        [
            ("#/tasks?state=waiting", "there is no 'waiting'; use one of running, failures", "#/tasks"),
            ("#/tasks?sate=failed", "“sate” is nothing that this page can be asked for", "#/tasks"),
            ("#/tasks?offset=-1", "offset is a whole number, not “-1”.", "#/tasks"),
            ("#/workers?sort=__proto__", "there is no '__proto__'; use one of session, name", "#/workers"),
        ],
    ],
    ids=["pages", "filters"],
)
def test_an_address_that_shows_nothing_says_so_and_links_back(shown: Browser, wrong: list[tuple[str, ...]]) -> None:
    shown.visit("#/functions")
    shown.wait(has_rows())
    seen = f"[...document.querySelectorAll({ROWS!r}), ...document.querySelectorAll('.banner')]"
    for address, said, back in wrong:
        shown.visit(address)
        shown.wait_for_text("#page [role=alert]", said)
        assert not shown.evaluate(f"{seen}.some((it) => it.checkVisibility())"), address
        assert shown.evaluate("document.querySelector('[role=alert] a').hash") == back
        shown.wait(LIVE)
        shown.click("[role=alert] a")
        shown.wait(f"location.hash === '{back}' && !document.querySelector('[role=alert]')")
        shown.wait("document.querySelector('#page > :nth-child(2)').checkVisibility()")
    assert all("400" in problem for problem in shown.problems())
    shown.forget_problems()


def test_a_filter_for_what_there_is_not_names_it(shown: Browser) -> None:
    for kind in ("worker", "function", "client", "graph"):
        shown.visit(f"#/tasks?{kind}=987654")
        shown.wait_for_text(".empty", f"There is no {kind} 987654 (any more).")
        shown.click(".empty a")
        shown.wait(f"location.hash === '#/tasks' && {has_rows()}")


def test_counts_of_failures_are_links_to_them(shown: Browser) -> None:
    shown.wait("document.querySelector('[data-vital=failed] a')?.hash === '#/tasks?state=failures'")
    shown.wait("document.querySelector('.outcome-list a')?.hash === '#/tasks?state=failures'")
    for page in ("workers", "functions", "clients"):
        shown.visit(f"#/{page}")
        shown.wait(has_rows())
        shown.wait("document.querySelector('td[data-alarm] a')?.hash.includes('state=failures')")
    shown.click("td[data-alarm] a")
    shown.wait(f"document.body.dataset.page === 'tasks' && {has_rows()}")  # no row of the page before
    assert set(column(shown, 3)) <= {"✕ failed", "✕ lost"}


FUNCTION_NAMES = ("numpy.linalg.svd", "prepare", "score_model")


def colours(browser: Browser, page: str) -> dict[str, str]:
    """Of the functions' swatches on a page, by name."""
    browser.visit(f"#/{page}")
    for name in FUNCTION_NAMES:
        browser.wait_for_text("#page", name)
    found = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#page .swatch:not(.hatched)')].map((it) =>"
        " [it.nextElementSibling.textContent, getComputedStyle(it).backgroundColor]))"
    )
    return {name: found[name] for name in FUNCTION_NAMES}


def test_a_function_has_one_colour_on_every_page_and_in_every_session(browser: Browser, four_workers: str) -> None:
    seen = []
    for pages in (("stream", "functions", "tasks?search=e"), ("functions", "overview", "stream")):
        browser.open(four_workers, f"#/{pages[0]}")
        seen += [colours(browser, page) for page in pages]
    assert all(each == seen[0] for each in seen)
    assert len(set(seen[0].values())) == len(FUNCTION_NAMES)


def test_a_filter_stays_in_the_address_and_leaves_by_a_link(shown: Browser) -> None:
    shown.visit("#/workers")
    shown.wait(has_rows(4))
    shown.press("/")
    shown.wait("document.activeElement.type === 'search'")
    shown.fill("input[type=search]", "worker-1002")
    shown.wait(f"document.querySelectorAll({ROWS!r}).length === 1")
    assert shown.evaluate("location.hash") == "#/workers?filter=worker-1002"
    shown.fill("input[type=search]", "no-such-worker")
    shown.wait_for_text(".empty", "No workers match")
    shown.click(".empty a")
    shown.wait(has_rows(4))
    assert shown.evaluate("location.hash") == "#/workers"


def test_a_worker_opens_to_its_processors_and_stays_open(shown: Browser) -> None:
    shown.visit("#/workers")
    shown.wait(has_rows(4))
    shown.click("button[aria-label*='worker-1001']")
    shown.wait("document.querySelectorAll('tr.detail table tbody tr').length === 2")
    shown.wait_for_events()
    assert shown.evaluate("document.querySelectorAll('tr.detail').length") == 1
    assert shown.evaluate("document.querySelector('button[aria-label*=\"worker-1001\"]').ariaExpanded") == "true"
    shown.click("button[aria-label*='worker-1001']")
    shown.wait("document.querySelectorAll('tr.detail').length === 0")


def test_a_row_that_is_pressed_stays_until_it_is_let_go(shown: Browser) -> None:
    """A browser makes no click of a press whose element moves before the release."""
    shown.visit("#/workers")
    shown.wait(has_rows(4))
    watch = """
        new MutationObserver(() => { document.body.dataset.moved = 'yes' })
            .observe(document.querySelector('table.data tbody'), {childList: true})
    """
    shown.hold("button[aria-label*='worker-1001']")
    shown.evaluate(watch)
    shown.wait_for_events(6)
    assert shown.evaluate("document.body.dataset.moved || ''") == ""
    shown.let_go()
    shown.wait("document.querySelectorAll('tr.detail table tbody tr').length === 2")


def test_a_row_that_is_pressed_again_at_once_stays_as_well(shown: Browser) -> None:
    shown.visit("#/workers")
    shown.wait(has_rows(4))
    press = """
        (() => {
            const button = document.querySelector("button[aria-label*='worker-1001']");
            for (const name of ["pointerdown", "pointerup", "pointerdown"])
                button.dispatchEvent(new PointerEvent(name, {bubbles: true, pointerId: 7, button: 0}));
            new MutationObserver(() => { document.body.dataset.moved = 'yes' })
                .observe(document.querySelector('table.data tbody'), {childList: true});
        })()
    """
    shown.evaluate(press)
    shown.wait_for_events(6)
    assert shown.evaluate("document.body.dataset.moved || ''") == ""


def test_stopping_a_worker_asks_first(shown: Browser) -> None:
    shown.visit("#/workers")
    shown.wait(has_rows(4))
    shown.click("button[aria-label*='worker-1001']")
    shown.click("text=Stop this worker")
    shown.wait_for_text("dialog h2", "Stop worker-1001?")
    shown.press("Escape")
    shown.wait("!document.querySelector('dialog.confirm')")


def test_tasks_are_found_by_state_and_text_and_open_at_an_address_of_their_own(shown: Browser) -> None:
    shown.visit("#/tasks")
    shown.wait(has_rows())
    shown.choose("select[aria-label=State]", "failed")
    shown.wait(has_rows())
    shown.wait(f"[...document.querySelectorAll({ROWS!r})].every((row) => row.textContent.includes('failed'))")
    shown.fill("input[type=search]", "svd")
    shown.wait("location.hash.includes('search=svd')")
    shown.wait(f"[...document.querySelectorAll({ROWS!r})].every((row) => row.textContent.includes('numpy.linalg.svd'))")
    shown.click(f"{ROWS} a")
    shown.wait_for_text(".failure h3", "no luck in numpy.linalg.svd")
    shown.wait_for_text(".failure pre", "Traceback (most recent call last)")
    address = shown.evaluate("location.hash")
    shown.reload(address)
    shown.wait_for_text(".failure h3", "no luck in numpy.linalg.svd")


def test_a_name_that_is_a_script_is_only_a_name(shown: Browser) -> None:
    shown.evaluate("window.alert = () => { document.body.dataset.alerted = 'yes' }")
    for page in ("functions", "tasks?search=script", "stream", "objects"):
        shown.visit(f"#/{page}")
        shown.wait_for_text("#page", "<b>table</b>" if page == "objects" else "<script>alert(1)</script>")
    assert shown.evaluate("document.body.dataset.alerted || ''") == ""
    assert shown.evaluate("document.querySelectorAll('#page script, #page td b').length") == 0


def test_the_stream_follows_zooms_pans_and_describes_a_run(shown: Browser) -> None:
    shown.visit("#/stream")
    shown.wait("Number(document.querySelector('.stream-canvas')?.dataset.runs) > 20")
    shown.wait("Number(document.querySelector('.stream-canvas').dataset.failures) >= 0")
    before = shown.evaluate("document.querySelector('.stream-canvas').dataset.right")
    shown.wait(f"document.querySelector('.stream-canvas').dataset.right > '{before}'")
    shown.press("+", "+")
    shown.wait("location.hash.includes('window=')")
    shown.wait("document.querySelector('.follow').ariaPressed === 'true'")
    shown.press("ArrowLeft")
    shown.wait("location.hash.includes('to=') && document.querySelector('.follow').ariaPressed === 'false'")
    shown.drag(".stream-canvas", 400, 600, 100)
    shown.hover(".stream-canvas", 500, 60)
    shown.wheel(0, -300)
    shown.wait("/until/.test(document.querySelector('#stream-range').textContent)")
    shown.press("End")
    shown.wait("!location.hash.includes('to=') && document.querySelector('.follow').ariaPressed === 'true'")


def test_a_run_on_the_stream_is_a_link_to_its_task(shown: Browser) -> None:
    shown.visit("#/stream")
    shown.wait("Number(document.querySelector('.stream-canvas')?.dataset.runs) > 100")
    shown.press(" ")  # so that runs stay where they are; further back there may be none yet
    shown.wait("document.body.dataset.feed === 'paused'")
    # Somewhere there is a run: feel for it, as a reader would.
    shown.wait(
        """(window.met = (() => {
          const canvas = document.querySelector('.stream-canvas');
          const box = canvas.getBoundingClientRect();
          for (let y = 36; y < box.height; y += 6) for (let x = box.width - 4; x > 200; x -= 2) {
            const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true, pointerType: 'mouse' };
            canvas.dispatchEvent(new PointerEvent('pointermove', at));
            if (canvas.classList.contains('over-run')) return [x, y];
          }
          return null;
        })()) !== null"""
    )
    found = shown.evaluate("window.met")
    shown.wait("!document.querySelector('.tip').hidden")
    assert "task " in shown.texts(".tip")[0]
    shown.click(".stream-canvas", *found)
    shown.wait("location.hash.startsWith('#/task/')")
    shown.press(" ")
    shown.wait_for_text(".task-facts", "duration")


def test_the_theme_follows_the_system_until_it_is_chosen(shown: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = shown.evaluate(ground)
    shown.set_theme("dark")
    shown.wait(f"{ground} !== '{light}'")
    shown.press("t")
    shown.wait(f"{ground} === '{light}'")
    shown.reload("#/overview")
    shown.wait(f"{ground} === '{light}'")
    shown.click("#theme")
    shown.wait(f"document.documentElement.dataset.theme === 'dark' && {ground} !== '{light}'")


def test_a_pause_is_plain_to_see_and_ends(shown: Browser) -> None:
    shown.wait(LIVE)
    shown.press(" ")
    shown.wait("document.body.dataset.feed === 'paused'")
    shown.wait_for_text(".banner", "Paused at")
    seen = shown.evaluate("document.body.dataset.events")
    shown.press("Space")
    shown.wait(f"{LIVE} && document.body.dataset.events !== '{seen}'")
    shown.wait("document.querySelector('.banner').hidden")


def test_an_insecure_scheduler_is_announced_on_every_page_until_it_has_keys(
    browser: Browser, play: Play, start_ui: StartUi
) -> None:
    cluster = play()
    cluster.scheduler.is_insecure = True
    browser.open(start_ui(cluster.monitor_address).url)
    for name in PAGES:
        browser.visit(f"#/{name}")
        browser.wait(f"document.body.dataset.page === '{name}'")
        browser.wait_for_text("[data-kind=insecure]", "started with --insecure")
    cluster.scheduler.is_insecure = False
    browser.wait("document.querySelector('[data-kind=insecure]').hidden")


def test_help_lists_the_keys(shown: Browser) -> None:
    shown.press("?")
    shown.wait_for_text("dialog#keys", "follow live")
    shown.press("Escape")
    shown.wait("!document.querySelector('dialog#keys').open")


def test_every_page_fits_400_pixels(browser: Browser, four_workers: str) -> None:
    browser.open(four_workers, width=400, height=800, theme="dark", touch=True)
    for name in PAGES:
        browser.visit(f"#/{name}")
        browser.wait(f"document.body.dataset.page === '{name}'")
        browser.wait_for_events()
        wide = browser.evaluate(
            "[document.documentElement, document.querySelector('#page')].map((it) => it.scrollWidth - it.clientWidth)"
        )
        assert wide == [0, 0], f"{name} is wider than the window"


def test_a_thousand_workers_are_paged_and_searched(browser: Browser, play: Play, start_ui: StartUi) -> None:
    cluster = play(workers=1000, rate=50_000)
    browser.open(start_ui(cluster.monitor_address).url, "#/workers?sort=name")
    browser.wait_for_text(".shown", "1–50 of 1\u2009000 workers")
    browser.click("button[aria-label='Next page']")
    browser.wait_for_text(".shown", "51–100 of 1\u2009000 workers")
    browser.wait(f"document.querySelector({ROWS + ' .name'!r}).textContent === 'worker-1050'")
    browser.choose("select[aria-label='Rows on a page']", "200")
    browser.wait(f"document.querySelectorAll({ROWS!r}).length === 200")
    browser.fill("input[type=search]", "host-07")
    browser.wait_for_text(".shown", "of 20 matching, 1\u2009000 workers in all")
    browser.visit("#/stream")
    browser.wait("document.querySelector('.stream-canvas')?.dataset.runs > 0")
    browser.press("ArrowDown")
    browser.wait("location.hash.includes('lanes=')")
    browser.wait("/^slots \\d+–\\d+ of 2\u2009000$/.test([...document.querySelectorAll('.shown')].pop().textContent)")


def test_a_hidden_tab_asks_for_nothing_and_is_live_when_seen_again(shown: Browser) -> None:
    shown.wait(LIVE)
    shown.hide(True)
    shown.wait("document.body.dataset.feed === 'hidden'")
    seen = shown.evaluate("document.body.dataset.events")
    shown.hide(False)
    shown.wait(f"{LIVE} && document.body.dataset.events !== '{seen}'")


def test_a_scaler_ui_that_ends_is_reported_and_reconnected(browser: Browser, play: Play, start_ui: StartUi) -> None:
    cluster = play(workers=2)
    port = quiet_address().rpartition(":")[2]
    first = start_ui(cluster.monitor_address, "--port", port)
    browser.open(first.url, "#/workers")
    browser.wait(has_rows(2))
    first.close()
    browser.wait("document.body.dataset.feed === 'stale'")
    browser.wait_for_text(".banner", "scaler_ui does not answer")
    # Here the browser has had reason to complain.
    assert all("ERR_" in problem for problem in browser.problems())
    start_ui(cluster.monitor_address, "--port", port)
    browser.wait(f"{LIVE} && document.querySelector('.banner').hidden")
    browser.wait_for_events()
    browser.wait("document.querySelector('[data-vital=workers] dd').textContent === '2'")
    assert not browser.evaluate("document.querySelectorAll('.notice[data-kind=restart]').length"), "it is the same one"
    browser.forget_problems()


def test_less_motion_draws_the_stream_once_an_event(browser: Browser, four_workers: str) -> None:
    browser.open(four_workers, "#/stream", motion="reduce")
    browser.wait("Number(document.querySelector('.stream-canvas')?.dataset.runs) > 20")
    right = "document.querySelector('.stream-canvas').dataset.right"
    moves = browser.evaluate(
        f"""(async () => {{
          const seen = new Set();
          const last = Number(document.body.dataset.events) + 3;
          while (Number(document.body.dataset.events) < last) {{
            seen.add({right});
            await new Promise(requestAnimationFrame);
          }}
          return seen.size;
        }})()"""
    )
    assert moves <= 8


def test_actors_show_their_state_and_why_they_are_lost(shown: Browser) -> None:
    shown.visit("#/actors?sort=name")
    shown.wait(has_rows(3))
    shown.wait_for_text("#page", "the actor <i>Pool</i> was lost with its worker")
    assert sorted(shown.texts(f"{ROWS} .badge")) == ["alive", "lost", "waits for a worker"]
    shown.visit("#/actors?filter=visits")
    shown.wait(f"document.querySelectorAll({ROWS!r}).length === 1")


ODD_HEAD = {
    "clock": 1e9,
    "generation": 1,
    "scheduler_id": "a",
    "address": "<b>there</b>",
    "tasks": {"running": None},
    "slots": "many",
    "age_seconds": 0,
    "is_connected": True,
    "waiting_reasons": [None, 7, "<i>why</i>"],
    "unit_notes": [None, 8, "<i>units</i>"],
}
ODD_ROW = {
    "name": None,
    "session": 3,
    "function": None,
    "state": "odd",
    "error": 5,
    "client": 1,
    "task": "9",
    "bytes": "x",
}
ODD_BODIES: list[object] = [
    None,
    {},
    {"rows": None, "matching": "all"},
    {"rows": [{}, ODD_ROW], "matching": 2, "expanded": None},
    {"series": {"time": [1e9, 1e9 + 1], "finished": [None], "failed": "none"}, "is_reset": True, "functions": [{}]},
    {"is_reset": True, "lanes": [{"id": 1}], "runs": {"lane": [1, 1], "start": [0], "end": ["x"]}, "running": {}},
    {"lanes": [{"id": 1, "title": 7}], "runs": {"lane": [1], "start": [0], "end": [5e6]}, "functions": {"0": None}},
]


@pytest.mark.parametrize("page", PAGES)
def test_odd_events_break_no_page(browser: Browser, four_workers: str, page: str) -> None:
    events = ["no json", "null", json.dumps({"head": None})]
    events += [json.dumps({"head": ODD_HEAD, "body": body}) for body in ODD_BODIES]
    browser.open(four_workers, f"#/{page}", events=events)
    browser.wait(f"Number(document.body.dataset.events) === {len(ODD_BODIES)}")
    browser.wait_for_text(".where", "<b>there</b>")
    assert browser.evaluate("document.querySelectorAll('.notice[data-kind=trouble]').length") == 0
    assert browser.evaluate("/undefined|NaN|\\[object/.exec(document.body.innerText)?.[0] ?? ''") == ""
