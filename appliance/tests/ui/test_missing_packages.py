"""Without the packages of their extras, scaler_ui and scaler_top say what to install."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from typing import Any, Optional

import pytest

from scaler_appliance.top.screen import MissingTerminalPackageError, Screen
from scaler_appliance.ui.ui_program import main

ADDRESS = "tcp://127.0.0.1:9"


def test_scaler_ui_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    find = importlib.util.find_spec

    def without_starlette(name: str, *arguments: Any) -> Optional[ModuleSpec]:
        return None if name in ("starlette", "uvicorn") else find(name, *arguments)

    monkeypatch.setattr(importlib.util, "find_spec", without_starlette)
    assert main([ADDRESS]) == 1
    error = capsys.readouterr().err
    assert error == "scaler_ui: starlette and uvicorn not installed: pip install 'scaler-appliance[ui]'\n"


def test_scaler_top_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blessed", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "reconfigure", lambda errors: None, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(MissingTerminalPackageError, match=r"pip install 'scaler-appliance\[top\]'"):
        Screen()
