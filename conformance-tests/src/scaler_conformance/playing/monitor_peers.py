"""A monitor that the suite plays, and the state that it derives from what it receives.

Rules:
- It is an XSUB socket, which subscribes itself and can send what a SUB socket cannot.
- Only what does not change by itself is kept: sessions and counts, not figures of processes.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

import zmq

from scaler_conformance.codec.schema_codec import Message, Struct
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.curve_keys import Keys
from scaler_conformance.playing.scheduler_peers import Group, GroupTransport, PlayedPeer

TWO_FRAMES = "SCL-MON-002"
TOPICS = {"SchedulerStatus": b"status", "TaskRuns": b"tasks"}
_TABLES = {
    "workers": ("sessions", ("tasks", "sent", "finished", "failed")),
    "clients": ("sessions", ("tasks", "finished", "failed", "canceled")),
    "functions": ("numbers", ("finished", "failed", "running", "waiting")),
}
_NAMES = {"newWorkers": "session", "newClients": "session", "newFunctions": "number"}
_GONE = {"workersGone": "workers", "clientsGone": "clients", "functionsGone": "functions"}


class MonitorTransport(GroupTransport):
    """The connection of a monitor."""

    def __init__(self, group: Group, address: str, keys: Optional[Keys] = None, server_key: bytes = b"") -> None:
        super().__init__(group, address, kind=zmq.XSUB, keys=keys, server_key=server_key)

    def subscribe(self, topic: bytes) -> None:
        self.socket.send(b"\1" + topic)


class Picture:
    """The state that results from all publications."""

    def __init__(self) -> None:
        self.tables: Dict[str, Dict[int, List[int]]] = {name: {} for name in _TABLES}
        self.names: Dict[str, Dict[int, str]] = {name: {} for name in _NAMES}
        self.tasks: Dict[str, int] = {}

    def apply(self, status: Message) -> None:
        """Apply the next publication."""
        if status.isSnapshot:
            self.__init__()  # type: ignore[misc]
        self.tasks = {each.name: each.value for each in status.tasks}
        for name, key in _NAMES.items():
            self.names[name].update({getattr(each, key): each.name for each in getattr(status, name)})
        for name, (key, columns) in _TABLES.items():
            self.tables[name].update(_rows(getattr(status, name), key, columns))
        for name, table in _GONE.items():
            for number in getattr(status, name):
                self.tables[table].pop(number, None)
                self.names[f"new{table.capitalize()}"].pop(number, None)


def _rows(columns: Struct, key: str, names: Sequence[str]) -> Dict[int, List[int]]:
    values: List[Any] = [getattr(columns, name) for name in names]
    return {number: [column[place] for column in values] for place, number in enumerate(getattr(columns, key))}


class PlayedMonitor(PlayedPeer):
    """A monitor, which sends no Hello."""

    role = "monitor"
    _transport: MonitorTransport

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sequences: Dict[str, List[int]] = {name: [] for name in TOPICS}
        self.picture = Picture()

    def subscribe(self, topic: bytes = b"") -> None:
        self._transport.subscribe(topic)

    def expect_snapshot(self, requirement: str = "") -> Message:
        """Wait for the first snapshot and apply it; earlier increments are dropped."""
        status = self.expect("SchedulerStatus", isSnapshot=True, requirement=requirement or None)
        self.picture.apply(status)
        return status

    def expect_status(self) -> Message:
        """Wait for the next publication and apply it."""
        status = self.expect("SchedulerStatus")
        self.picture.apply(status)
        return status

    def expect_picture(self, is_right: Callable[[Picture], bool], expected: str) -> None:
        """Apply publications until the picture is as expected."""

        def is_so() -> bool:
            while not is_right(self.picture):
                status = self._take(("SchedulerStatus",), None, {})
                if status is None:
                    return False
                self.picture.apply(status)
            return True

        self.wait_until(is_so, expected)

    def expect_count(self, name: str, count: int) -> None:
        """Apply publications until this many tasks are counted."""
        self.expect_picture(lambda picture: picture.tasks.get(name) == count, f"{count} tasks counted as {name}")

    def arrived(self, frames: Sequence[bytes]) -> None:
        """A message has arrived: a topic and a header."""
        check(len(frames) == 2, "two frames, topic and header", f"{len(frames)} frames", TWO_FRAMES)
        super().arrived(frames[1:])
        message = self._queue[-1]
        expected = "only SchedulerStatus on the topic `status` and TaskRuns on the topic `tasks`"
        check(TOPICS.get(message.type) == frames[0], expected, f"{message.type} on {frames[0]!r}", TWO_FRAMES)
        self.sequences[message.type].append(message.sequence)
