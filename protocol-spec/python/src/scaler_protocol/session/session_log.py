"""What one end of a session has sent and the other has not acknowledged, and how much it has received.

    send ──▶ add ──▶ kept: 7 8 9 ──▶ rest, in order, over another connection
                       ▲
        acknowledge(6) ┘  counts of Heartbeat, HeartbeatEcho, Hello and Welcome

Rules:
- Sans-IO. Messages are numbered by their order since the Welcome; no number is on the wire.
- What is kept are the frames that were sent, not copies, and before they are encrypted.
- It is bounded: who keeps more than that keeps nothing any more, and the session cannot be resumed.
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
        received: messages of the other end.
        kept_bytes: of all messages that are not acknowledged.
        is_whole: the session can be resumed.
        acknowledged: how many messages the other end is known to have received.
    """

    __slots__ = ("received", "kept_bytes", "is_whole", "acknowledged", "_kept", "_most_bytes")

    def __init__(self, most_bytes: int = MAXIMUM_KEPT_BYTES) -> None:
        self.received = self.kept_bytes = self.acknowledged = 0
        self.is_whole = True
        self._kept: Deque[Frames] = deque()
        self._most_bytes = most_bytes

    @property
    def sent(self) -> int:
        """How many messages were sent, as long as the log is whole."""
        return self.acknowledged + len(self._kept)

    def add(self, frames: Frames) -> None:
        """A message is sent now, or will be by `rest`."""
        if self.is_whole:
            self._kept.append(frames)
            self.kept_bytes += bytes_of(frames)
            # SCL-SES-034
            if self.kept_bytes > self._most_bytes:
                self.give_up()

    # SCL-SES-029
    def acknowledge(self, count: int) -> bool:
        """The other end has received so many messages; returns whether that is possible.

        A count that is lower than an earlier one says nothing new: the message that brings it was sent before.
        """
        if not self.is_whole:
            return True
        if count > self.sent:
            self.give_up()
            return False
        kept = self._kept
        while self.acknowledged < count:
            self.kept_bytes -= bytes_of(kept.popleft())
            self.acknowledged += 1
        return True

    def can_resume(self, count: int) -> bool:
        """Whether all that follows the first `count` messages is kept."""
        return self.is_whole and self.acknowledged <= count <= self.sent

    def rest(self) -> List[Frames]:
        """What is not acknowledged, in order."""
        return list(self._kept)

    def give_up(self) -> None:
        """Keep nothing any more: the session cannot be resumed."""
        self.is_whole = False
        self._kept.clear()
        self.kept_bytes = 0


def bytes_of(frames: Frames) -> int:
    """What a message of one or two frames takes in memory."""
    size = MESSAGE_BYTES + len(frames[0])
    if len(frames) > 1:
        payload = frames[1]
        size += payload.nbytes if isinstance(payload, memoryview) else len(payload)
    return size
