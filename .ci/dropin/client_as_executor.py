"""A pytest plugin: what a library submits to loky's executor goes to a local Scaler cluster instead."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

import loky
import pytest

from scaler import Client, ScalerFuture, SchedulerClusterCombo


class _CountingClient(Client):
    submitted = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ScalerFuture[Any]:
        _CountingClient.submitted += 1
        return super().submit(fn, *args, **kwargs)


def pytest_configure() -> None:
    """Before the tests are imported, since they take the executor by name."""
    loky.get_reusable_executor = lambda *_, **__: _client()


def _client() -> Client:
    if not _clients:
        _combos.append(SchedulerClusterCombo(n_workers=2))
        _clients.append(_CountingClient(_combos[0].get_address()))
    return _clients[0]


_combos: List[SchedulerClusterCombo] = []
_clients: List[Client] = []


@pytest.fixture(autouse=True, scope="session")
def _scaler_is_underneath() -> Iterator[None]:
    yield
    for client in _clients:
        client.disconnect()
    for combo in _combos:
        combo.shutdown()
    assert _CountingClient.submitted, "nothing was submitted to Scaler"
