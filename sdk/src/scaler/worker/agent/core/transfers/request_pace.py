"""How many requests to a holder are open at once: as many as keep the path to it busy, however long that is.

    an answer takes at most twice as long as the quickest one ──▶ one more is open from now on

Rules:
- Requests that take longer wait behind one another: more of them would fill buffers on the way, and not the path.
- So each answer from afar adds one, which doubles them with each way there and back, and nearby there are few.
- The holder takes the memory of one part, however many are requested.

Source: SCL-OBJ-044.
"""

from __future__ import annotations

import math
from typing import Dict

from scaler_protocol.session.fetching import FETCH_WINDOW_CHUNKS

MOST_OPEN_REQUESTS = 64
PATIENCE = 2.0
"""How many times as long as the quickest answer one may take that came at once."""


class RequestPace:
    """Of one connection.

    Attributes:
        most: requests that may be open.
    """

    __slots__ = ("most", "_requested_at", "_quickest_seconds")

    def __init__(self) -> None:
        self.most = FETCH_WINDOW_CHUNKS
        self._requested_at: Dict[int, float] = {}  # by offset
        self._quickest_seconds = math.inf

    def on_request(self, offset: int, now: float) -> None:
        """A part is requested."""
        self._requested_at[offset] = now

    def on_answer(self, offset: int, now: float) -> None:
        """An answer has come, maybe to nothing that was requested: that says nothing."""
        requested_at = self._requested_at.pop(offset, None)
        if requested_at is None:
            return
        seconds = now - requested_at
        self._quickest_seconds = min(self._quickest_seconds, seconds)
        if seconds <= PATIENCE * self._quickest_seconds:
            self.most = min(self.most + 1, MOST_OPEN_REQUESTS)
