"""scaler_top and scaler_ui without an address watch the scheduler of the same user on the same host."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaler_appliance.top.options import find_monitor
from scaler_appliance.ui.finding import NotFoundError, announced, find_monitor_address
from scaler_protocol.discovery import SCHEDULER, Announcement, link_to

ADDRESS = "tcp://127.0.0.1:2345"
MONITOR_ADDRESS = "ipc:///tmp/127.0.0.1_2345_monitor"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    return tmp_path / "run"


def test_a_scheduler_on_this_host_is_found() -> None:
    with Announcement(SCHEDULER, ADDRESS, monitor_address=MONITOR_ADDRESS):
        assert find_monitor_address() == MONITOR_ADDRESS
        assert find_monitor({}) == (MONITOR_ADDRESS, "found on this host")


def test_the_one_in_the_same_file_goes_before() -> None:
    with Announcement(SCHEDULER, ADDRESS, monitor_address=MONITOR_ADDRESS):
        found = find_monitor({"scheduler": [{"address": "tcp://127.0.0.1:1"}]})
        assert found == ("ipc:///tmp/127.0.0.1_1_monitor", "[scheduler] address")


def test_none_is_said() -> None:
    assert find_monitor({}) is None
    with pytest.raises(NotFoundError, match="start one, or give the monitor address"):
        find_monitor_address()


def test_the_link_to_the_user_interface_is_found_while_it_runs() -> None:
    with announced(MONITOR_ADDRESS, "http://127.0.0.1:8081/?token=secret"):
        assert link_to(MONITOR_ADDRESS) == "http://127.0.0.1:8081/?token=secret"
    assert link_to(MONITOR_ADDRESS) == ""


def test_a_user_interface_that_cannot_be_found_works(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(mode=0o755)
    with announced(MONITOR_ADDRESS, "http://127.0.0.1:8081/"):
        pass
    assert "others may look into it" in caplog.text
