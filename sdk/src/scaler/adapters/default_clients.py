"""The client that an adapter uses if its user names an address, or nothing at all.

    address given ─────────────────────────────▶ a client of it
    none ──▶ a scheduler found as by Client() ──▶ a client of it
                     └── none found ────────────▶ a client of a local cluster, started on first use

Rules:
- A process has one client for each address, and at most one local cluster. Both last until the process ends, because
  libraries make a new engine for each call, and a connection for each call would be slower than most calls.
- A client that was disconnected, or that a fork has inherited, is replaced. A fork uses its parent's local cluster.
- Inside a task, the scheduler found is the one that the task came from, so nested calls never start a cluster.
"""

from __future__ import annotations

import os
import threading
from typing import Dict, List, Optional

from scaler.client import Client
from scaler.cluster import Cluster, SchedulerClusterCombo
from scaler.cpus import usable_cpus
from scaler.exceptions import SchedulerUnreachableError
from scaler_protocol.host.discovery import DiscoveryError, address_given_or_found


class LocalCluster:
    """A scheduler and workers of this program, which grow on request and end with it."""

    def __init__(self, slots: int) -> None:
        self._combo = SchedulerClusterCombo(n_workers=slots, logging_level="WARNING")
        self._more: List[Cluster] = []
        self._process_id = os.getpid()
        self.slots = slots
        self.address = self._combo.get_address()

    @property
    def is_own(self) -> bool:
        """Whether this process has started it, and not the one that this is a fork of."""
        return self._process_id == os.getpid()

    @property
    def is_running(self) -> bool:
        return self._combo.scheduler.is_alive() if self.is_own else _is_reachable(self.address)

    def grow(self, slots: int) -> None:
        """Have at least so many slots. A fork leaves the cluster of its parent as it is."""
        if slots > self.slots and self.is_own:
            added = Cluster(address=self.address, n_workers=slots - self.slots, logging_level="WARNING")
            added.start()
            self._more.append(added)
            self.slots = slots


_lock = threading.Lock()
_clients: Dict[str, Client] = {}
_local: Optional[LocalCluster] = None


def client_for(address: Optional[str] = None) -> Client:
    """The client of this process for a scheduler.

    Parameters:
        address: of the scheduler; None: one that is found, else that of a local cluster with a slot for each CPU.

    Raises what `Client` raises, except SchedulerNotFoundError; ProgramStartError if a local cluster does not start.
    """
    with _lock:
        if address is None:
            address = _found() or _local_cluster().address
        client = _clients.get(address)
        if client is None or client._shell.closed_because is not None:
            client = _clients[address] = Client(address=address)
        return client


def local_cluster_of(client: Client) -> Optional[LocalCluster]:
    """The local cluster of this program, if the client is connected to it."""
    with _lock:
        return _local if _local is not None and _local.address == client._address else None


def _found() -> Optional[str]:
    try:
        return address_given_or_found()
    except DiscoveryError:
        return None


def _local_cluster() -> LocalCluster:
    """The caller holds the lock."""
    global _local
    if _local is None or not _local.is_running:
        _local = LocalCluster(usable_cpus())
    return _local


def _is_reachable(address: str) -> bool:
    try:
        _clients[address] = Client(address=address)
    except SchedulerUnreachableError:
        return False
    return True


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
