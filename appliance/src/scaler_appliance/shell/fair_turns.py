"""Whose messages are handled next: those of the peer that has cost least.

    connections ──messages──▶ FairTurns ──a peer's turn──▶ core
                                  ▲                          │
                                  └───────── its cost ───────┘

Rules:
- Start-time fair queueing (Goyal, Vin and Cheng, 1996): what a peer's messages cost is added to its virtual time, and
  the peer whose virtual time is least goes next. So peers share the time, however many or dear their messages are.
- What a peer costs otherwise, such as reading a large message or work on it in later rounds, is added as well.
- A peer that had nothing to say gets no credit for that: its virtual time is at least that of the last turn.
- Once no messages wait, all debts are forgiven: no peer was waiting for that time. Among equals, the first to come goes
  first.
- Messages of one peer stay in order. So do answers to be sent to it, such as parts of objects: each has a turn of its
  own, behind the messages that the peer has sent before.
- No clock: the caller measures what a turn has cost.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Deque, Dict, List, Sequence, Tuple, Union

from scaler_appliance.core.effects import Send, SendChunk

Frames = List[bytes]

Answer = Union[Send, SendChunk]

Item = Union[Frames, Answer]
"""What waits for a turn: a message of a peer, or an answer to it."""


MOST_AT_ONCE_SECONDS = 0.02  # three times what the dearest message takes


def at_work(seconds: float) -> float:
    """How much of the time that something took is charged: what is more than anything takes is a stop of this process.

    It may have been stopped, or have waited for its processor, in the middle of a peer's message.
    """
    return seconds if seconds < MOST_AT_ONCE_SECONDS else MOST_AT_ONCE_SECONDS


class FairTurns:
    """Messages that have arrived and were not handled, by peer."""

    def __init__(self) -> None:
        self._messages: Dict[bytes, Deque[Item]] = {}  # by peer that has any
        self._costs: Dict[
            bytes, float
        ] = {}  # virtual times, of peers that have cost something since no messages waited
        self._turns: List[Tuple[float, int, bytes]] = []  # a heap, with each peer that has messages
        self._paused: Dict[bytes, Deque[Item]] = {}
        self._count = 0
        self._time = 0.0  # the virtual time of the last turn
        self._latest = 0.0  # that of the peer whose messages have cost most

    def __contains__(self, peer: bytes) -> bool:
        """Whether messages of this peer wait."""
        return peer in self._messages or peer in self._paused

    def __bool__(self) -> bool:
        """Whether any messages wait for a turn."""
        return bool(self._messages)

    def add(self, peer: bytes, messages: Sequence[Item]) -> None:
        """Messages of a peer have arrived, or answers are to be sent to it."""
        waiting = self._messages.get(peer)
        if waiting is not None:
            waiting.extend(messages)
        elif messages:
            self._messages[peer] = deque(messages)
            self._push(self.time_of(peer), peer)

    def next(self) -> Tuple[bytes, Deque[Item]]:
        """The peer whose turn it is, and its messages: take some of them, then call `end_turn`."""
        self._time, _, peer = self._turns[0]
        return peer, self._messages[peer]

    def end_turn(self, cost: float) -> None:
        """The peer that `next` returned has had its turn.

        Parameters:
            cost: of the messages that were taken, for example in seconds.
        """
        peer = heappop(self._turns)[2]
        time = self.charge(peer, cost)
        if self._messages[peer]:
            self._push(time, peer)
            return
        del self._messages[peer]
        if not self._messages:
            self._time = self._latest
            self._costs.clear()

    def charge(self, peer: bytes, cost: float) -> float:
        """A peer has cost something, in its turn or at another time; returns its virtual time."""
        time = self._costs[peer] = self.time_of(peer) + cost
        self._latest = max(self._latest, time)
        return time

    def time_of(self, peer: bytes) -> float:
        """The virtual time of a peer: the less, the sooner it should be served."""
        return max(self._time, self._costs.get(peer, 0.0))

    def _push(self, time: float, peer: bytes) -> None:
        self._count += 1
        heappush(self._turns, (time, self._count, peer))

    def pause(self, peer: bytes) -> None:
        """Instead of `end_turn`: the peer whose turn it is gets no more turns until `resume`."""
        heappop(self._turns)
        self._paused[peer] = self._messages.pop(peer)

    def add_answer(self, peer: bytes, answer: Answer) -> None:
        """An answer is to be sent to a peer, in a turn of its own."""
        paused = self._paused.get(peer)
        if paused is None:
            self.add(peer, (answer,))
        else:
            paused.append(answer)

    def drop_answers(self, peer: bytes) -> None:
        """Send none of the answers that wait."""
        for waiting in (self._messages.get(peer), self._paused.get(peer)):
            if waiting is not None:
                messages = [each for each in waiting if isinstance(each, list)]
                waiting.clear()
                waiting.extend(messages)

    def resume(self, peer: bytes) -> None:
        """The peer gets turns again."""
        messages = self._paused.pop(peer, None)
        if messages:
            self.add(peer, messages)

    def forget(self, peer: bytes) -> None:
        """A peer without messages is gone for good."""
        self._costs.pop(peer, None)
