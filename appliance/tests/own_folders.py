"""Folders for keys, and for what schedulers announce, that a test has for itself."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setenv("SCALER_KEY_DIRECTORY", str(tmp_path / "keys"))
