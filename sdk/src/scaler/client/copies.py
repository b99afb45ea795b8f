"""Copies of clients that are made for tasks."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from scaler.client.client import Client


class ClientOfTasks:
    """Arrives in a task as a client that waits, whatever kind of client it is made from.

    Parameters:
        state: of the client.
    """

    def __init__(self, state: Dict[str, Any]) -> None:
        self._state = state

    def __reduce__(self) -> Tuple[Any, ...]:
        return _client_with, (self._state,)


def _client_with(state: Dict[str, Any]) -> Client:
    client = Client.__new__(Client)
    client.__setstate__(state)
    return client
