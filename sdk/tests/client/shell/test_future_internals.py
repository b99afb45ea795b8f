"""What `concurrent.futures` makes of our futures, whose private fields are set by us, on every Python that is here."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, as_completed, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import scaler
import scaler_protocol
from scaler import ScalerFuture
from scaler.client.graph_submission import GraphFuture
from scaler.client.shell.future_internals import NAMES_WITH_A_PLACE
from scaler.client.shell.settling import Settling

TIMEOUT_SECONDS = 30.0
SOURCES = [str(Path(str(package.__file__)).parents[1]) for package in (scaler, scaler_protocol)]
CHECKS = Path(__file__).with_name("standard_library_checks.py")
PRIVATE_FIELDS = {"_state", "_result", "_exception", "_waiters", "_done_callbacks", "_condition"}
OWNER = "client/shell/future_internals.py"


def interpreters() -> Dict[str, str]:
    """Every supported Python that is here, by its version, and PyPy."""
    found = {"{}.{}".format(*sys.version_info[:2]): sys.executable}
    for path in Path.home().glob(".pyenv/versions/3.*/bin/python3.*"):
        version = re.fullmatch(r"python3\.(\d+)", path.name)
        if version and int(version[1]) >= 9:
            found.setdefault(f"3.{version[1]}", str(path))
    pypy = shutil.which("pypy3")
    if pypy is not None:
        found["pypy"] = pypy
    return found


@pytest.mark.parametrize("interpreter", interpreters().values(), ids=interpreters())
def test_the_standard_library_is_as_we_rely_on_it(interpreter: str) -> None:
    checks = re.findall(r"^def (check_\w+)", CHECKS.read_text(encoding="utf-8"), re.MULTILINE)
    command = [interpreter, str(CHECKS), *SOURCES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", checks)


def uses_of_private_fields(text: str) -> Iterator[str]:
    """Where a module touches private parts of `concurrent.futures`; other objects may have fields of these names."""
    tree = ast.parse(text)
    is_of_a_future = {
        id(node): "Future" in kind.name
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef)
        for node in ast.walk(kind)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "concurrent.futures._base":
            yield f"line {node.lineno}: concurrent.futures._base"
        elif isinstance(node, ast.Attribute) and node.attr in PRIVATE_FIELDS:
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not is_own or is_of_a_future.get(id(node)):
                yield f"line {node.lineno}: {node.attr}"


def test_one_module_touches_the_private_fields() -> None:
    package = Path(SOURCES[0], "scaler")
    users = {
        path.relative_to(package).as_posix(): list(uses_of_private_fields(path.read_text(encoding="utf-8")))
        for path in package.rglob("*.py")
    }
    assert {name for name, uses in users.items() if uses} == {OWNER}, users


@pytest.mark.parametrize(
    "text",
    [
        "future._state = 1",
        "from concurrent.futures._base import FINISHED",
        "class AFuture:\n    def load(self):\n        self._result = 1",
    ],
)
def test_a_use_of_private_fields_is_found(text: str) -> None:
    assert len(list(uses_of_private_fields(text))) == 1


SET_BEFORE_IT_IS_SUBMITTED = {"_context", "_named", "_keys", "_functions", "_position"}


def names_without_a_place(text: str) -> Iterator[str]:
    """Where a module sets an attribute of a future for which its class has no place."""
    fields = {name for kind in GraphFuture.__mro__ for name in (*vars(kind), *vars(kind).get("__annotations__", ()))}
    fields = {name for name in fields if name.startswith("_")} - {*NAMES_WITH_A_PLACE, *SET_BEFORE_IT_IS_SUBMITTED}
    tree = ast.parse(text)
    of_others = {
        id(node)
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef) and kind.name not in {each.__name__ for each in GraphFuture.__mro__}
        for node in ast.walk(kind)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in fields:
            if id(node) not in of_others:
                yield f"line {node.lineno}: {node.attr}"


def test_what_is_set_after_a_future_was_submitted_has_a_place() -> None:
    package = Path(SOURCES[0], "scaler/client")
    found = {str(path): list(names_without_a_place(path.read_text(encoding="utf-8"))) for path in package.rglob("*.py")}
    assert not any(found.values()), found


@pytest.mark.parametrize(
    "text", ["future._stack = ''", "class ScalerFuture:\n    def f(self):\n        self._cause = 1"]
)
def test_a_name_without_a_place_is_found(text: str) -> None:
    assert len(list(names_without_a_place(text))) == 1


def futures_of(count: int) -> Tuple[Settling, List[ScalerFuture[Any]]]:
    settling = Settling()
    client: Any = SimpleNamespace(_shell=SimpleNamespace(condition=settling.condition, serializer=None))
    return settling, [ScalerFuture(client) for _ in range(count)]


def test_one_that_waits_for_all_is_woken_once_by_each() -> None:
    settling, futures = futures_of(3)
    done: List[Any] = []
    waiting = threading.Thread(target=lambda: done.append(wait(futures, TIMEOUT_SECONDS, ALL_COMPLETED)))
    settling.cancelled(futures[:1])
    settling.notify()
    waiting.start()
    for future in futures[1:]:
        settling.failed([future], ValueError("broken"))
        settling.notify()
        settling.cancelled([future])  # which comes too late
        settling.notify()
    waiting.join(TIMEOUT_SECONDS)
    assert done[0].done == set(futures)
    assert [future.cancelled() for future in futures] == [True, False, False]


def test_one_that_waits_for_a_failure_is_woken_by_it() -> None:
    settling, futures = futures_of(2)
    settling.failed(futures[:1], ValueError("broken"))
    settling.notify()
    assert wait(futures, TIMEOUT_SECONDS, FIRST_EXCEPTION).done == {futures[0]}
    with pytest.raises(ValueError, match="broken"):
        futures[0].result()


def test_futures_come_as_they_are_completed() -> None:
    settling, futures = futures_of(3)
    settling.cancelled(futures[2:])
    settling.notify()
    completed = as_completed(futures, TIMEOUT_SECONDS)
    assert next(completed) is futures[2]
    settling.cancelled(futures[:1])
    settling.notify()
    assert next(completed) is futures[0]
    settling.cancelled(futures[1:])
    settling.notify()
    assert list(completed) == futures[1:2]


def test_callbacks_run_once_each() -> None:
    settling, (future,) = futures_of(1)
    called = [threading.Event(), threading.Event()]
    future.add_done_callback(lambda _: called[0].set())
    settling.cancelled([future])
    settling.notify()
    future.add_done_callback(lambda _: called[1].set())
    assert all(each.wait(TIMEOUT_SECONDS) for each in called)
    settling.close()
