"""packaging/previous.py builds the file of an earlier release from its tag, and leaves this tree alone."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "packaging/previous.py"
MAKEFILE = "dist-pypy:\n\tmkdir -p dist/pypy && cp release dist/pypy/scaler_scheduler && echo built >> ../../builds\n"


def git(tree: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(tree), *who, *arguments], check=True, capture_output=True)


def commit(tree: Path, release: str) -> None:
    (tree / "Makefile").write_text(MAKEFILE)
    (tree / "release").write_text(release)
    git(tree, "add", "Makefile", "release")
    git(tree, "commit", "--message", release)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of two commits."""
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "first")
    commit(tmp_path, "second")
    return tmp_path


@pytest.fixture
def previous(tree: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    found = importlib.util.spec_from_file_location("previous", PROGRAM)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    monkeypatch.setattr(module, "TREE", tree)
    return module


def test_the_newest_tag_before_this_commit_is_built_once(previous: ModuleType, tree: Path) -> None:
    git(tree, "tag", "v1.0", "HEAD^")
    git(tree, "tag", "v1.1")  # this release itself
    (tree / "release").write_text("not committed")
    assert previous.main([]) == 0
    assert (tree / "dist/previous/scaler_scheduler").read_text() == "first"
    assert (tree / "dist/previous/TAG").read_text().startswith("v1.0 ")
    assert previous.main([]) == 0
    assert (tree / "builds").read_text() == "built\n"
    assert not (tree / "build/previous").exists() and (tree / "release").read_text() == "not committed"


def test_any_commit_can_be_built_instead(previous: ModuleType, tree: Path) -> None:
    git(tree, "tag", "v1.0", "HEAD^")
    assert previous.main([]) == 0
    assert previous.main(["HEAD"]) == 0
    assert (tree / "dist/previous/scaler_scheduler").read_text() == "second"


def test_without_a_release_there_is_nothing_to_build(
    previous: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert previous.main([]) == 0
    assert "no earlier release tag" in capsys.readouterr().out and not (tree / "dist").exists()


def test_a_tag_that_does_not_exist_or_cannot_be_built_is_an_error(
    previous: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert previous.main(["v9"]) == 1
    assert "v9 cannot be built" in capsys.readouterr().err
    (tree / "Makefile").write_text("dist-pypy:\n\tfalse\n")
    git(tree, "commit", "--all", "--message", "broken")
    assert previous.main(["HEAD"]) == 1
    assert not (tree / "build/previous").exists()
