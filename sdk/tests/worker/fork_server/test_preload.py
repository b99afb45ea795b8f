"""What --preload understands."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from scaler.exceptions import PreloadError
from scaler.worker.fork_server.preload import Preload, parse_preload, preload


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pkg", Preload("pkg", "", (), {})),
        (" pkg.module ", Preload("pkg.module", "", (), {})),
        ("pkg:setup", Preload("pkg", "setup", [], {})),
        ("pkg:Class.setup", Preload("pkg", "Class.setup", [], {})),
        ("pkg:setup()", Preload("pkg", "setup", [], {})),
        ("pkg:setup('a', -1, k=[1, 2])", Preload("pkg", "setup", ["a", -1], {"k": [1, 2]})),
    ],
)
def test_it_is_understood(text: str, expected: Any) -> None:
    assert parse_preload(text) == expected


@pytest.mark.parametrize("text", ["", "a b", "a..b", "pkg:", "pkg:f(", "pkg:f(x)", "pkg:f(**{'a': 1})", "pkg:f()()"])
def test_it_is_named_when_it_is_not_understood(text: str) -> None:
    with pytest.raises(PreloadError, match="cannot understand preload"):
        parse_preload(text)


def test_the_function_is_called_with_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    module = types.ModuleType("module_of_a_test")
    module.setup = lambda *args, **kwargs: calls.append((args, kwargs))  # type: ignore[attr-defined]  # set by hand
    monkeypatch.setitem(sys.modules, "module_of_a_test", module)
    preload(["module_of_a_test:setup('a', k=1)", "module_of_a_test:setup"])

    assert calls == [(("a",), {"k": 1}), ((), {})]


@pytest.mark.parametrize("text", ["no_such_module_at_all", "sys:no_such_function", "sys:exit(3)"])
def test_a_failure_says_which_and_why(text: str) -> None:
    with pytest.raises(PreloadError, match="failed") as caught:
        preload([text])

    assert text in str(caught.value)
    assert caught.value.__cause__ is not None
