"""`make reproducible` finds files that differ, and builds in two places that have as little as possible in common."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from packaged import TREE
from reproducible import LONG_AGO, clones, compare


def test_files_that_differ_are_named_with_the_place_and_those_of_one_build_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = {"a": b"12345", "b": b"12x45", "c": b"1234"}
    paths = {name: tmp_path / name for name in contents}
    for name, content in contents.items():
        paths[name].write_bytes(content)

    assert compare({"f": paths["a"]}, {"f": paths["a"]}) == []
    assert compare({"f": paths["a"]}, {"f": paths["b"]}) == ["f"]
    assert compare({"f": paths["a"]}, {"f": paths["c"]}) == ["f"]
    assert compare({"f": paths["a"]}, {"g": paths["a"]}) == ["f", "g"]
    same, place, length, *once = capsys.readouterr().out.splitlines()
    assert same.startswith("same     ") and same.endswith("  f")
    assert place == "DIFFERS  f: 5 and 5 bytes, first at 2"
    assert length == "DIFFERS  f: 5 and 4 bytes, first at 4"
    assert once == ["DIFFERS  f was built once only", "DIFFERS  g was built once only"]


def test_the_two_builds_differ_in_everything_that_must_not_matter(tmp_path: Path) -> None:
    one, two = clones(tmp_path)
    assert one.umask != two.umask and len(str(one.folder)) != len(str(two.folder))
    assert one.folder.parent != two.folder.parent, "each has a home of its own"
    assert one.variables.keys() == two.variables.keys()
    assert all(one.variables[name] != two.variables[name] for name in one.variables)
    if not (TREE / ".git").exists():
        pytest.skip("this tree is no repository to be cloned")
    two.make()
    assert (two.folder / "Makefile").stat().st_mtime == LONG_AGO


def test_a_form_that_is_unknown_is_an_error_that_names_the_known_ones() -> None:
    script = str(TREE / "packaging/reproducible.py")
    finished = subprocess.run([sys.executable, script, "rpm"], capture_output=True, text=True)
    assert finished.returncode == 2
    assert "there is no form rpm; there are wheels, pex, pypy, pypy-aarch64, nuitka" in finished.stderr
