"""Questions to the scheduler that have no answer yet.

Rules: each has a number of its own, and who asked is told the answer with that number, so that many may ask at the same
time. A request to stop the cluster has no number; the scheduler answers those in order.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, Optional

from scaler.client.core.handles import Asker
from scaler_protocol.wire import messages as m


class Questions:
    """The open questions of one client."""

    def __init__(self) -> None:
        self._last_number = 0
        self._askers: Dict[int, Asker] = {}
        self._stopping: Deque[Asker] = deque()  # who asked to stop the cluster

    def add(self, question: Any, asker: Asker) -> None:
        """Number a question that is about to be sent."""
        if isinstance(question, m.ClientShutdown):
            self._stopping.append(asker)
            return
        self._last_number += 1
        question.request_id = self._last_number
        self._askers[self._last_number] = asker

    def take(self, answer: Any) -> Optional[Asker]:
        """Who asked what is answered here; None: nobody, or nobody any more."""
        # SCL-CLT-012
        if isinstance(answer, m.ClientShutdownResponse):
            return self._stopping.popleft() if self._stopping else None
        return self._askers.pop(answer.request_id, None)

    def forget(self, asker: Asker) -> None:
        """This one waits no more."""
        self._askers = {number: each for number, each in self._askers.items() if each is not asker}
        self._stopping = deque(each for each in self._stopping if each is not asker)
