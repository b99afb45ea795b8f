"""Programs of the same user find the link to the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaler_protocol.host.discovery import FOLDER_VARIABLE, USER_INTERFACE, announced, link_to

MONITOR_ADDRESS = "ipc:///tmp/127.0.0.1_2345_monitor"
LINK = "http://127.0.0.1:8081/?token=secret"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "run"))
    return tmp_path / "run"


def test_the_link_is_found_by_what_is_watched_while_it_runs() -> None:
    with announced(USER_INTERFACE, MONITOR_ADDRESS, "no link is shown", url=LINK):
        assert link_to(MONITOR_ADDRESS) == LINK
        assert link_to("ipc:///other") == ""
    assert link_to(MONITOR_ADDRESS) == ""


def test_a_page_that_cannot_be_announced_works(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(mode=0o755)
    with announced(USER_INTERFACE, MONITOR_ADDRESS, "no link is shown", url=LINK):
        assert link_to(MONITOR_ADDRESS) == ""
    assert "no link is shown, it is not announced" in caplog.text
