"""What a process knows of the local modules that it has imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from scaler.values.source_versions import SourceVersions


def test_nothing_is_kept_of_modules_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    known = SourceVersions()
    known.start()
    for number in range(5):
        name = f"passing_{number}"
        file = tmp_path / f"{name}.py"
        file.write_text("def word(): return 1")
        importlib.invalidate_caches()
        importlib.import_module(name)
        known.refresh()
        assert known.named_in(name.encode()) == {name} and str(file) in known._words
        del sys.modules[name]
        known.pending.append(name)
        known.refresh()
        assert str(file) not in known._words and known.get(name) is None
