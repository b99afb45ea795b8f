"""The fences of the documentation: what stands between ``` on each page, and the marker above it.

Rules: markers are comments of HTML, `<!-- example: WORDS -->`; test_documentation.py says what each of them means.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import Iterator, List, NamedTuple

TREE = Path(__file__).resolve().parents[2]
PAGES = [TREE / "README.md", *sorted(TREE.glob("*/README.md")), TREE / "protocol-spec/python/README.md"]
PAGES += sorted((TREE / "packaging").glob("*/README.md"))
PAGES += sorted((TREE / "docs").rglob("*.md"))
PAGES = list(dict.fromkeys(PAGES))

FENCE = re.compile(
    r"(?:^ *<!-- example: (?P<marker>[^>]*?) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SHELLS = ("bash", "console")


class Fence(NamedTuple):
    page: Path
    line: int
    language: str
    marker: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(TREE)}:{self.line}"

    @property
    def commands(self) -> List[str]:
        """The commands of a shell, one a line; a prompt is `$`, or `#` for root."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith(("$ ", "# "))]
        return [line for line in lines if shlex.split(line, comments=True)]


def fences_of(page: Path) -> Iterator[Fence]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        yield Fence(page, line, match["language"], match["marker"] or "", textwrap.dedent(match["text"]))


FENCES = [fence for page in PAGES for fence in fences_of(page)]
