"""Where the documentation describes something: errors and programs end with it.

Rule: there is one base for all links. It is the site in SCALER_DOCS_URL, such as one that `make docs` has built; by
default, links are paths in the source tree, which its web page and editors open.
"""

from __future__ import annotations

from os import environ

DOCS_URL_VARIABLE = "SCALER_DOCS_URL"


def link_to(section: str) -> str:
    """The link to a section of a page.

    Parameters:
        section: the page's name on the site, and the anchor of the heading: `reference/errors#workerdiederror`.
    """
    page, _, anchor = section.partition("#")
    site = environ.get(DOCS_URL_VARIABLE, "").rstrip("/")
    return f"{site}/{page}.html#{anchor}" if site else f"docs/{page}.md#{anchor}"
