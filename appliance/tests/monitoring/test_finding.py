"""Whom a monitor watches without an address: the scheduler of its file, else one on this host."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaler_appliance.monitoring.finding import find_monitor
from scaler_protocol.discovery import FOLDER_VARIABLE, SCHEDULER, Announcement
from scaler_protocol.program_options import ConfigurationError


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a host without schedulers."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "run"))


def found(**scheduler: object) -> str:
    address = find_monitor({"scheduler": [scheduler]})
    assert address is not None
    return address[0]


def test_the_file_says_it_or_where_the_scheduler_listens() -> None:
    assert found(address="tcp://127.0.0.1:80") == "ipc:///tmp/127.0.0.1_80_monitor"
    assert found(address="ipc:///tmp/s") == "ipc:///tmp/s_monitor"
    assert found(address="tcp://127.0.0.1:80", monitor_address="ipc:///m") == "ipc:///m"
    assert found(**{"address": "tcp://127.0.0.1:80", "monitor-address": "ipc:///m"}) == "ipc:///m"


@pytest.mark.parametrize("scheduler", [{}, {"address": "tcp://127.0.0.1:0"}, {"address": 5}, {"address": "nowhere"}])
def test_a_file_that_does_not_say_it_leaves_the_scheduler_of_this_host(scheduler: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="which scheduler"):
        found(**scheduler)
    with Announcement(SCHEDULER, "tcp://127.0.0.1:5", monitor_address="ipc:///here"):
        assert found(**scheduler) == "ipc:///here"
        assert find_monitor({}) == ("ipc:///here", "found on this host")
        assert found(address="tcp://127.0.0.1:80") == "ipc:///tmp/127.0.0.1_80_monitor"
