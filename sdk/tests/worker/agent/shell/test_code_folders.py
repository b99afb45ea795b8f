"""Archives of clients' code are unpacked to folders, and checked on the way."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Dict, Tuple

import pytest

from scaler.values.code_notes import add_to_digest
from scaler.worker.agent.shell.code_folders import CodeError, unpack


def packed(files: Dict[str, bytes]) -> Tuple[str, bytes]:
    """Digest and content of an archive."""
    digest = hashlib.blake2b(digest_size=16)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            add_to_digest(digest, name, content)
            archive.writestr(name, content)
    return digest.hexdigest(), stream.getvalue()


def damaged() -> bytes:
    """An archive in which something is compressed in a way that there is not."""
    _, content = packed({"a.py": b"content"})
    central = content.index(b"PK\x01\x02")
    return content[: central + 10] + b"\x63\x00" + content[central + 12 :]


def test_an_archive_is_unpacked_with_its_folders(tmp_path: Path) -> None:
    digest, content = packed({"a.py": b"A", "pack/deep/b.txt": b"B"})
    unpack(content, digest, str(tmp_path / "folder"))

    assert (tmp_path / "folder/a.py").read_bytes() == b"A"
    assert (tmp_path / "folder/pack/deep/b.txt").read_bytes() == b"B"
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("name", ["../escaped.py", "/tmp/escaped.py", "a/../../escaped.py"])
def test_no_file_of_an_archive_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    digest, content = packed({name: b""})
    with pytest.raises(CodeError, match="leads out of its folder"):
        unpack(content, digest, str(tmp_path / "inner/folder"))
    assert not list(tmp_path.rglob("escaped.py"))
    assert not list((tmp_path / "inner").iterdir())


@pytest.mark.parametrize(
    "content",
    [b"", b"no zip file", damaged(), packed({"a.py": b"x"})[1][:-30]],
    ids=["empty", "no zip file", "damaged", "cut off"],
)
def test_an_invalid_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(CodeError, match="not a valid archive"):
        unpack(content, "digest", str(tmp_path / "folder"))
    assert not list(tmp_path.iterdir())


def test_code_under_the_digest_of_other_code_is_refused(tmp_path: Path) -> None:
    _, content = packed({"a.py": b"mine"})
    digest, _ = packed({"a.py": b"yours"})
    with pytest.raises(CodeError, match="does not match its digest"):
        unpack(content, digest, str(tmp_path / "folder"))
    assert not list(tmp_path.iterdir())
