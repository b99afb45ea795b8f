"""Puts a built site beside those of other versions: the workflow `docs` publishes the result.

    .venv-docs/bin/python docs/site/publish_site.py dist/docs PAGES VERSION

    PAGES/versions.json, index.html        the list of versions, and a page that leads to the newest release
    PAGES/v1.2.0/, PAGES/main/, ...        a site each; they do not change each other

Rules:
- VERSION is the name of a release's tag, `v1.2.0`, or `main`. A site replaces that of the same name.
- The first page leads to the newest release; to `main`, if there is none. Candidates such as `v1.2.0rc1` are no
  releases in this sense.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path
from typing import List, Tuple

RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)(\w*)")
MAIN = "main"
FIRST_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>Scaler</title>
<meta http-equiv="refresh" content="0; url={name}/">
<a href="{name}/">The documentation of Scaler</a>
"""


class VersionError(ValueError):
    """The name of a version is malformed."""


def publish(site: Path, pages: Path, version: str) -> None:
    """Put a site into the folder of all sites.

    Parameters:
        site: a built site.
        pages: the folder of all, which is made if it does not exist.
        version: its name.

    Raises VersionError if the name is neither `main` nor that of a release.
    """
    if version != MAIN and not RELEASE.fullmatch(version):
        raise VersionError(f"the version must be 'main' or the tag of a release such as v1.2.0, got {version!r}")
    target = pages / version
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(site, target)
    (pages / ".nojekyll").touch()
    names = versions_in(pages)
    listed = [{"name": name, "title": "development" if name == MAIN else name[1:]} for name in names]
    (pages / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    releases = [name for name in names if name != MAIN and not RELEASE.fullmatch(name)[4]]  # type: ignore[index]  # it matches
    (pages / "index.html").write_text(FIRST_PAGE.format(name=releases[0] if releases else names[0]), encoding="utf-8")


def versions_in(pages: Path) -> List[str]:
    """The versions in a folder: `main`, then releases, the newest first."""
    names = [path.name for path in pages.iterdir() if path.is_dir()]
    releases = sorted((name for name in names if RELEASE.fullmatch(name)), key=_order, reverse=True)
    return [*([MAIN] if MAIN in names else []), *releases]


def _order(name: str) -> Tuple[int, int, int, bool, str]:
    major, minor, patch, rest = RELEASE.fullmatch(name).groups()  # type: ignore[union-attr]  # it matches
    return int(major), int(minor), int(patch), not rest, rest


def main() -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(description="Put a built site beside those of other versions.")
    parser.add_argument("site", type=Path, help="a built site, such as dist/docs")
    parser.add_argument("pages", type=Path, help="the folder of the sites of all versions")
    parser.add_argument("version", help="main, or the tag of a release such as v1.2.0")
    arguments = parser.parse_args()
    try:
        publish(arguments.site, arguments.pages, arguments.version)
    except VersionError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
