"""Modules in one file: imported as from a folder, here by CPython, and by PyPy in the tests of the single file."""

from __future__ import annotations

import marshal
import subprocess
import sys
from pathlib import Path
from typing import List, Tuple

import pytest

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "packaging/pypy"))

from scaler_module_archive import MARSHAL_VERSION, ModuleArchive, archived  # noqa: E402

SOURCES = {
    "plain.py": "NAME = __name__\n",
    "whole/__init__.py": "from whole import part\nfrom whole.inner.deepest import fail\n",
    "whole/part.py": "import os\nDATA = open(os.path.join(os.path.dirname(__file__), 'data.txt')).read()\n",
    "whole/inner/__init__.py": "",
    "whole/inner/deepest.py": "def fail():\n    raise ValueError('here')  # a line to be seen\n",
}


def modules() -> List[Tuple[str, bytes, bytes]]:
    return [
        (path, marshal.dumps(compile(source, path, "exec"), MARSHAL_VERSION), source.encode())
        for path, source in SOURCES.items()
    ]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "modules").write_bytes(archived(modules()))
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole/data.txt").write_text("data")
    return tmp_path / "modules"


def run(archive: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program that imports from the archive before it imports anything else."""
    begin = f"import sys; sys.path.insert(0, {str(TREE / 'packaging/pypy')!r}); import scaler_module_archive; "
    begin += f"scaler_module_archive.import_from({str(archive)!r}, {str(archive.parent)!r}); "
    return subprocess.run([sys.executable, "-IBS", "-c", begin + program], capture_output=True, text=True)


def test_modules_and_packages_are_imported_and_find_what_lies_beside_them(archive: Path) -> None:
    (archive.parent / "whole/loose.py").write_text("NAME = 'in a file'\n")
    program = "import plain, whole, whole.loose; print(plain.NAME, whole.part.DATA, whole.loose.NAME, whole.__path__)"
    finished = run(archive, program)
    assert finished.stdout == f"plain data in a file ['{archive.parent}/whole']\n", finished.stderr


def test_a_traceback_shows_lines_of_the_source(archive: Path) -> None:
    program = "from whole.inner import deepest\ntry:\n    deepest.fail()\nexcept ValueError:\n    import traceback\n"
    finished = run(archive, f"exec({program + '    traceback.print_exc()'!r})")
    line = f"  File \"{archive.parent}/whole/inner/deepest.py\", line 2, in fail\n    raise ValueError('here')"
    assert line in finished.stderr and "a line to be seen" in finished.stderr


def test_what_is_not_in_it_is_looked_for_elsewhere(archive: Path) -> None:
    assert run(archive, "import json; print(json.dumps(1))").stdout == "1\n"
    assert "No module named 'nowhere'" in run(archive, "import nowhere").stderr


def test_a_module_without_its_source_says_that_it_has_none(tmp_path: Path) -> None:
    [first, *_] = modules()
    (tmp_path / "modules").write_bytes(archived([(first[0], first[1], b"")]))
    archive = ModuleArchive(str(tmp_path / "modules"), str(tmp_path))
    assert archive.get_source("plain") is None and not archive.is_package("plain")
    with pytest.raises(ImportError) as caught:
        archive.get_source("nowhere")
    assert caught.value.name == "nowhere"


@pytest.mark.parametrize("size", [0, 7, 8, 20])
def test_what_is_no_archive_is_an_import_error(archive: Path, size: int) -> None:
    archive.write_bytes(archive.read_bytes()[:size])
    with pytest.raises(ImportError) as caught:
        ModuleArchive(str(archive), "")
    assert caught.value.name == "modules"


def test_a_module_that_was_cut_off_or_changed_is_an_import_error_that_names_it(archive: Path) -> None:
    content = archive.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    for damaged in (content[: size + 5], content[:size] + b"\xff" * len(content[size:])):
        archive.write_bytes(damaged)
        with pytest.raises(ImportError) as caught:
            ModuleArchive(str(archive), "").get_code("plain")
        assert caught.value.name == "plain" and "damaged" in str(caught.value)
