"""Puts the pages into one folder, as Sphinx reads them: links rewritten, navigation, API and pictures added.

    site_pages.PAGES ──▶ stage(folder) ──▶ folder/how-to/index.md, ..., folder/reference/api/client.rst, folder/images

Rules: only what Sphinx needs is changed; the words of a page are those of its file in the tree.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path
from typing import List

from api_pages import API_PAGES, ApiPage
from site_pages import FENCE, HOME, PAGES, TREE, Page, Section, navigation, with_links_of_the_site

API_FOLDER = "reference/api"
API_INDEX = "docs/reference/README.md"
LANGUAGES = {"capnp": "text", "mermaid": "text", "": "text"}  # Pygments knows neither of them
PARAGRAPH_OF_IMAGES = re.compile(r"^</?p>\n", re.MULTILINE)
IMAGE = re.compile(r'<img src="(?P<path>[^"]+)" width="(?P<width>[^"]+)" alt="(?P<text>[^"]*)">')


def stage(folder: Path) -> None:
    """Write all pages into a folder, which is removed first."""
    shutil.rmtree(folder, ignore_errors=True)
    below = navigation()
    for page in PAGES.values():
        text = text_for_sphinx(page, below.get(page.source, []))
        path = folder / f"{page.name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for each in API_PAGES:
        path = folder / API_FOLDER / f"{each.name}.rst"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(each.text, encoding="utf-8")
    for images in TREE.glob("docs/**/images"):
        shutil.copytree(images, folder / images.relative_to(TREE / "docs"), dirs_exist_ok=True)


def text_for_sphinx(page: Page, sections: List[Section]) -> str:
    """A page, with its part of the navigation."""
    text = with_links_of_the_site(page)
    text = PARAGRAPH_OF_IMAGES.sub("", text)
    text = IMAGE.sub(r"![\g<text>](\g<path>){width=\g<width>}", text)
    text = FENCE.sub(lambda fence: _with_known_language(fence[0]), text)
    trees = [_toctree(page, section, is_captioned=page.source == HOME and bool(section.title)) for section in sections]
    if page.source == API_INDEX:
        trees.append(_api_tree(API_PAGES))
    return "\n\n".join([text.rstrip(), *trees]) + "\n"


def _with_known_language(fence: str) -> str:
    head, _, rest = fence.partition("\n")
    language = head.lstrip("`~")
    return f"{head[: len(head) - len(language)]}{LANGUAGES.get(language, language)}\n{rest}"


def _toctree(page: Page, section: Section, is_captioned: bool) -> str:
    folder = posixpath.dirname(page.name) or "."
    names = [posixpath.relpath(each.name, folder) for each in section.pages]
    options = [":hidden:", ":maxdepth: 1", *([f":caption: {section.title}"] if is_captioned else [])]
    return "\n".join(["```{toctree}", *options, "", *names, "```"])


def _api_tree(pages: List[ApiPage]) -> str:
    return "\n".join(["```{toctree}", ":maxdepth: 1", "", *(f"api/{each.name}" for each in pages), "```"])
