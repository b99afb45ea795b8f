"""The examples in the docstrings of the public API print what they say, against a cluster.

Rules:
- The objects are those of the site's pages of the API. An example sees `client`, a client of a cluster with one worker
  of two slots, its `address`, and the names that `from scaler import *` gives.
- Each method that submits something has an example.
"""

from __future__ import annotations

import collections
import doctest
import importlib
import inspect
import io
import itertools
import time
from typing import Any, Dict, Iterator, Tuple

import pytest
from api_pages import API_PAGES

NEED_ONE = {
    "Client.submit",
    "Client.submit_verbose",
    "Client.map",
    "Client.starmap",
    "Client.imap_unordered",
    "Client.as_completed",
    "Client.get",
    "Client.submit_graph",
    "Client.send_object",
    "Client.options",
    "Client.wait",
    "Client.executor",
    "Client.actor",
    "Client.explain",
    "Client.info",
    "Client.synchronous",
}


def api_objects() -> Iterator[Tuple[str, Any]]:
    """The classes and functions on the pages of the API, and the public members of the classes."""
    for page in API_PAGES:
        for directive, name, _ in page.objects:
            if directive in ("autoclass", "autofunction"):
                module, _, attribute = name.rpartition(".")
                found = getattr(importlib.import_module(module), attribute)
                yield attribute, found
                if inspect.isclass(found):
                    yield from ((f"{attribute}.{each}", member) for each, member in members_of(found))


def members_of(found: type) -> Iterator[Tuple[str, Any]]:
    return ((name, member) for name, member in inspect.getmembers(found) if not name.startswith("_"))


def examples() -> Dict[str, doctest.DocTest]:
    """The docstrings with examples, by the name of their object; one that is inherited is there once."""
    parser = doctest.DocTestParser()
    by_text: Dict[str, str] = {}
    for name, found in api_objects():
        text = inspect.getdoc(found) or ""
        if ">>>" in text:
            by_text.setdefault(text, name)
    return {name: parser.get_doctest(text, {}, name, None, 0) for text, name in by_text.items()}


EXAMPLES = examples()


@pytest.fixture(scope="module")
def names(cluster_address: str) -> Iterator[Dict[str, Any]]:
    """What an example sees."""
    import scaler

    public = {name: getattr(scaler, name) for name in scaler.__all__}
    standard = {"collections": collections, "itertools": itertools, "time": time}
    with scaler.Client(cluster_address) as client:
        yield {**public, **standard, "__name__": "__main__", "address": cluster_address, "client": client}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example_prints_what_it_says(name: str, names: Dict[str, Any]) -> None:
    example = EXAMPLES[name]
    example.globs = dict(names)
    report = io.StringIO()

    outcome = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(example, out=report.write)

    assert outcome.failed == 0, report.getvalue()


def test_what_submits_something_has_an_example() -> None:
    assert sorted(NEED_ONE - EXAMPLES.keys()) == []


def test_a_wrong_example_fails() -> None:
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(example, out=lambda text: None).failed == 1
