"""A type checker sees a wrong argument of `submit`, and knows what comes out of a future."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

TREE = Path(__file__).resolve().parents[3]

PROLOGUE = """
from __future__ import annotations
import asyncio
from concurrent.futures import as_completed
from typing import Any, Iterator, List
from scaler import aio, Client, NamedFunction, ScalerFuture, Scheduler, task

def scale(value: int, factor: float = 1.0, *, offset: int = 0) -> float:
    return value * factor + offset

def measured(value: int, profiling: bool) -> str:
    return str(value)

@task
def plain(value: int, factor: float = 1.0) -> float:
    return value * factor

@task(retries=2, capabilities={"gpu": 1})
async def trained(value: int) -> str:
    return str(value)

class Room:
    @task
    def area(self, length: int) -> int:
        return length

client = Client("tcp://127.0.0.1:1")
view = client.options(retries=2, timeout=10, capabilities={"gpu": 1})
"""

GOOD = """
a: ScalerFuture[float] = client.submit(scale, 1)
b: float = client.submit(scale, 1, 2.0, offset=3).result()
c: float = view.submit(scale, 1, factor=2.0).result()
d: List[float] = client.map(scale, [1, 2])
e: List[float] = view.starmap(scale, [(1, 2.0)])
f: str = client.submit(lambda: "text").result()
g: float = client.submit(scale, 1, profiling=True).result()
h: str = client.submit(measured, 1, profiling=True).result()
i: int = client.submit(scale, 1, profiling=True).profiling_info().duration_us
j: float = client.submit_verbose(scale, (1,), {}, capabilities={"gpu": 1}).result()
k: ScalerFuture = client.submit(scale, 1)
m: bool = client.submit(scale, 1).cancel(force=False)
n: List[ScalerFuture[float]] = [client.submit(scale, number) for number in range(3)]
class Model:
    def __init__(self, name: str) -> None: ...
    def run(self, steps: int) -> bytes: return b""
q: ScalerFuture[float] = client.submit(scale, client.submit(measured, 1, True))
r: float = view.submit(scale, 1, client.submit(scale, 2), offset=1).result()
o: Model = client.submit(Model, "name").result()
p: bytes = client.submit(Model("name").run, 5).result()
async def main() -> float:
    return await client.submit(scale, 1)
async def later(value: int) -> str:
    return str(value)
s: str = client.submit(later, 1).result()
t: List[str] = client.map(later, [1, 2])
u: List[str] = view.starmap(later, [(1,)])
streamed: Iterator[float] = client.map(scale, [1, 2], buffersize=2)
unordered: Iterator[str] = client.imap_unordered(later, [1, 2])
completed: Iterator[ScalerFuture[float]] = client.as_completed([client.submit(scale, 1)])
v: float = next(as_completed([client.submit(scale, 1)])).result()
w: float = client.submit(scale, client.send_object(1), offset=2).result()
named = client.submit(NamedFunction("example.org/words"))
x: List[str] = named.result()
task_a: float = plain(1, 2.0)
task_b: ScalerFuture[float] = plain.submit(1, factor=2.0)
task_c: List[float] = plain.map([1, 2])
task_d: ScalerFuture[str] = trained.submit(plain.submit(1))
task_e: ScalerFuture[int] = Room().area.submit(3)
task_f: float = plain.options(priority=1).submit(2).result()
@client.task(timeout="5min")
def bound(value: int) -> bytes:
    return bytes(value)
task_g: bytes = bound.submit(1).result()
async def service(waiting: aio.Client) -> None:
    async_a: float = await waiting.submit(scale, 1)
    async_b: aio.TaskFuture[str] = waiting.submit(later, 1)
    async_c: List[float] = await waiting.map(scale, [1])
    async for async_d in waiting.map_stream(later, [1], buffersize=2):
        async_e: str = async_d
with Scheduler() as scheduler:
    y: str = scheduler.get_address()
"""

BAD = {
    "wrong_d: str = client.submit(scale, client.submit(scale, 1)).result()": "Incompatible types in assignment",
    'client.submit(scale, "one")': "incompatible type|No overload",
    "client.submit(scale)": "Missing|Too few|No overload",
    "client.submit(scale, 1, 2.0, 3)": "Too many|No overload",
    "client.submit(scale, 1, ofset=1)": "Unexpected keyword|No overload",
    "view.submit(scale, 1, offset='x')": "incompatible type|No overload",
    "wrong_h: aio.TaskFuture[str] = aio.Client().submit(scale, 1)": "Incompatible|incompatible|No overload",
    "aio.Client().submit(scale, 'x')": "incompatible type|No overload",
    "client.submit(5)": "incompatible type|No overload",
    "wrong_a: str = client.submit(scale, 1).result()": "Incompatible types in assignment",
    "wrong_b: ScalerFuture[str] = client.submit(scale, 1)": "Incompatible types|incompatible type|No overload",
    "wrong_c: List[str] = client.map(scale, [1])": "Incompatible|incompatible",
    "wrong_f: List[int] = client.map(later, [1])": "Incompatible|incompatible|No overload",
    "wrong_e: int = client.submit(later, 1).result()": "Incompatible|incompatible|No overload",
    "plain.submit('x')": "incompatible type|No overload",
    "trained.submit(1, 2)": "Too many|No overload",
    "Room().area.submit('x')": "incompatible type|No overload",
    "wrong_g: int = trained.submit(1).result()": "Incompatible|incompatible|No overload",
    "bound.submit(value='x')": "incompatible type|No overload",
    "task(retry=1)": "Unexpected keyword|No overload",
    "client.options(retry=1)": "Unexpected keyword",
    "client.options(timeout=[1])": "incompatible type|No overload",
}


def mypy(path: Path) -> List[str]:
    """The errors that mypy finds."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(TREE / "pyproject.toml"), "--no-warn-unused-configs"]
    done = subprocess.run([*command, str(path)], cwd=TREE, capture_output=True, text=True, timeout=100, check=False)
    assert not done.stderr, done.stderr
    return [line for line in done.stdout.splitlines() if ": error:" in line]


def test_pyright_accepts_what_is_right_and_names_each_line_that_is_wrong(tmp_path: Path) -> None:
    program = shutil.which("pyright") or shutil.which("pyright", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("no pyright here")
    path = tmp_path / "snippet.py"
    path.write_text(PROLOGUE + GOOD + "\n".join(BAD) + "\n")
    command = [program, "--pythonpath", sys.executable, str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    first_bad = (PROLOGUE + GOOD).count("\n") + 1
    named = {int(number) for number in re.findall(r"snippet.py:(\d+):\d+ - error", done.stdout)}
    assert named == set(range(first_bad, first_bad + len(BAD))), done.stdout + done.stderr


def test_mypy_accepts_what_is_right_and_names_each_line_that_is_wrong(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    path = tmp_path / "snippet.py"
    path.write_text(PROLOGUE + GOOD + "\n".join(BAD) + "\n")
    first_bad = (PROLOGUE + GOOD).count("\n") + 1
    errors = mypy(path)
    for number, (line, pattern) in enumerate(BAD.items(), first_bad):
        of_line = [error for error in errors if f"snippet.py:{number}:" in error]
        assert of_line, f"mypy does not mind: {line}"
        assert any(re.search(pattern, error) for error in of_line), of_line
        errors = [error for error in errors if error not in of_line]
    assert errors == []


def test_what_is_typed_costs_nothing_at_run_time() -> None:
    from scaler import ScalerFuture

    assert ScalerFuture[int] is ScalerFuture, "annotations that are evaluated work on every Python"
    code = "import sys, scaler.client; sys.exit('typing_extensions' in sys.modules)"
    if sys.version_info < (3, 11):
        code = f"import sys; sys.modules['exceptiongroup'] = None; {code}"  # which imports it, where it is installed
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_client_without_coroutines_imports_no_asyncio() -> None:
    """It takes a sixth of a client's start."""
    code = "import sys, scaler.client; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
