"""Fixtures for pytest: a cluster for all tests, and clients for each of them.

    def test_totals(scaler_client):
        assert scaler_client.map(abs, [-1, 2]) == [1, 2]

Rules:
- pytest loads this module wherever the SDK is installed: it imports nothing of Scaler before a test asks for it.
- A cluster belongs to one process: with pytest-xdist, each process of tests has one of its own.
- While a test has a client, `Client()` in the code that it tests finds the same cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

import pytest

if TYPE_CHECKING:
    from scaler.client import Client
    from scaler.cluster import SchedulerClusterCombo

DEFAULT_WORKERS = 2
LEAVE_TIMEOUT_SECONDS = 5.0

_HAS_FAILED = "_scaler_has_failed"  # an attribute, because stashes are newer than the oldest pytest in use


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("scaler", "Scaler")
    text = "how many tasks the cluster of scaler_cluster and scaler_client runs at once"
    group.addoption("--scaler-workers", type=int, metavar="N", help=f"{text} (default: {DEFAULT_WORKERS})")
    group.addoption(
        "--scaler-synchronous",
        action="store_true",
        help="scaler_client runs tasks in the process of the tests, for --pdb and breakpoint()",
    )
    parser.addini("scaler_workers", text, default=str(DEFAULT_WORKERS))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    outcome: Any = yield
    if outcome.get_result().failed:
        setattr(item, _HAS_FAILED, True)


@pytest.fixture(scope="session")
def scaler_cluster(pytestconfig: pytest.Config) -> Iterator[SchedulerClusterCombo]:
    """A Scaler cluster on this machine: a SchedulerClusterCombo."""
    from scaler import SchedulerClusterCombo

    with SchedulerClusterCombo(n_workers=_workers(pytestconfig), logging_level="WARNING") as cluster:
        yield cluster


@pytest.fixture
def scaler_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A Scaler client, of which a test that passes must leave no unfinished tasks."""
    if request.config.getoption("--scaler-synchronous"):
        address = "synchronous"
    else:
        address = request.getfixturevalue("scaler_cluster").get_address()
    yield from _client_at(address, request, monkeypatch)


@pytest.fixture
def scaler_synchronous(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A Scaler client that runs its tasks in the process of the tests."""
    yield from _client_at("synchronous", request, monkeypatch)


def _client_at(address: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    from scaler import Client, current_client

    monkeypatch.setenv("SCALER_ADDRESS", address)
    client = Client(address)
    current_client.enter(client)
    unfinished = 0
    try:
        yield client
        if client.is_open:
            unfinished = client._shell.cancel_unfinished(LEAVE_TIMEOUT_SECONDS)
    finally:
        current_client.leave(client)
        client.disconnect()
    if unfinished and not getattr(request.node, _HAS_FAILED, False):
        tasks = "1 task" if unfinished == 1 else f"{unfinished} tasks"
        pytest.fail(f"the test left {tasks} unfinished: wait for the futures, or cancel them", pytrace=False)


def _workers(config: pytest.Config) -> int:
    given = config.getoption("--scaler-workers")
    if given is None:
        text = str(config.getini("scaler_workers"))
        if not text.isdecimal():
            raise pytest.UsageError(f"scaler_workers must be a whole number, got {text!r}")
        given = int(text)
    if given < 1:
        raise pytest.UsageError(f"the number of workers must be at least 1, got {given}")
    return int(given)
