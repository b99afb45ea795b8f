"""Import rules between packages, checked on the sources without importing them.

Rules:
- Of our own packages, `scaler` and `scaler_appliance` may import `scaler_protocol`; other imports between packages are
  forbidden. `scaler_conformance` imports none of ours: it must not judge an implementation by its own code.
- A core has no side effects: clock, randomness, sockets, threads, files and processes are outside. It imports only
  itself and what `CORES` says, and the modules that it reaches there are equally pure. For packages around these, what
  importing them runs counts; what their functions import when they are called does not.
- Only `scaler_appliance.ui` imports the web stack, and no module imports `ui`: a scheduler starts without either. In
  turn it imports nothing of the scheduler, whose status it subscribes to.
- Every rule is tested: the second half of this file breaks each of them on made-up sources.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple

import pytest

TREE = Path(__file__).resolve().parents[2]

PACKAGES = {
    "scaler": TREE / "sdk/src",
    "scaler_appliance": TREE / "appliance/src",
    "scaler_conformance": TREE / "conformance-tests/src",
    "scaler_protocol": TREE / "protocol-spec/python/src",
}

ARROWS = {
    ("scaler", "scaler_protocol"),
    ("scaler_appliance", "scaler_protocol"),
}

CORE = "scaler_appliance.core"
AGENT_CORE = "scaler.worker.agent.core"

ALLOW_LIST = "scaler_protocol.keys.allow_list"  # which the scheduler's core may ask

CORES = {
    CORE: (CORE, "scaler_protocol"),
    AGENT_CORE: ("scaler", "scaler_protocol"),
    ALLOW_LIST: ("scaler_protocol",),
}
"""What each core may import of ours."""

UI = "scaler_appliance.ui"
WEB_STACK = ("anyio", "click", "h11", "prometheus_client", "starlette", "uvicorn")
SCHEDULER = (CORE, "scaler_appliance.shell")

# Modules of the standard library that compute and do nothing else. One that is missing here is added without
# harm if it knows no clock, no randomness and no outside world.
PURE_MODULES = frozenset(
    {
        "__future__",
        "abc",
        "array",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",  # but for what reads the clock or the time zone: see CLOCK_METHODS
        "enum",
        "exceptiongroup",  # which shows notes on Pythons before 3.11
        "fractions",
        "functools",
        "graphlib",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "numbers",
        "operator",
        "re",
        "statistics",
        "string",
        "struct",
        "sys",
        "types",
        "typing",
    }
)

CLOCK_METHODS = frozenset({"now", "utcnow", "today", "fromtimestamp", "timestamp", "astimezone"})
"""Of datetime: they read the clock, or the time zone of the host."""


class Import(NamedTuple):
    importer: str
    imported: str  # for `from a import b`, `a.b` when that is a module of ours, else `a`
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


class Sources:
    """Modules by dotted name, each with its source text."""

    def __init__(self, texts: Dict[str, str]) -> None:
        self.trees = {name: ast.parse(text, name) for name, text in texts.items()}

    @classmethod
    def of_tree(cls) -> Sources:
        texts = {}
        for package, folder in PACKAGES.items():
            for path in sorted((folder / package).rglob("*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                texts[name] = path.read_text(encoding="utf-8")
        return cls(texts)

    def imports_of(self, module: str, is_run_alone: bool = False) -> Iterator[Import]:
        """Every import in a module, those inside functions and by name at run time too.

        Parameters:
            is_run_alone: only those that importing the module runs.
        """
        for node in _nodes_that_run(self.trees[module]) if is_run_alone else ast.walk(self.trees[module]):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(module, alias.name, node.lineno)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(module, node)
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    yield Import(module, whole if whole in self.trees else base, node.lineno)
            elif isinstance(node, ast.Call) and _called_name(node) in ("import_module", "__import__"):
                if node.args and isinstance(node.args[0], ast.Constant):
                    yield Import(module, str(node.args[0].value), node.lineno)

    def clock_methods_in(self, module: str) -> List[str]:
        """What a module that imports datetime may read the clock with."""
        return [
            f"{module}:{node.lineno} reads the clock or the time zone with {node.attr}()"
            for node in ast.walk(self.trees[module])
            if isinstance(node, ast.Attribute) and node.attr in CLOCK_METHODS
        ]

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = any(name.startswith(f"{module}.") for name in self.trees)
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])


def _nodes_that_run(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those in functions and those for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _nodes_that_run(node)


def _called_name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def package_of(module: str) -> str:
    return module.partition(".")[0]


def forbidden_arrows(sources: Sources) -> List[str]:
    return [
        str(found)
        for module in sources.trees
        for found in sources.imports_of(module)
        if package_of(found.imported) in PACKAGES
        and package_of(found.imported) != package_of(module)
        and (package_of(module), package_of(found.imported)) not in ARROWS
    ]


def is_in(module: str, parent: str) -> bool:
    return module == parent or module.startswith(f"{parent}.")


def is_in_any(module: str, parents: Iterable[str]) -> bool:
    return any(is_in(module, parent) for parent in parents)


def parents_of(module: str) -> List[str]:
    """Importing `a.b.c` runs `a` and `a.b` first."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def impurities_of_core(sources: Sources, core: str = CORE) -> List[str]:
    """What a core imports, by itself or through others of our modules, beyond pure modules."""
    found_impure = []
    to_visit = [(module, False) for module in sources.trees if is_in(module, core)]
    visited: Set[Tuple[str, bool]] = set()
    while to_visit:
        module, is_run_alone = to_visit.pop()
        if (module, is_run_alone) in visited or (module, False) in visited or module not in sources.trees:
            continue
        visited.add((module, is_run_alone))
        to_visit.extend((parent, True) for parent in parents_of(module))
        for found in sources.imports_of(module, is_run_alone):
            if package_of(found.imported) not in PACKAGES:
                if package_of(found.imported) not in PURE_MODULES:
                    found_impure.append(str(found))
                elif found.imported == "datetime":
                    found_impure += sources.clock_methods_in(module)
            elif is_in(module, core) and not is_in_any(found.imported, CORES[core]):
                found_impure.append(str(found))
            else:
                to_visit.append((found.imported, False))
    return found_impure


def web_outside_the_ui(sources: Sources) -> List[str]:
    return [
        str(found)
        for module in sources.trees
        if not is_in(module, UI)
        for found in sources.imports_of(module)
        if is_in_any(found.imported, (UI, *WEB_STACK))
    ]


def scheduler_in_the_ui(sources: Sources) -> List[str]:
    return [
        str(found)
        for module in sources.trees
        if is_in(module, UI)
        for found in sources.imports_of(module)
        if is_in_any(found.imported, SCHEDULER)
    ]


@pytest.fixture(scope="module")
def tree() -> Sources:
    return Sources.of_tree()


def test_all_four_packages_are_read(tree: Sources) -> None:
    assert {package_of(module) for module in tree.trees} == set(PACKAGES)
    for core in CORES:
        assert any(is_in(module, core) for module in tree.trees)


def test_packages_import_along_the_arrows_only(tree: Sources) -> None:
    assert forbidden_arrows(tree) == []


@pytest.mark.parametrize("core", CORES)
def test_cores_import_pure_modules_only(tree: Sources, core: str) -> None:
    assert impurities_of_core(tree, core) == []


def test_only_the_ui_imports_the_web_stack_and_no_other_module_the_ui(tree: Sources) -> None:
    assert any(found.imported.startswith("starlette") for found in tree.imports_of(f"{UI}.application"))
    assert web_outside_the_ui(tree) == []


def test_the_ui_imports_nothing_of_the_scheduler(tree: Sources) -> None:
    assert scheduler_in_the_ui(tree) == []


# The rules find violations.


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("scaler.cluster.combo", "import scaler_appliance"),
        ("scaler.cluster.combo", "from scaler_appliance.core import tasks"),
        ("scaler.cluster.combo", "def start():\n    import scaler_appliance.__main__"),
        ("scaler.cluster.combo", "import importlib\nimportlib.import_module('scaler_appliance')"),
        ("scaler.cluster.combo", "__import__('scaler_appliance')"),
        ("scaler_appliance.shell", "from scaler.client import Client"),
        ("scaler_protocol.wire.codec", "from scaler import payload"),
        ("scaler_conformance.cases", "from scaler_protocol import decode"),
    ],
)
def test_another_arrow_is_found(module: str, text: str) -> None:
    assert len(forbidden_arrows(Sources({module: text}))) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("scaler.client", "from scaler_protocol import messages"),
        ("scaler.client", "from .future import ScalerFuture\nfrom scaler import payload\nimport zmq"),
        ("scaler.cluster", "command = ['python', '-m', 'scaler_appliance']"),
        ("scaler_appliance.shell", "import scaler_protocol"),
        ("scaler_conformance.cases", "import capnp, scalerish"),
    ],
)
def test_an_allowed_arrow_is_not(module: str, text: str) -> None:
    assert forbidden_arrows(Sources({module: text})) == []


def core_with(text: str, **others: str) -> Sources:
    """A small tree whose core has one module with this text."""
    texts = {
        "scaler_appliance": "",
        "scaler_appliance.core": "",
        "scaler_appliance.core.tasks": text,
        "scaler_appliance.shell": "import zmq",
        "scaler_protocol": "from scaler_protocol.wire.codec import decode",
        "scaler_protocol.wire.codec": "import struct",
        "scaler_protocol.wire.messages": "import enum",
        "scaler_protocol.logs": "import logging",
    }
    texts.update({name.replace("__", "."): replaced for name, replaced in others.items()})
    return Sources(texts)


IMPURE_MODULES = [
    "asyncio",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
    "zmq",
]


@pytest.mark.parametrize("module", IMPURE_MODULES)
def test_a_clock_or_a_socket_in_the_core_is_found(module: str) -> None:
    found = impurities_of_core(core_with(f"import {module}"))

    assert found == [f"scaler_appliance.core.tasks:1 imports {module}"]


@pytest.mark.parametrize("method", ["datetime.now()", "datetime.now", "date.today()", "datetime(1, 1, 1).timestamp()"])
def test_the_clock_of_datetime_in_the_core_is_found_and_its_calendar_is_allowed(method: str) -> None:
    found = impurities_of_core(core_with(f"from datetime import date, datetime\nx = {method}"))
    assert {each.partition(" ")[0] for each in found} == {"scaler_appliance.core.tasks:2"}
    text = "from datetime import datetime, timedelta\nx = datetime(2027, 1, 1) + timedelta(1)"
    assert impurities_of_core(core_with(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from time import monotonic",
        "def now():\n    import time",
        "from .. import shell",
        "from ..shell import send",
        "from scaler_appliance import shell",
        "from scaler_protocol import logs",
        "from scaler_protocol.logs import log",
    ],
)
def test_a_way_around_is_found(text: str) -> None:
    assert len(impurities_of_core(core_with(text))) == 1


def test_an_impure_module_behind_the_messages_is_found() -> None:
    core = "from scaler_protocol.wire import codec, messages"

    assert impurities_of_core(core_with(core, scaler_protocol__wire__messages="import os")) == [
        "scaler_protocol.wire.messages:1 imports os"
    ]
    assert impurities_of_core(core_with(core, scaler_protocol__wire__codec="from scaler_protocol import logs")) == [
        "scaler_protocol.logs:1 imports logging"
    ]
    assert impurities_of_core(core_with("", scaler_appliance="import zmq")) == ["scaler_appliance:1 imports zmq"]


def agent_core_with(text: str) -> Sources:
    """A small tree whose agent core has one module with this text."""
    return Sources(
        {
            "scaler": "import sys\nif TYPE_CHECKING:\n    import zmq\ndef __getattr__(name):\n    import importlib",
            "scaler.worker.agent.core.tasks": text,
            "scaler.worker.frames": "import struct",
            "scaler.worker.frame_reader": "from scaler.worker import frames\nimport socket",
            "scaler.worker.lazy": "def connect():\n    import socket",
            "scaler_protocol": "",
        }
    )


@pytest.mark.parametrize(
    ("text", "impure"),
    [
        ("from scaler.worker import frames", []),
        ("import socket", ["scaler.worker.agent.core.tasks:1 imports socket"]),
        ("from scaler.worker.frame_reader import FrameReader", ["scaler.worker.frame_reader:2 imports socket"]),
        ("import scaler.worker.lazy", ["scaler.worker.lazy:2 imports socket"]),
        ("from scaler_appliance import core", ["scaler.worker.agent.core.tasks:1 imports scaler_appliance"]),
    ],
)
def test_what_the_agents_core_reaches_is_followed(text: str, impure: List[str]) -> None:
    assert impurities_of_core(agent_core_with(text), AGENT_CORE) == impure


@pytest.mark.parametrize(
    "text",
    [
        "from collections import deque\nfrom array import array",
        "from scaler_protocol import messages as m",
        "from scaler_protocol import PROTOCOL_MAJOR, encode_struct",
        "from scaler_protocol.wire.messages import Task",
        "import scaler_appliance.core.workers",
        "from . import workers",
        "from .workers import Worker",
    ],
)
def test_pure_imports_of_the_core_are_not(text: str) -> None:
    assert impurities_of_core(core_with(text, scaler_appliance__core__workers="")) == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("scaler_appliance.shell.server", "import uvicorn"),
        ("scaler_appliance.feed.status_feed", "def f():\n    from starlette.routing import Route"),
        ("scaler_appliance.__main__", "from scaler_appliance.ui.ui_program import main"),
        ("scaler.client", "import prometheus_client"),
    ],
)
def test_the_web_stack_elsewhere_is_found(module: str, text: str) -> None:
    assert len(web_outside_the_ui(Sources({module: text}))) == 1
    assert web_outside_the_ui(Sources({UI: text, f"{UI}.server": text})) == []


def test_the_scheduler_in_the_ui_is_found() -> None:
    texts = {
        f"{UI}.a": "from scaler_appliance.core.state import State",
        f"{UI}.b": "import scaler_appliance.shell.publishing.status_publisher",
        f"{UI}.c": "from scaler_appliance.feed.status_feed import Feed\nimport scaler_appliance",
        "scaler_appliance.other": "import scaler_appliance.core",
    }
    assert len(scheduler_in_the_ui(Sources(texts))) == 2
