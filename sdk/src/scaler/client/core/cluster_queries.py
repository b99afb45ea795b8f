"""Queries to the scheduler that have no answer yet.

Rules: each has a number of its own, and the asker gets the answer with that number, so that several threads may ask at
the same time. A request to stop the cluster has no number; the scheduler answers these in order.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, Optional

from scaler.client.core.handles import Asker
from scaler_protocol.wire import messages as m


class Queries:
    """The open queries of one client."""

    def __init__(self) -> None:
        self._last_number = 0
        self._askers: Dict[int, Asker] = {}
        self._stopping: Deque[Asker] = deque()  # those that asked to stop the cluster

    def add(self, query: Any, asker: Asker) -> None:
        """Number a query that is about to be sent."""
        if isinstance(query, m.ClientShutdown):
            self._stopping.append(asker)
            return
        self._last_number += 1
        query.request_id = self._last_number
        self._askers[self._last_number] = asker

    def take(self, answer: Any) -> Optional[Asker]:
        """Remove and return the asker of this answer; None if it was not asked for, or the asker no longer waits."""
        # SCL-CLT-012
        if isinstance(answer, m.ClientShutdownResponse):
            return self._stopping.popleft() if self._stopping else None
        return self._askers.pop(answer.request_id, None)

    def forget(self, asker: Asker) -> None:
        """The asker no longer waits."""
        self._askers = {number: each for number, each in self._askers.items() if each is not asker}
        self._stopping = deque(each for each in self._stopping if each is not asker)
