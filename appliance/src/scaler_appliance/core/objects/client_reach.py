"""Which clients workers can fetch from: many are behind a router or a firewall, where no worker reaches them.

    no worker has fetched from it ── one fails ──▶ closed: no worker tries any more
            └── one succeeds ──▶ reached: each worker that fails tries no more, and the others do

Rule: a client keeps what was found out about it until its session ends, so that it costs one time-out, and not one for
each object, task or worker.

Source: SCL-OBJ-039.
"""

from __future__ import annotations

from typing import Dict, Set


class ClientReach:
    """Clients and workers are sessions."""

    def __init__(self) -> None:
        self._reached: Set[int] = set()
        self._closed: Set[int] = set()
        self._failed: Dict[int, Set[int]] = {}  # workers that could not fetch, by client that others have reached

    def succeed(self, client: int) -> None:
        """A worker has fetched an object from a client."""
        self._reached.add(client)

    def fail(self, client: int, worker: int) -> None:
        """A worker could not fetch an object from a client."""
        if client in self._reached:
            self._failed.setdefault(client, set()).add(worker)
        else:
            self._closed.add(client)

    def is_closed(self, client: int) -> bool:
        """Whether no worker fetches from a client any more."""
        return client in self._closed

    def may_fetch(self, worker: int, client: int) -> bool:
        """Whether a worker may try to fetch from a client."""
        return client not in self._closed and worker not in self._failed.get(client, ())

    def forget_client(self, client: int) -> None:
        """The session of a client has ended."""
        self._reached.discard(client)
        self._closed.discard(client)
        self._failed.pop(client, None)

    def forget_worker(self, worker: int) -> None:
        """The session of a worker has ended."""
        for client in [client for client, workers in self._failed.items() if worker in workers]:
            self._failed[client].discard(worker)
            if not self._failed[client]:
                del self._failed[client]

    def check_clients(self, clients: Set[int]) -> None:
        """Check that nothing is known of clients that are gone."""
        assert self._reached | self._closed | self._failed.keys() <= clients
