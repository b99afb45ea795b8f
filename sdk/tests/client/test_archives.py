"""What a client packs for its workers: which files, under which digest, and when they are read again."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
import zipfile
from pathlib import Path
from typing import Iterator, List

import pytest

from scaler.client import archives
from scaler.client.archives import Archive, CodeSource, Uploadable
from scaler.exceptions import ModuleUploadError


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "first/pack"
    (folder / "inner").mkdir(parents=True)
    for name in ("__init__.py", "module.py", "inner/__init__.py", "inner/data.json"):
        (folder / name).write_text(f"# {name}\n")
    return folder


def names_in(archive: Archive) -> List[str]:
    return zipfile.ZipFile(io.BytesIO(archive.content)).namelist()


PACKED = ["pack/__init__.py", "pack/inner/__init__.py", "pack/inner/data.json", "pack/module.py"]


def test_a_package_is_packed_whole_under_its_name_from_wherever_it_is_named(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(package.parent))
    module = importlib.import_module("pack.module")
    everywhere: List[Uploadable] = [
        package,
        str(package),
        package / "inner",
        package / "module.py",
        "pack",
        "pack.module",
    ]
    for upload in [*everywhere, module]:
        archive = CodeSource(upload).archive
        assert (names_in(archive), archive.top_names) == (PACKED, ("pack",))


def test_of_a_folder_that_is_no_package_the_content_is_packed(package: Path) -> None:
    (package.parent / "alone.py").touch()

    archive = CodeSource(package.parent).archive

    assert names_in(archive) == ["alone.py", *PACKED]
    assert archive.top_names == ("alone", "pack")
    assert names_in(CodeSource(package.parent / "alone.py").archive) == ["alone.py"]


def test_namespace_packages_are_packed_from_all_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("one", "two"):
        (tmp_path / part / "namespace_pack").mkdir(parents=True)
        (tmp_path / part / f"namespace_pack/{part}.py").touch()
        monkeypatch.syspath_prepend(str(tmp_path / part))

    assert names_in(CodeSource("namespace_pack").archive) == ["namespace_pack/one.py", "namespace_pack/two.py"]


@pytest.mark.parametrize(
    "left_out",
    ["__pycache__/module.cpython-311.pyc", "old.pyc", ".git/HEAD", ".hidden", "node_modules/x.js", "venv/lib/site.py"],
)
def test_what_is_no_source_is_left_out(package: Path, left_out: str) -> None:
    before = CodeSource(package).archive
    file = package / left_out
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    if left_out.startswith("venv"):
        (package / "venv/pyvenv.cfg").touch()

    assert CodeSource(package).archive == before


def test_a_folder_that_leads_into_itself_is_packed_once(package: Path) -> None:
    os.symlink(package, package / "inner/again")
    assert names_in(CodeSource(package).archive) == PACKED


def test_equal_code_has_one_digest_wherever_and_whenever_it_is(package: Path, tmp_path: Path) -> None:
    copy = tmp_path / "second/pack"
    shutil.copytree(package, copy)
    os.utime(copy / "module.py", (1, 1))

    assert CodeSource(copy).archive.digest == CodeSource(package).archive.digest
    (copy / "module.py").rename(copy / "other.py")
    assert CodeSource(copy).archive.digest != CodeSource(package).archive.digest


def test_a_change_is_seen_that_leaves_size_and_time_alone(package: Path) -> None:
    file = package / "module.py"
    source = CodeSource(package)
    time_ns = file.stat().st_mtime_ns

    file.write_text("# MODULE.py\n")
    os.utime(file, ns=(time_ns, time_ns))

    assert source.look()


def test_files_are_not_read_again_while_nothing_changes(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in package.rglob("*"):
        os.utime(file, (1, 1))
    source = CodeSource(package)
    monkeypatch.setattr(source, "_pack", lambda listing: pytest.fail("was read again"))

    assert not source.look()


def test_a_file_that_is_replaced_while_it_is_read_is_read_in_its_place(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = CodeSource(package)
    (package / "inner/data.json").write_text("new")
    listing = source._list()
    listings = iter([[*listing[:-1], listing[-1]._replace(path=str(package / "gone"))], listing])
    monkeypatch.setattr(source, "_list", lambda: next(listings))

    assert source.look()


@pytest.mark.parametrize("gone", ["module.py.new", "new_folder"])
def test_what_is_deleted_while_files_are_looked_for_is_left_out(
    package: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """As editors do that write beside the file which they replace."""
    before = CodeSource(package).archive
    deleted = package / gone
    deleted.mkdir() if gone == "new_folder" else deleted.write_text("new")
    scan = os.scandir

    @contextlib.contextmanager
    def scan_and_delete(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scan(folder) as entries:
            found = list(entries)
        if deleted.exists():
            deleted.rmdir() if gone == "new_folder" else deleted.unlink()
        yield iter(found)

    monkeypatch.setattr(os, "scandir", scan_and_delete)

    source = CodeSource(package)

    assert not deleted.exists()
    assert source.archive == before


def test_size_is_limited_before_files_are_read(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAXIMUM_BYTES", 1 << 20)
    with open(package / "inner/huge.bin", "wb") as file:
        file.truncate((1 << 20) + 1)

    with pytest.raises(ModuleUploadError, match=r"more than 10000 files or 1 MiB, most of them in 'inner'"):
        CodeSource(package)
