"""The pages of the site: which files of the tree become pages, under which names, and in which order.

    docs/**/*.md, protocol-spec/*.md, ... ──▶ PAGES ──▶ build/docs/source: the same, links rewritten ──▶ Sphinx

Rules:
- Pages are plain Markdown, as GitHub shows it: nothing in them is for the site alone. So another generator of sites
  needs changes here only.
- A folder's README.md becomes its index. The navigation is what these link to, in their order: docs/README.md first.
- A link to a page of the site leads to that page. A link to another file of the tree leads to the repository, if its
  address is known (REPOSITORY_VARIABLE); else only its text stays.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

TREE = Path(__file__).resolve().parents[2]
REPOSITORY_VARIABLE = "SCALER_DOCS_REPOSITORY"
"""Where files of the tree are shown, such as https://github.com/OWNER/REPO/blob/v1.0.0."""

# Pages beside docs/, by patterns, and the folder of the site that they are in.
ELSEWHERE: Dict[str, str] = {
    "protocol-spec/*.md": "protocol/",
    "protocol-spec/vectors/README.md": "protocol/vectors/",
    "protocol-spec/traces/README.md": "protocol/traces/",
    "protocol-spec/python/README.md": "protocol/python/",
    "conformance-tests/*.md": "protocol/conformance/",
    "packaging/README.md": "packaging/",
    "packaging/*/README.md": "packaging/",
    "benchmarks/README.md": "benchmarks/",
    "benchmarks/RESULTS.md": "benchmarks/",
    "CHANGELOG.md": "",
    "SECURITY.md": "reporting-",
}

LINK = re.compile(
    r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
FENCE = re.compile(r"^(?P<ticks>```+|~~~+)(?P<language>\w*).*?^(?P=ticks)$", re.MULTILINE | re.DOTALL)
HOME = "docs/README.md"

HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)


class Page(NamedTuple):
    """A file of the tree that is a page of the site."""

    source: str  # from the root of the tree, such as docs/how-to/README.md
    name: str  # in the site, such as how-to/index

    @property
    def text(self) -> str:
        return _text_of(self.source)

    @property
    def title(self) -> str:
        found = HEADING.search(self.text)
        return found[2] if found else self.name


@functools.cache
def _text_of(source: str) -> str:
    return (TREE / source).read_text(encoding="utf-8")


def name_of(source: str, folder: str) -> str:
    """The name of a page in the site.

    Parameters:
        source: the page's file, from the root of the tree.
        folder: of the site, with a `/` behind it; or the beginning of the name.
    """
    path = Path(source)
    if source.startswith("docs/"):
        stem = source[len("docs/") : -len(".md")]
    elif path.parent.name and folder.endswith("packaging/") and path.parent.name != "packaging":
        stem = folder + path.parent.name
    else:
        stem = folder + path.stem.lower().replace("_", "-")
    head, _, last = stem.rpartition("/")
    return posixpath.join(head, "index" if last.lower() == "readme" else last)


def all_pages() -> Dict[str, Page]:
    """All pages, by their files in the tree."""
    pages = {}
    for path in sorted((TREE / "docs").rglob("*.md")):
        source = path.relative_to(TREE).as_posix()
        pages[source] = Page(source, name_of(source, ""))
    for pattern, folder in ELSEWHERE.items():
        for path in sorted(TREE.glob(pattern)):
            source = path.relative_to(TREE).as_posix()
            pages[source] = Page(source, name_of(source, folder))
    return pages


PAGES = all_pages()


def targets_of(page: Page) -> Iterator[Tuple[str, str]]:
    """The links of a page into the tree: each path from the root of the tree, and its anchor without `#`."""
    for match in links_in(page.text):
        yield resolved(page, match["path"]), (match["anchor"] or "").lstrip("#")


def links_in(text: str) -> Iterator[re.Match[str]]:
    """The links of a text to files, but for those in blocks of code."""
    end = 0
    blocks = [found.span() for found in FENCE.finditer(text)]
    for match in LINK.finditer(text):
        while blocks and blocks[0][1] <= match.start():
            end = blocks.pop(0)[1]
        if end <= match.start() and not (blocks and blocks[0][0] <= match.start()):
            yield match


def resolved(page: Page, path: str) -> str:
    """Where a link of a page leads to, from the root of the tree."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page.source), path))


def with_links_of_the_site(page: Page) -> str:
    """The text of a page, whose links lead to pages of the site, or to the repository."""
    text = page.text
    made: List[str] = []
    end = 0
    for match in links_in(text):
        made += [text[end : match.start()], _link(page, match)]
        end = match.end()
    return "".join([*made, text[end:]])


def _link(page: Page, match: re.Match[str]) -> str:
    target = resolved(page, match["path"])
    if match["image"]:
        return match[0]
    if target in PAGES:
        relative = posixpath.relpath(PAGES[target].name, posixpath.dirname(page.name) or ".")
        return f"[{match['text']}]({relative}.md{match['anchor'] or ''})"
    repository = os.environ.get(REPOSITORY_VARIABLE)
    return f"[{match['text']}]({repository}/{target}{match['anchor'] or ''})" if repository else match["text"]


# The navigation.


class Section(NamedTuple):
    """A part of the navigation: a heading of an index, and the pages below it."""

    title: str
    pages: List[Page]


def navigation() -> Dict[str, List[Section]]:
    """The pages below each index: by the index's file, its sections in the order in which it links to them.

    A page is below the first index that links to it; docs/README.md comes first, and places all it links to below its
    headings. Other indices place pages of their own folder of the site, and also those that no index links to.
    """
    indices = [page for page in PAGES.values() if posixpath.basename(page.source) == "README.md"]
    indices.sort(key=lambda page: (page.source != HOME, page.name.count("/"), page.source))
    placed: Set[str] = {HOME}
    found = {}
    for index in indices:
        folder = posixpath.dirname(index.name)
        sections = []
        for title, text in _sections_of(index):
            targets = [resolved(index, match["path"]) for match in links_in(text) if not match["image"]]
            here = [each for each in dict.fromkeys(targets) if each in PAGES and each not in placed]
            here = [each for each in here if PAGES[each].name.startswith(folder)]
            placed.update(here)
            if here:
                sections.append(Section(title, [PAGES[each] for each in here]))
        found[index.source] = sections
    for index in reversed(indices):  # those of inner folders first
        folder = posixpath.dirname(index.name)
        below = [page for page in PAGES.values() if page != index and page.name.startswith(folder)]
        left = [page for page in below if page.source not in placed]
        placed.update(page.source for page in left)
        if left:
            found[index.source].append(Section("", left))
    return found


def _sections_of(index: Page) -> Iterator[Tuple[str, str]]:
    """Its headings with the texts below them; an index other than the first one is a single section."""
    if index.source != HOME:
        yield "", index.text
        return
    parts = re.split(r"^## +(.+?) *$", index.text, flags=re.MULTILINE)
    yield from zip(parts[1::2], parts[2::2])


def in_order() -> List[Page]:
    """All pages in the order of the navigation; those without a place in it come last."""
    below = navigation()
    ordered: Dict[str, Page] = {}

    def visit(page: Page) -> None:
        if page.source not in ordered:
            ordered[page.source] = page
            for section in below.get(page.source, []):
                for each in section.pages:
                    visit(each)

    visit(PAGES[HOME])
    return [*ordered.values(), *(page for page in PAGES.values() if page.source not in ordered)]


# Anchors.


@functools.cache
def anchors_of(text: str) -> Set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    anchors: Set[str] = set()
    counts: Dict[str, int] = {}
    for _, heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        anchor = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        number = counts.get(anchor, 0)
        counts[anchor] = number + 1
        anchors.add(f"{anchor}-{number}" if number else anchor)
    return anchors | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
