"""Build the documentation as a site: `make docs`.

    build_site.py [--output dist/docs]
    build_site.py --check-links           asks other hosts whether what pages link to is there, and builds nothing

Rules:
- A misspelt word and a warning of Sphinx are errors; so is a question that the search does not answer (site_search.py).
- Builds and the site fetch nothing: the address of another host in a script or a picture is an error.
- Beside the pages lie their Markdown (`how-to/ship-code.md`), all of it in one file (`scaler.md`), and `llms.txt`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

from markdown_export import llms_text, one_page
from site_pages import PAGES, TREE, with_links_of_the_site
from site_search import ask, has_node, questions
from site_source import stage

SETTINGS = Path(__file__).resolve().parent
STAGED = TREE / "build/docs/source"
CACHE = TREE / "build/docs/cache"
FETCHED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["'](?:https?:)?//[^"']+""")
NOT_FETCHED = re.compile(r"""\brel=["'](?:canonical|author|license)["']""")


class SiteError(RuntimeError):
    """The site would fetch something, or its search does not answer a question."""


def build(output: Path) -> None:
    """Build the site in a folder, which is replaced when all is well.

    Raises subprocess.CalledProcessError if a word is misspelt, or if Sphinx fails or warns; and SiteError.
    """
    run("codespell_lib", *sorted(str(TREE / source) for source in PAGES))
    stage(STAGED)
    made = output.with_name(output.name + ".new")
    shutil.rmtree(made, ignore_errors=True)
    options = ["-b", "html", "-c", str(SETTINGS), "-d", str(CACHE), "-W", "--keep-going", "-q"]
    run("sphinx", *options, str(STAGED), str(made))

    (made / ".buildinfo").unlink()
    for page in PAGES.values():
        (made / f"{page.name}.md").write_text(with_links_of_the_site(page), encoding="utf-8")
    (made / "scaler.md").write_text(one_page(), encoding="utf-8")
    (made / "llms.txt").write_text(llms_text(), encoding="utf-8")
    check(made)
    shutil.rmtree(output, ignore_errors=True)
    made.rename(output)


def check_links(source: Path) -> None:
    """Ask other hosts whether what the pages of a folder link to is there.

    Raises subprocess.CalledProcessError if something is not.
    """
    found = source.parent / "links"
    run("sphinx", "-b", "linkcheck", "-c", str(SETTINGS), "-d", str(found / "cache"), "-q", str(source), str(found))


def run(module: str, *arguments: str) -> None:
    """Run a module of Python; raises subprocess.CalledProcessError if it fails."""
    subprocess.run([sys.executable, "-m", module, *arguments], check=True)


def check(site: Path) -> None:
    """Raises SiteError if a built site would fetch something, or does not answer what users ask."""
    if fetched := fetched_in(site):
        raise SiteError("the site would fetch from other hosts:\n" + "\n".join(fetched))
    if not has_node():
        print("there is no node here: the search was not tried", file=sys.stderr)
        return
    wrong = [answer for answer in ask(site, questions()) if not answer.is_right]
    if wrong:
        listed = [f"{answer.question.text}: {', '.join(answer.found[:3]) or 'nothing'}" for answer in wrong]
        raise SiteError("the search has no right page among its first three for:\n" + "\n".join(listed))


def fetched_in(folder: Path) -> List[str]:
    """What the pages in a folder would fetch from other hosts."""
    return [
        f"{path.relative_to(folder)}: {match[0]}"
        for path in sorted(folder.rglob("*.html"))
        for match in FETCHED.finditer(path.read_text(encoding="utf-8"))
        if not NOT_FETCHED.search(match[0])
    ]


def main() -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(description="Build the documentation as a site.")
    parser.add_argument("--output", type=Path, default=TREE / "dist/docs", help="the folder of the site")
    parser.add_argument(
        "--check-links", action="store_true", help="only look whether links to other hosts lead somewhere"
    )
    options = parser.parse_args()
    output = options.output.resolve()
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        if options.check_links:
            stage(STAGED)
            check_links(STAGED)
            print("all links to other hosts lead somewhere")
            return 0
        build(output)
    except subprocess.CalledProcessError as error:
        print(f"the site is not right: {error.cmd[2]} ended with code {error.returncode}, see above", file=sys.stderr)
        return 1
    except SiteError as error:
        print(f"the site was not built: {error}", file=sys.stderr)
        return 1
    print(f"{len(list(output.rglob('*.html')))} pages in {output}: open index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
