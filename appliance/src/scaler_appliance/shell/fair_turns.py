"""Whose messages are handled next: those of the peer that has cost least.

    connections ──messages──▶ FairTurns ──a peer's turn──▶ core
                                  ▲                          │
                                  └───────── its cost ───────┘

Rules:
- Start-time fair queueing (Goyal, Vin and Cheng, 1996): what a peer's messages cost is added to its virtual time, and
  the peer whose virtual time is least goes next. So peers share the time, however many or dear their messages are.
- A peer that had nothing to say gets no credit for that: its virtual time is at least that of the last turn.
- Messages of one peer stay in order.
- No clock: the caller measures what a turn has cost.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Deque, Dict, List, Sequence, Tuple

Frames = List[bytes]


class FairTurns:
    """Messages that have arrived and were not handled, by peer."""

    def __init__(self) -> None:
        self._messages: Dict[bytes, Deque[Frames]] = {}  # by peer that has any
        self._costs: Dict[bytes, float] = {}  # virtual times, of peers that are ahead of the last turn
        self._turns: List[Tuple[float, bytes]] = []  # a heap, with each peer that has messages
        self._time = 0.0  # the virtual time of the last turn

    def __contains__(self, peer: bytes) -> bool:
        """Whether messages of this peer wait."""
        return peer in self._messages

    def __bool__(self) -> bool:
        """Whether any messages wait."""
        return bool(self._messages)

    def add(self, peer: bytes, messages: Sequence[Frames]) -> None:
        """Messages of a peer have arrived."""
        waiting = self._messages.get(peer)
        if waiting is not None:
            waiting.extend(messages)
        elif messages:
            self._messages[peer] = deque(messages)
            heappush(self._turns, (max(self._time, self._costs.get(peer, 0.0)), peer))

    def next(self) -> Tuple[bytes, Deque[Frames]]:
        """The peer whose turn it is, and its messages: take some of them, then call `end_turn`."""
        self._time, peer = self._turns[0]
        return peer, self._messages[peer]

    def end_turn(self, cost: float) -> None:
        """The peer that `next` returned has had its turn.

        Parameters:
            cost: of the messages that were taken, for example in seconds.
        """
        _, peer = heappop(self._turns)
        self._costs[peer] = self._time + cost
        if self._messages[peer]:
            heappush(self._turns, (self._time + cost, peer))
        else:
            del self._messages[peer]

    def forget(self, peer: bytes) -> None:
        """A peer without messages is gone for good."""
        self._costs.pop(peer, None)
