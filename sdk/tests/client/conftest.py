"""What the client's tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _played_schedulers_have_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALER_INSECURE", "1")
