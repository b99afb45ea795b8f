"""Tracebacks of what was typed in a notebook or at a prompt show its source lines."""

from __future__ import annotations

import inspect
import linecache
from pathlib import Path
from typing import Any, Dict

import pytest

from scaler import Client
from scaler.values import cell_sources
from scaler.values.cell_sources import MAXIMUM_LINES, Source, register, source_of
from scaler.values.pickling import _reduce_code

TIMEOUT_SECONDS = 30.0
CELL = '''"""A cell."""
def helper(x):
    # a comment
    return 1 / x

class Reader:
    def read(self, x):
        return helper(x)

def run(x):
    return [Reader().read(number) for number in range(x, -1, -1)]
'''


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    monkeypatch.setattr(cell_sources, "_registered", {})


def run_cell(source: str, name: str, seconds: Any = None) -> Dict[str, Any]:
    """As notebooks run a cell: its lines are in `linecache`, and in no file."""
    linecache.cache[name] = (len(source), seconds, source.splitlines(keepends=True), name)
    namespace: Dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), namespace)
    return namespace


def code_of(source: str, name: str) -> Any:
    return run_cell(source, name)["run"].__code__


@pytest.mark.parametrize(
    ("name", "seconds"), [("/tmp/ipykernel_1/2.py", None), ("<ipython-input-3-4>", 5.0), ("<python-input-0>", None)]
)
def test_the_traceback_shows_every_line_of_the_cell_that_ran(any_client: Client, name: str, seconds: Any) -> None:
    run = run_cell(CELL, name, seconds)["run"]
    for raise_it in (lambda: any_client.submit(run, 2).result(TIMEOUT_SECONDS), lambda: any_client.map(run, [2])):
        with pytest.raises(ZeroDivisionError) as raised:
            raise_it()
        text = str(raised.value.__cause__)
        assert f'File "{name}", line 11, in run\n    return [Reader().read(number)' in text
        assert "line 8, in read\n    return helper(x)" in text and "line 4, in helper\n    return 1 / x" in text
    assert any_client.submit(inspect.getsource, run).result(TIMEOUT_SECONDS) == CELL[CELL.index("def run") :]


def test_cells_of_one_name_do_not_take_each_others_lines(any_client: Client) -> None:
    """All prompts call their first input by one name."""
    name = "<python-input-5>"
    cells = [f"def run(x):\n    marker = {number}\n    return {number} / x\n" for number in range(3)]
    functions = [run_cell(cell, name)["run"] for cell in cells]
    for cell, function in zip(cells, functions):
        linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        for _ in range(4):  # on all processors
            error = any_client.submit(function, 0).exception(TIMEOUT_SECONDS)
            assert error is not None and cell.splitlines()[-1] in str(error.__cause__)


def test_only_the_lines_of_a_function_are_sent_and_no_more_than_a_limit() -> None:
    source = source_of(code_of(CELL, "<cell>"))
    assert source == Source(10, CELL.splitlines(keepends=True)[9:])
    long = "def run(x):\n" + "    x += 1\n" * (2 * MAXIMUM_LINES)
    source = source_of(code_of(long, "<long>"))
    assert source is not None and len(source.lines) == MAXIMUM_LINES


def test_code_keeps_the_name_of_its_file_and_its_lines() -> None:
    """Tracebacks of tasks name it, and show the line if the worker has the file too."""
    code = compile("def run(x):\n    return 1 / x\n", "/somewhere/script.py", "exec").co_consts[0]
    make, arguments = _reduce_code(code)
    assert make(*arguments) == code and make(*arguments).co_filename == "/somewhere/script.py"


def test_code_from_files_and_unknown_code_has_no_lines(tmp_path: Path) -> None:
    linecache.getlines(__file__)
    assert source_of(test_code_from_files_and_unknown_code_has_no_lines.__code__) is None
    assert source_of(compile("1", "<unknown>", "exec")) is None
    assert _reduce_code(compile("1", "<unknown>", "exec"))[0].__name__ == "make_code"


def test_where_there_is_a_file_of_that_name_it_counts(tmp_path: Path) -> None:
    file = tmp_path / "cell.py"
    file.write_text("of the file\n")
    assert register(str(file), Source(1, ["of the cell\n"])) == str(file)
    assert linecache.getline(str(file), 1) == "of the file\n"


def test_lines_of_one_cell_come_together_and_others_get_another_name() -> None:
    assert register("<cell>", Source(3, ["three\n"])) == "<cell>"
    assert register("<cell>", Source(1, ["one\n", "two\n"])) == "<cell>"
    assert register("<cell>", Source(1, ["one\n", "two\n", "three\n"])) == "<cell>"
    assert register("<cell>", Source(2, ["other\n"])) == "<cell> (2)"
    linecache.checkcache()
    assert linecache.getlines("<cell>") == ["one\n", "two\n", "three\n"]
    assert linecache.getlines("<cell> (2)") == ["\n", "other\n"]


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_sources, "MAXIMUM_CELLS", 3)
    for number in range(10):
        register(f"<cell {number}>", Source(1, [f"{number}\n"]))
    assert sorted(name for name in linecache.cache if name.startswith("<cell ")) == ["<cell 7>", "<cell 8>", "<cell 9>"]


def test_a_prompt_that_keeps_lines_by_code_object_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of Python 3.13, and its `-c`."""
    code = compile("x = 1\ny = 2\n", "<string>", "exec")
    monkeypatch.setattr(cell_sources, "_lines_of_code", {code: ["x = 1\n", "y = 2\n"]}.get)
    assert source_of(code) == Source(1, ["x = 1\n", "y = 2\n"])
