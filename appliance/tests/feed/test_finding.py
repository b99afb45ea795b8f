"""Whom a monitor watches without an address: whom a client would connect to, else the scheduler of its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaler_appliance.feed.finding import find_monitor
from scaler_protocol.host.discovery import ADDRESS_VARIABLE, FOLDER_VARIABLE, SCHEDULER, Announcement
from scaler_protocol.programs.options import ConfigurationError


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a host without schedulers."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "run"))
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)


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
    with pytest.raises(ConfigurationError, match="no scheduler"):
        found(**scheduler)
    with Announcement(SCHEDULER, "tcp://127.0.0.1:5", monitor_address="ipc:///here"):
        assert found(**scheduler) == "ipc:///here"
        assert find_monitor({}) == ("ipc:///here", "found on this host")
        assert found(address="tcp://127.0.0.1:80") == "ipc:///tmp/127.0.0.1_80_monitor"


def test_the_scheduler_of_clients_in_the_environment_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS_VARIABLE, "tcp://127.0.0.1:5")
    with Announcement(SCHEDULER, "tcp://0.0.0.0:5", monitor_address="ipc:///older"):
        with Announcement(SCHEDULER, "tcp://127.0.0.1:6", monitor_address="ipc:///newest"):
            assert find_monitor({}) == ("ipc:///older", "environment SCALER_ADDRESS")
            assert found(address="tcp://127.0.0.1:80") == "ipc:///older"
            monkeypatch.setenv(ADDRESS_VARIABLE, "tcp://localhost:5")
            assert find_monitor({}) == ("ipc:///older", "environment SCALER_ADDRESS")


@pytest.mark.parametrize(
    ("address", "monitor_address"),
    [("tcp://127.0.0.1:5", "ipc:///tmp/127.0.0.1_5_monitor"), ("ipc:///tmp/s", "ipc:///tmp/s_monitor")],
)
def test_one_that_does_not_announce_itself_is_where_schedulers_are_by_default(
    address: str, monitor_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADDRESS_VARIABLE, address)
    with Announcement(SCHEDULER, "tcp://127.0.0.1:6", monitor_address="ipc:///another"):
        assert find_monitor({}) == (monitor_address, "environment SCALER_ADDRESS")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://192.0.2.1:5", "tcp://192.0.2.1:5, is on another host: give its monitor address"),
        ("nonsense", "environment variable SCALER_ADDRESS: 'nonsense' is not a scheduler address"),
    ],
)
def test_one_whose_monitor_address_cannot_be_known_is_told(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADDRESS_VARIABLE, address)
    with pytest.raises(ConfigurationError, match=message):
        find_monitor({})


def test_a_folder_that_cannot_be_trusted_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    (tmp_path / "run").chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"no scheduler to watch.*give its monitor address"):
        find_monitor({})
