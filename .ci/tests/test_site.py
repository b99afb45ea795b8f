"""The site of the documentation: navigation, links, pictures, questions, versions; and, in `make test-all`, all of it.

Rules: what needs no Sphinx is checked here, in seconds. The site itself is built by `make docs`, which fails at each
warning, misspelt word and question that its search does not answer.
"""

from __future__ import annotations

import http.server
import inspect
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Dict, Iterator, List

import pytest

pytest.importorskip("tomllib", reason="Python before 3.11 cannot read TOML")

import draw_pictures
import markdown_export
import publish_site
import site_pages
import site_search
from api_pages import API_PAGES
from browser_driver import Browser, unavailable

TREE = Path(__file__).resolve().parents[2]
DOCS = [page for page in site_pages.PAGES.values() if page.source.startswith("docs/")]
MOST_WORDS = 45
MOST_LINES_OF_THE_README = 100
TELEPHONE_WIDTH = 390
OWN_ANCHOR = re.compile(r"\]\(#([^)\s]+)\)")
HEADING = re.compile(r"^### (\w+)$", re.MULTILINE)
ROW_OF_A_NAME = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


# Navigation and links.


def linked_from_indices() -> Dict[str, str]:
    """The pages that an index links to, each with the index."""
    return {
        target: page.source
        for page in site_pages.PAGES.values()
        if page.name.endswith("index")
        for target, _ in site_pages.targets_of(page)
    }


def test_every_page_is_linked_from_an_index() -> None:
    linked = linked_from_indices()
    assert [page.source for page in DOCS if page.source not in linked and page.source != site_pages.HOME] == []


def test_every_page_has_one_place_in_the_navigation() -> None:
    placed = [page.source for sections in site_pages.navigation().values() for each in sections for page in each.pages]
    assert sorted([*placed, site_pages.HOME]) == sorted(site_pages.PAGES)


def test_names_of_pages_are_unique() -> None:
    assert len({page.name for page in site_pages.PAGES.values()}) == len(site_pages.PAGES)


@pytest.mark.parametrize("page", site_pages.PAGES.values(), ids=lambda page: page.source)
def test_links_to_sections_lead_to_headings(page: site_pages.Page) -> None:
    wrong = [
        f"{target}#{anchor}"
        for target, anchor in site_pages.targets_of(page)
        if anchor and target in site_pages.PAGES and anchor not in site_pages.anchors_of(site_pages.PAGES[target].text)
    ]
    wrong += [anchor for anchor in OWN_ANCHOR.findall(page.text) if anchor not in site_pages.anchors_of(page.text)]
    assert wrong == []


def test_links_lead_to_the_site_to_the_repository_or_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    page = site_pages.PAGES["docs/architecture.md"]
    assert "[protocol-spec](protocol/index.md)" in site_pages.with_links_of_the_site(page)
    assert "](../sdk/" not in site_pages.with_links_of_the_site(page)

    monkeypatch.setenv(site_pages.REPOSITORY_VARIABLE, "https://example.org/blob/v1")
    assert "](https://example.org/blob/v1/sdk/src/scaler/client)" in site_pages.with_links_of_the_site(page)


def test_a_link_in_a_block_of_code_is_left_alone() -> None:
    text = "[a](b.md)\n\n```text\n[c](d.md)\n```\n\n[e](f.md#g)\n"
    assert [match["path"] for match in site_pages.links_in(text)] == ["b.md", "f.md"]


def test_anchors_are_those_of_github() -> None:
    text = "# The `map` of [all](x.md)\n\n## Why? And how\n\n## Why? And how\n\n```text\n# none\n```\n"
    assert site_pages.anchors_of(text) == {"the-map-of-all", "why-and-how", "why-and-how-1"}


# Contents.


def test_every_public_name_is_on_a_page_of_the_api() -> None:
    import scaler

    objects = {name.rpartition(".")[2] for page in API_PAGES for _, name, _ in page.objects}
    public = {name for name in scaler.__all__ if name not in ("__version__", "aio")}
    assert public - objects == set()
    assert "scaler.aio.Client" in {name for page in API_PAGES for _, name, _ in page.objects}


@pytest.mark.parametrize("heading", ["`Client(...)`", "Options"])
def test_the_page_of_the_client_has_each_parameter(heading: str) -> None:
    from scaler import Client

    function = Client.options if heading == "Options" else Client.__init__
    parameters = inspect.signature(getattr(function, "__wrapped__", function)).parameters
    section = site_pages.PAGES["docs/reference/client.md"].text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert sorted(ROW_OF_A_NAME.findall(section)) == sorted(set(parameters) - {"self"})


def test_the_page_of_errors_has_each_public_error_with_its_cause_and_what_to_do() -> None:
    from scaler import exceptions

    text = site_pages.PAGES["docs/reference/errors.md"].text
    assert sorted(HEADING.findall(text)) == sorted(exceptions.__all__)
    parts = HEADING.split(text)
    bases = {"ScalerError", "RemoteTraceback"}
    for name, part in zip(parts[1::2], parts[2::2]):
        assert name in bases or ("**Cause.**" in part and "**What to do.**" in part), f"{name} lacks a part"


def test_each_error_links_to_its_section() -> None:
    from scaler import exceptions

    kinds = [getattr(exceptions, name) for name in exceptions.__all__]
    linked = {error.page for error in (kind("what failed") for kind in kinds) if error.page}
    assert linked == {
        f"docs/reference/errors.md#{name.lower()}" for name in exceptions.__all__ if name != "RemoteTraceback"
    }
    text = site_pages.PAGES["docs/reference/errors.md"].text
    assert {link.partition("#")[2] for link in linked} <= site_pages.anchors_of(text)
    assert site_pages.PAGES["docs/reference/errors.md"].name == "reference/errors"  # its place on the site


def test_pictures_are_what_their_texts_say() -> None:
    outdated = [
        path.name for path, text in draw_pictures.pictures().items() if path.read_text(encoding="utf-8") != text
    ]
    assert outdated == [], "make pictures"


def test_the_figures_under_each_chart_are_those_in_it() -> None:
    page = site_pages.PAGES["docs/performance.md"].text
    charts = re.findall(r"!\[([^\]]+)\]\(images/(chart-[\w-]+\.svg)\)", page)
    assert len(charts) >= 4
    for described, name in charts:
        drawn = re.findall(r">([\d,.]+)</text>", (TREE / "docs/images" / name).read_text(encoding="utf-8"))
        figures = re.findall(r"(?<![\w.])\d[\d.,]*\d", described)
        assert figures and set(map(float, figures)) <= {float(text.replace(",", "")) for text in drawn}, name


def test_an_arrow_to_a_box_that_does_not_exist_is_an_error() -> None:
    box = "[[box]]\nname = 'a'\nat = [0, 0]\nsize = [10, 10]\n"
    with pytest.raises(KeyError, match="'b'"):
        draw_pictures.drawing(f"title = 'x'\nsize = [20, 20]\n{box}[[arrow]]\nfrom = 'a'\nto = 'b'\n")


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.source)
def test_sentences_are_short(page: site_pages.Page) -> None:
    if not page.source.startswith("docs/adr/"):
        assert long_sentences(page.text) == [], f"a sentence has at most {MOST_WORDS} words"


def long_sentences(text: str) -> List[str]:
    """The sentences of a page with too many words, without tables and code."""
    prose = re.sub(
        r"<!--.*?-->|^\|.*$|\]\([^)]*\)", " ", site_pages.FENCE.sub("\n\n", text), flags=re.MULTILINE | re.DOTALL
    )
    sentences = re.split(r"(?<=[.!?:])\s+|(?<=[.!?:])<br>|\n\n|\n *(?:-|\d+\.) ", prose)
    return [" ".join(each.split()) for each in sentences if len(each.split()) > MOST_WORDS]


def test_the_readme_is_short() -> None:
    assert len((TREE / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES_OF_THE_README


def test_a_long_sentence_is_found() -> None:
    assert long_sentences("Short. " + "word " * 46 + ". Short.") != []
    assert long_sentences("Short. " + "word " * 30 + ". " + "word " * 30) == []


# For programs that read Markdown.


def test_the_index_for_language_models_lists_the_pages_of_the_first_one() -> None:
    text = markdown_export.llms_text()
    home = [
        target for target, _ in site_pages.targets_of(site_pages.PAGES[site_pages.HOME]) if target in site_pages.PAGES
    ]

    assert text.startswith("# Scaler\n\n> Scaler runs Python functions")
    listed = re.findall(r"\]\(([^)#]+)\.md", text)
    names = {page.name for page in site_pages.PAGES.values()} | {"scaler"}
    assert set(listed) <= names
    assert {site_pages.PAGES[target].name for target in home} <= set(listed)


def test_the_single_page_has_every_page_for_users_once() -> None:
    text = markdown_export.one_page()
    for page in DOCS:
        assert text.count(f"<!-- {page.name}.md -->") == (0 if page.source.startswith("docs/adr/") else 1)


# The search.


def test_there_are_ten_questions_and_more_and_their_pages_exist() -> None:
    asked = site_search.questions()
    names = {page.name for page in site_pages.PAGES.values()} | {f"reference/api/{page.name}" for page in API_PAGES}

    assert len(asked) >= 10
    assert [page for question in asked for page in question.pages if page not in names] == []


def test_a_right_page_is_one_of_the_first_three() -> None:
    question = site_search.Question("how", ["right"])
    assert site_search.Answer(question, ["a", "b#x", "right#y", "c"]).is_right
    assert not site_search.Answer(question, ["a", "b", "c", "right"]).is_right


# Versions.


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("a site")
    return folder


def test_versions_lie_side_by_side_and_the_first_page_leads_to_the_newest_release(site: Path, tmp_path: Path) -> None:
    published = tmp_path / "pages"
    for version in ("main", "v0.9.0", "v0.10.0", "v0.11.0rc1"):
        publish_site.publish(site, published, version)

    listed = json.loads((published / "versions.json").read_text())
    assert [each["name"] for each in listed] == ["main", "v0.11.0rc1", "v0.10.0", "v0.9.0"]
    assert 'url=v0.10.0/"' in (published / "index.html").read_text()
    assert (published / "v0.9.0/index.html").read_text() == "a site"


def test_a_version_that_is_published_again_is_replaced(site: Path, tmp_path: Path) -> None:
    published = tmp_path / "pages"
    publish_site.publish(site, published, "main")
    (site / "index.html").rename(site / "other.html")
    publish_site.publish(site, published, "main")

    assert [path.name for path in (published / "main").iterdir()] == ["other.html"]
    assert 'url=main/"' in (published / "index.html").read_text()


@pytest.mark.parametrize("version", ["", "1.2.0", "v1", "../x", "v1.2.0/x", "gh-pages"])
def test_other_names_of_versions_are_refused(version: str, site: Path, tmp_path: Path) -> None:
    with pytest.raises(publish_site.VersionError, match="the tag of a release"):
        publish_site.publish(site, tmp_path / "pages", version)


# All of it.


@pytest.fixture(scope="module")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        ["make", "docs", f"ARGS=--output {output}"], cwd=TREE, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return output


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_the_site_is_built_without_a_warning_and_its_search_answers(built_site: Path) -> None:
    assert {"index.html", "llms.txt", "scaler.md", "how-to", "adr", "protocol"} <= {
        path.name for path in built_site.iterdir()
    }
    if shutil.which("node"):
        answers = site_search.ask(built_site, site_search.questions())
        assert [answer for answer in answers if not answer.is_right] == []
        (nothing,) = site_search.ask(built_site, [site_search.Question("zyzzyva", ["index"])])
        assert nothing.found == [] and not nothing.is_right


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_links_to_other_hosts_are_tried(built_site: Path, tmp_path: Path) -> None:
    class Host(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200 if self.path == "/here" else 404)
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.2", 0), Host) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            outcomes = {}
            for name in ("here", "gone"):
                source = tmp_path / name / "source"
                source.mkdir(parents=True)
                address = f"http://127.0.0.2:{server.server_port}/{name}"
                (source / "index.md").write_text(
                    f"# Links\n\n[{name}]({address}), [an example](http://nowhere.example.com/)\n"
                )
                script = f"import pathlib, build_site; build_site.check_links(pathlib.Path({str(source)!r}))"
                outcomes[name] = subprocess.run(
                    [TREE / ".venv-docs/bin/python", "-c", script],
                    cwd=TREE / "docs/site",
                    capture_output=True,
                    text=True,
                    timeout=300,
                )
        finally:
            server.shutdown()
    assert outcomes["here"].returncode == 0, outcomes["here"].stderr
    assert outcomes["gone"].returncode != 0 and "/gone" in outcomes["gone"].stderr + outcomes["gone"].stdout


@pytest.fixture
def browser() -> Iterator[Browser]:
    if reason := unavailable():
        pytest.skip(reason)
    browser = Browser()
    yield browser
    browser.close()


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_pages_from_a_disk_are_as_wide_as_a_telephone_and_dark_where_the_system_is(
    built_site: Path, browser: Browser
) -> None:
    for page in DOCS:
        browser.open((built_site / f"{page.name}.html").as_uri(), width=TELEPHONE_WIDTH, height=844, theme="dark")
        assert browser.evaluate("document.documentElement.scrollWidth") == TELEPHONE_WIDTH, page.name
        colours = re.findall(r"\d+", browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert max(map(int, colours[:3])) < 64, f"{page.name} is not dark"
        assert browser.problems() == [], page.name


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_the_search_works_from_a_disk(built_site: Path, browser: Browser) -> None:
    browser.open((built_site / "index.html").as_uri())
    browser.fill(".sidebar-search", "why is my task stuck")
    browser.press("Enter")
    browser.wait_for_text("#search-results p", "Search finished")
    assert browser.texts("ul.search li a")[0] == "Debug a stuck task"
    assert browser.problems() == []
