"""What a processor remembers of the code of clients."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scaler.values.code_notes import CodeNote
from scaler.worker.processor import imported_code


def test_clients_are_told_once_of_each_version_and_few_versions_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = SimpleNamespace(digest="here", path=__file__)
    versions = SimpleNamespace(
        start=lambda: None, refresh=lambda: None, get=lambda name: here, named_in=lambda content: {"shapes"}
    )
    monkeypatch.setattr(imported_code, "versions", versions)
    monkeypatch.setattr(imported_code, "MAXIMUM_TOLD", 3)
    code = imported_code.ImportedCode()
    for version in range(20):
        note = CodeNote(modules={"shapes": f"version {version}"})
        assert [len(code.after_loading(note, b"")) for _ in range(2)] == [1, 0]
        assert len(code._told) <= 3
