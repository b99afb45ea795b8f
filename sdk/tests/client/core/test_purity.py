"""The client's core decides and never does: no thread, lock, socket, file, clock or randomness is within its reach."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator, List, Set

import pytest

import scaler
import scaler_protocol

ROOTS = {"scaler": Path(scaler.__file__).parent, "scaler_protocol": Path(scaler_protocol.__file__).parent}
CORE = "scaler.client.core"
CORE_MAY_USE = (
    CORE,
    "scaler.exceptions",
    "scaler.data_serving.data_effects",
    "scaler.data_serving.ticket_service",
    "scaler.values.codecs",
    "scaler.values.sizes",
    "scaler_protocol.programs.documentation",
    "scaler_protocol.session",
    "scaler_protocol.wire",
)
"""Beyond the standard library; what these import is looked at as well."""

PURE_MODULES = {
    *(
        "__future__",
        "array",
        "collections",
        "dataclasses",
        "enum",
        "functools",
        "graphlib",
        "itertools",
        "json",
        "math",
    ),
    *("operator", "struct", "sys", "typing", "warnings", "weakref"),
}

PURE_NAMES = {"concurrent.futures.BrokenExecutor"}
"""In modules that are not pure: exceptions, from which ours are derived."""

READ_WHEN_SHOWN = ("scaler_protocol.programs.documentation", "os")
"""What an error reads for its link, when it is shown, which is never in a core: the environment, in this one module."""


def source_of(module: str) -> Path:
    package, *rest = module.split(".")
    path = ROOTS[package].joinpath(*rest)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported_by(text: str) -> Iterator[str]:
    """Modules, or names in them, as far as can be told without importing anything."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                is_module = node.module.partition(".")[0] in ROOTS and source_of(name).exists()
                yield name if is_module or name in PURE_NAMES else node.module


def impurities(text: str, visited: Set[str]) -> List[str]:
    """What a module reaches that the core must not."""
    found: List[str] = []
    for name in imported_by(text):
        if name.partition(".")[0] not in ROOTS:
            if name.partition(".")[0] not in PURE_MODULES and name not in PURE_NAMES:
                found.append(name)
        elif not any(name == each or name.startswith(f"{each}.") for each in CORE_MAY_USE):
            found.append(name)
        elif name not in visited:
            visited.add(name)
            reached = impurities(source_of(name).read_text(encoding="utf-8"), visited)
            found += [each for each in reached if (name, each) != READ_WHEN_SHOWN]
    return found


def core_modules() -> List[Path]:
    return sorted(source_of(CORE).parent.glob("*.py"))


@pytest.mark.parametrize("path", core_modules(), ids=lambda path: path.stem)
def test_the_core_reaches_pure_modules_only(path: Path) -> None:
    assert impurities(path.read_text(encoding="utf-8"), set()) == []


@pytest.mark.parametrize(
    "text",
    [
        "import threading",
        "from time import monotonic",
        "import os.path",
        "from random import random",
        "from scaler.client.shell import waiting",
        "from scaler.values.payload import Buffer",
        "from scaler_protocol.host.connection import Connection",
    ],
)
def test_a_clock_a_lock_or_a_socket_in_the_core_is_found(text: str) -> None:
    assert len(impurities(f"from typing import Any\n{text}", set())) == 1


def test_no_module_of_the_core_opens_a_file() -> None:
    for path in core_modules():
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not any(isinstance(each, ast.Name) and each.id in ("open", "print", "exec", "eval") for each in calls)
