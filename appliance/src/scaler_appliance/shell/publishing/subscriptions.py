"""Who subscribes to what, and what waits for whom, without I/O.

    on_message(name, frames) ──▶ topics of each subscriber ──▶ interest()
    publish(topic, header) ────▶ what waits for each, in order ──next(name)──▶ one message at a time, to be sent
                                        └── the oldest ones are dropped, beyond a number for each and bytes for all

Rules:
- A topic that a subscriber asks for is a prefix of the topics that it gets, as in ZeroMQ. Topics that match none of
  those that are published are not kept: so a subscriber can have few.
- A subscriber has a view: the tenant of which it may see what is published, or all of them. Each view has publications
  of its own. A subscriber whose view is not known yet gets nothing.
- A publication is kept once, however many wait for it, until the last of them has it.
- A subscriber has at most one message on its way. What waits behind it is dropped as a whole, oldest first: what is
  new is of more use, and a monitor that misses a publication has to ask for a snapshot in any case.
- Only a message on its way cannot be dropped. If such messages alone are more than may wait, those subscribers have to
  be disconnected that have had theirs for the longest time. A lone publication may always wait, whatever its size.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from scaler_protocol.keys.allow_list import ANY_TENANT

STATUS = b"status"
RUNS = b"tasks"
TOPICS = (STATUS, RUNS)
WAITING_MESSAGES = 20  # for one monitor; some ten seconds' worth

_SUBSCRIBE, _CANCEL = b"\1", b"\0"


class Interest(NamedTuple):
    """The subscriptions of monitors."""

    has_status: bool
    has_runs: bool
    is_new: bool  # there is a new subscriber to the status since the last time


class _Publication:
    """A message that waits for subscribers, or is on its way to some."""

    __slots__ = ("frames", "size_bytes", "holders")

    def __init__(self, topic: bytes, header: bytes) -> None:
        self.frames = topic, header
        self.size_bytes = len(topic) + len(header)
        self.holders = 0


class _Subscriber:
    __slots__ = ("view", "topics", "waiting", "on_its_way", "copied_bytes")

    def __init__(self, view: Optional[str]) -> None:
        self.view = view
        self.topics: Set[bytes] = set()
        self.waiting: Deque[_Publication] = deque()
        self.on_its_way: Optional[_Publication] = None
        self.copied_bytes = 0  # of it


class Subscriptions:
    """All subscribers of one publisher.

    Parameters:
        maximum_bytes: of publications that are kept for subscribers, all together.
    """

    def __init__(self, maximum_bytes: int) -> None:
        self.held_bytes = 0
        self._maximum_bytes = maximum_bytes
        self._subscribers: Dict[bytes, _Subscriber] = {}
        self._publications: Dict[_Publication, None] = {}  # oldest first
        self._is_new = False

    def add(self, name: bytes, view: Optional[str] = ANY_TENANT) -> None:
        """There is another subscriber, without subscriptions.

        Parameters:
            view: None if it is not known yet.
        """
        self._subscribers[name] = _Subscriber(view)

    def admit(self, name: bytes, view: str) -> None:
        """It is known what a subscriber may see."""
        self._subscribers[name].view = view

    def remove(self, name: bytes) -> None:
        """A subscriber has gone."""
        subscriber = self._subscribers.pop(name)
        self._put_down(subscriber)
        for publication in subscriber.waiting:
            self._release(publication)

    # SCL-MON-006
    def on_message(self, name: bytes, frames: Sequence[bytes]) -> None:
        """A subscriber has sent something; what is no subscription of ours is ignored."""
        if len(frames) != 1:
            return
        action, topic = frames[0][:1], frames[0][1:]
        if not any(each.startswith(topic) for each in TOPICS):
            return
        topics = self._subscribers[name].topics
        if action == _SUBSCRIBE:
            topics.add(topic)
            self._is_new |= STATUS.startswith(topic)
        elif action == _CANCEL:
            topics.discard(topic)

    def interest(self) -> Interest:
        """The current subscriptions."""
        has_status, has_runs = (any(_wants(each, topic) for each in self._subscribers.values()) for topic in TOPICS)
        is_new, self._is_new = self._is_new and has_status, False
        return Interest(has_status, has_runs, is_new)

    def views(self, topic: bytes) -> List[str]:
        """The views of all subscribers to a topic, each once."""
        found = [each.view for each in self._subscribers.values() if each.view is not None and _wants(each, topic)]
        return list(dict.fromkeys(found))

    def publish(self, topic: bytes, header: bytes, view: str = ANY_TENANT) -> List[bytes]:
        """Let a message wait for those of its subscribers that have this view; returns their names."""
        names = [name for name, each in self._subscribers.items() if each.view == view and _wants(each, topic)]
        if names:
            publication = _Publication(topic, header)
            publication.holders = len(names)
            self._publications[publication] = None
            self.held_bytes += publication.size_bytes
            for name in names:
                waiting = self._subscribers[name].waiting
                waiting.append(publication)
                if len(waiting) > WAITING_MESSAGES:
                    self._release(waiting.popleft())
            self._make_room()
        return names

    def has_waiting(self, name: bytes) -> bool:
        """Whether messages wait for a subscriber."""
        return bool(self._subscribers[name].waiting)

    def next(self, name: bytes) -> Optional[Tuple[bytes, bytes]]:
        """The message to send to a subscriber, which has now read the one before; None if there is none."""
        subscriber = self._subscribers[name]
        self._put_down(subscriber)
        if not subscriber.waiting:
            return None
        publication = subscriber.on_its_way = subscriber.waiting.popleft()
        return publication.frames

    def size_on_its_way(self, name: bytes) -> int:
        """The bytes of the message that is on its way to a subscriber."""
        publication = self._subscribers[name].on_its_way
        return publication.size_bytes if publication is not None else 0

    def copied(self, name: bytes, size_bytes: int) -> None:
        """So much is kept for a subscriber alone, of the message on its way to it."""
        subscriber = self._subscribers[name]
        self.held_bytes += size_bytes - subscriber.copied_bytes
        subscriber.copied_bytes = size_bytes

    def to_disconnect(self) -> Optional[bytes]:
        """The subscriber that has to be removed next, because too much is on its way to subscribers."""
        if self.held_bytes > self._maximum_bytes:
            self._make_room()
        if self.held_bytes <= self._maximum_bytes:
            return None
        newest = next(reversed(self._publications))
        names: List[bytes] = []
        for publication in self._publications:
            names = [name for name, each in self._subscribers.items() if each.on_its_way is publication]
            if names and publication is not newest:
                return names[0]
        is_copied = len(names) > 1 and self._subscribers[names[0]].copied_bytes > 0
        return names[0] if is_copied else None

    def _make_room(self) -> None:
        """Drop what waits, the oldest first, until the rest is no more than may wait."""
        *older, _ = self._publications
        for publication in older:
            if self.held_bytes <= self._maximum_bytes:
                return
            for subscriber in self._subscribers.values():
                if subscriber.waiting and subscriber.waiting[0] is publication:
                    self._release(subscriber.waiting.popleft())

    def _put_down(self, subscriber: _Subscriber) -> None:
        publication, subscriber.on_its_way = subscriber.on_its_way, None
        if publication is not None:
            self._release(publication)
            self.held_bytes -= subscriber.copied_bytes
            subscriber.copied_bytes = 0

    def _release(self, publication: _Publication) -> None:
        publication.holders -= 1
        if not publication.holders:
            del self._publications[publication]
            self.held_bytes -= publication.size_bytes


def _wants(subscriber: _Subscriber, topic: bytes) -> bool:
    return any(map(topic.startswith, subscriber.topics))
