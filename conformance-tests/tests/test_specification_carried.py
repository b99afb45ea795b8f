"""The copy of the specification in the suite is up to date."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Dict

import pytest

from scaler_conformance.judging.register import SPECIFICATION, Register

TREE = Path(__file__).resolve().parents[2]
WANTED = {
    path.relative_to(TREE / "protocol-spec").as_posix(): path.read_bytes()
    for path in (*(TREE / "protocol-spec/schema").glob("*.capnp"), TREE / "protocol-spec/requirements.toml")
}
VECTORS = {f"invalid/{path.name}": path.read_bytes() for path in (TREE / "protocol-spec/vectors/invalid").iterdir()}
WANTED.update(VECTORS)


def carried(names: Dict[str, bytes]) -> Dict[str, bytes]:
    """Those within the folder `specification`, by their names in it."""
    return {
        name.partition("/specification/")[2]: content for name, content in names.items() if "/specification/" in name
    }


def test_the_tree_has_links() -> None:
    files = [path for path in SPECIFICATION.rglob("*") if path.is_file()]
    files += [
        path for folder in ("schema", "invalid") for path in (SPECIFICATION / folder).glob("*")
    ]  # older Pythons do not follow the link

    assert {path.relative_to(SPECIFICATION).as_posix(): path.read_bytes() for path in files} == WANTED


def test_the_register_can_be_read() -> None:
    assert len(Register.load().of_role("worker")) > 50


@pytest.mark.slow
def test_archive_and_wheel_have_copies(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*command, str(TREE / "conformance-tests")], check=True, capture_output=True, timeout=100)

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert carried({name: archive.read(name) for name in archive.namelist()}) == WANTED
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as tar:
        contents = {member.name: tar.extractfile(member) for member in tar.getmembers() if member.isfile()}
        assert carried({name: file.read() for name, file in contents.items() if file is not None}) == WANTED
