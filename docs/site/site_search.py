"""Whether the site's search answers what users ask: each page of `questions.toml` is among the first three results.

    .venv/bin/python docs/site/site_search.py [--site dist/docs]        shows the results of each question

Rule: the search is the site's own, its scripts and its index, run by node.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, NamedTuple, Sequence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
FIRST = 3


class Question(NamedTuple):
    """What a user types, and the pages that answer it."""

    text: str
    pages: Sequence[str]


class Answer(NamedTuple):
    """What the search shows for a question."""

    question: Question
    found: List[str]  # pages, the best first, each with the anchor of its section

    @property
    def is_right(self) -> bool:
        """Whether one of the right pages is among the first three."""
        return bool({each.partition("#")[0] for each in self.found[:FIRST]} & set(self.question.pages))


def questions() -> List[Question]:
    """The questions that the site has to answer."""
    listed = tomllib.loads((HERE / "questions.toml").read_text(encoding="utf-8"))["question"]
    return [Question(each["text"], each["pages"]) for each in listed]


def has_node() -> bool:
    """Whether questions can be asked here."""
    return shutil.which("node") is not None


def ask(site: Path, asked: Sequence[Question]) -> List[Answer]:
    """The answers of a built site. Raises subprocess.CalledProcessError if its scripts fail."""
    finished = subprocess.run(
        ["node", str(HERE / "search.js"), str(site)],
        input="\n".join(each.text for each in asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = finished.stdout.splitlines()
    return [Answer(each, [found[0] for found in json.loads(line)]) for each, line in zip(asked, lines)]


def main() -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(description="Ask the search of the built site what users ask.")
    parser.add_argument("--site", type=Path, default=HERE.parents[1] / "dist/docs", help="the built site")
    answers = ask(parser.parse_args().site, questions())
    for answer in answers:
        print("ok   " if answer.is_right else "WRONG", answer.question.text)
        for found in answer.found[:FIRST]:
            print("         ", found)
    return 0 if all(answer.is_right for answer in answers) else 1


if __name__ == "__main__":
    sys.exit(main())
