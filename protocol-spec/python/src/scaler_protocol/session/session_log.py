"""What one end of a session has sent and the other has not acknowledged, and how much it has received.

    send ──▶ add ──▶ kept: 7 8 9 ──▶ rest, in order, over another connection
                       ▲
        acknowledge(6) ┘  counts of Heartbeat, HeartbeatEcho, Hello and Welcome

Rules:
- Sans-IO. Messages are numbered by their order since the Welcome; no number is on the wire.
- What is kept are the frames that were sent, not copies, and before they are encrypted.
- It is bounded: what has been kept for longest makes room. Until the other end has that, the session cannot be resumed.
- Counts come from a peer, which may be wrong: an impossible one costs that session its resumption, and nothing else.

Source: session.md of the specification, SCL-SES-029 and SCL-SES-034.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, List, Sequence

from scaler_protocol.wire.zmtp import Buffer

MAXIMUM_KEPT_BYTES = 64 * 1024 * 1024
"""Of one session."""

MESSAGE_BYTES = 256
"""About what a message takes in memory, besides its content."""

UNTOLD_BYTES = 4 * 1024 * 1024
"""A scheduler that keeps so much, or has received so much, asks for a count, or tells its own, between heartbeats."""

Frames = Sequence[Buffer]


class SessionLog:
    """Parameters:
        most_bytes: to keep.

    Attributes:
        sent, received: messages to and from the other end.
        acknowledged: how many messages the other end is known to have received.
        kept_bytes: of all messages that are kept.
    """

    __slots__ = ("sent", "received", "acknowledged", "kept_bytes", "_kept", "_most_bytes", "_is_over")

    def __init__(self, most_bytes: int = MAXIMUM_KEPT_BYTES) -> None:
        self.sent = self.received = self.acknowledged = self.kept_bytes = 0
        self._kept: Deque[Frames] = deque()
        self._most_bytes = most_bytes
        self._is_over = False  # whatever the other end says, the session cannot be resumed

    @property
    def is_whole(self) -> bool:
        """Whether all that is not acknowledged is kept."""
        return self.acknowledged == self.sent - len(self._kept) and not self._is_over

    def add(self, frames: Frames) -> None:
        """A message is sent now, or will be by `rest`."""
        self.sent += 1
        if not self._is_over:
            kept = self._kept
            kept.append(frames)
            self.kept_bytes += bytes_of(frames)
            # SCL-SES-034
            while self.kept_bytes > self._most_bytes:
                self.kept_bytes -= bytes_of(kept.popleft())

    # SCL-SES-029
    def acknowledge(self, count: int) -> bool:
        """The other end has received so many messages; returns whether that is possible.

        A count that is lower than an earlier one says nothing new: the message that brings it was sent before.
        """
        if count > self.sent:
            self.give_up()
            return False
        kept, sent = self._kept, self.sent
        while sent - len(kept) < count:
            self.kept_bytes -= bytes_of(kept.popleft())
        self.acknowledged = max(self.acknowledged, count)
        return True

    def can_resume(self, count: int) -> bool:
        """Whether all that follows the first `count` messages is kept."""
        return self.sent - len(self._kept) <= count <= self.sent and not self._is_over

    def rest(self) -> List[Frames]:
        """What is kept, in order."""
        return list(self._kept)

    def forget(self) -> None:
        """Keep nothing of what was sent so far."""
        self._kept.clear()
        self.kept_bytes = 0

    def give_up(self) -> None:
        """Keep nothing any more: the session cannot be resumed, whatever will be received."""
        self._is_over = True
        self.forget()


def bytes_of(frames: Frames) -> int:
    """What a message of one or two frames takes in memory."""
    size = MESSAGE_BYTES + len(frames[0])
    if len(frames) > 1:
        payload = frames[1]
        size += payload.nbytes if isinstance(payload, memoryview) else len(payload)
    return size
