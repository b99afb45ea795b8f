"""The documentation for programs that read Markdown: `llms.txt`, and all pages in one file.

Rules: `llms.txt` has the form of https://llmstxt.org: a title, a summary in a quotation, and lists of links with
descriptions, which are those of docs/README.md. Records of decisions and packaging are not in the one file: they
explain how Scaler is made, and not how it is used.
"""

from __future__ import annotations

import posixpath
import re
from typing import List

from site_pages import HOME, LINK, PAGES, in_order, navigation, resolved, with_links_of_the_site

LEFT_OUT = ("docs/adr/", "packaging/", "benchmarks/", "conformance-tests/", "CHANGELOG.md", "protocol-spec/")
BELOW = navigation()
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def llms_text() -> str:
    """The index of the site for language models."""
    home = PAGES[HOME]
    text = COMMENT.sub("", home.text)
    parts = re.split(r"^## +(.+?) *$", text, flags=re.MULTILINE)
    summary = " ".join(parts[0].split("\n\n")[1].split())
    lines = [f"# {home.title}", "", f"> {summary}", "", "All pages in one file: [scaler.md](scaler.md)", ""]
    for title, section in zip(parts[1::2], parts[2::2]):
        lines += [f"## {title}", ""]
        for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]:
            lines.append("- " + " ".join(_linked(item).split("\n\n")[0].split()))
            lines += _pages_below(item)
        lines.append("")
    return "\n".join(lines)


def _pages_below(item: str) -> List[str]:
    """A list of the pages below an index that an item of docs/README.md links to."""
    targets = [resolved(PAGES[HOME], match["path"]) for match in LINK.finditer(item)]
    indices = [each for each in targets if each in BELOW and not each.startswith(LEFT_OUT)]
    pages = [page for index in indices for section in BELOW[index] for page in section.pages]
    return [f"  - [{page.title}]({page.name}.md)" for page in pages]


def _linked(item: str) -> str:
    """An item of docs/README.md whose links lead to the Markdown of the site."""

    def link(match: re.Match[str]) -> str:
        page = PAGES.get(resolved(PAGES[HOME], match["path"]))
        return f"[{match['text']}]({page.name}.md{match['anchor'] or ''})" if page else match["text"]

    return LINK.sub(link, item)


def one_page() -> str:
    """All pages for users, in the order of the navigation, each behind a comment with its name."""
    parts: List[str] = []
    for page in in_order():
        if not page.source.startswith(LEFT_OUT):
            text = COMMENT.sub("", with_links_of_the_site(page)).strip()
            parts.append(f"<!-- {posixpath.normpath(page.name)}.md -->\n\n{text}\n")
    return "\n".join(parts)
