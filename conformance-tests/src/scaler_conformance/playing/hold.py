"""Tasks that a case controls: the other end of the conformance function `wait`.

    hold = bench.hold()                       a tag and the arguments for the task
    ... submit `wait` with hold.arguments ...
    hold.expect_started()                     the task has connected and sent its tag
    hold.release("go")                        it returns "go"
    hold.expect_stopped()                     its connection has ended: it was stopped

Rule: nothing is polled on a timer; each wait is for an event, with the run's deadline.
"""

from __future__ import annotations

import select
import socket
import time
from typing import Any, Callable, Dict, List, Optional

from scaler_conformance.judging.verdicts import Violation

_SLICE_SECONDS = 0.05


class HoldListener:
    """The listener to which held tasks connect."""

    def __init__(self, deadline_seconds: float, how_it_ended: Callable[[], Optional[str]]) -> None:
        self._deadline_seconds = deadline_seconds
        self._how_it_ended = how_it_ended
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._connections: Dict[str, socket.socket] = {}  # by tag
        self._unnamed: List[socket.socket] = []
        self._starts: Dict[str, int] = {}
        self._count = 0

    def new_hold(self, addition: str = "") -> Hold:
        self._count += 1
        return Hold(self, f"hold-{self._count}", addition)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def connection(self, tag: str) -> Optional[socket.socket]:
        """The newest connection of a task that sent this tag."""
        return self._connections.get(tag)

    def starts(self, tag: str) -> int:
        """How often tasks with this tag have started."""
        self.pump(0)
        return self._starts.get(tag, 0)

    def wait_until(self, condition: Callable[[], Any], expected: str, requirement: Optional[str]) -> Any:
        """Raises Violation if the deadline passes or the implementation ends."""
        deadline = time.monotonic() + self._deadline_seconds
        while True:
            self.pump(0)
            found = condition()
            if found:
                return found
            ending, left = self._how_it_ended(), deadline - time.monotonic()
            if ending or left <= 0:
                raise Violation(expected, ending or f"timed out after {self._deadline_seconds:g} s", requirement)
            self.pump(min(left, _SLICE_SECONDS))

    def pump(self, seconds: float) -> None:
        watched = [self._listener, *self._unnamed]
        held = list(self._connections.values()) if seconds else []
        for ready in select.select([*watched, *held], [], [], seconds)[0]:
            if ready is self._listener:
                self._unnamed.append(self._listener.accept()[0])
            elif ready in self._unnamed:
                self._read_tag(ready)

    def _read_tag(self, connection: socket.socket) -> None:
        head = connection.recv(4096, socket.MSG_PEEK)
        line, ended, _ = head.partition(b"\n")
        if not head:
            self._unnamed.remove(connection)
            connection.close()
        elif ended:
            connection.recv(len(line) + 1)
            tag = line.decode("utf-8", "replace")
            self._unnamed.remove(connection)
            self._connections[tag] = connection
            self._starts[tag] = self._starts.get(tag, 0) + 1

    def close(self) -> None:
        for each in [self._listener, *self._unnamed, *self._connections.values()]:
            each.close()


class Hold:
    """One held task.

    Parameters:
        addition: what it adds to the tag that it is given.
    """

    def __init__(self, listener: HoldListener, tag: str, addition: str = "") -> None:
        self.tag = tag + addition
        self._given_tag = tag
        self._listener = listener

    @property
    def arguments(self) -> List[Any]:
        """For the conformance function `wait`."""
        return ["127.0.0.1", self._listener.port, self._given_tag]

    @property
    def starts(self) -> int:
        """How often the task has started so far."""
        return self._listener.starts(self.tag)

    def expect_started(self, requirement: Optional[str] = None) -> None:
        """Raises Violation if the task does not start."""
        self._listener.wait_until(
            lambda: self._listener.connection(self.tag), f"the `wait` task {self.tag} to start", requirement
        )

    def release(self, word: str = "go") -> None:
        """Let the task return `word`."""
        connection = self._listener.connection(self.tag)
        assert connection is not None, "call expect_started first"
        try:
            connection.sendall(word.encode() + b"\n")
        except OSError:
            pass  # it has ended, which the wait for its result reports

    def cut(self) -> None:
        """End the task's connection, so that it fails with the message "the connection ended"."""
        connection = self._listener.connection(self.tag)
        assert connection is not None, "call expect_started first"
        connection.shutdown(socket.SHUT_WR)

    def expect_stopped(self, requirement: Optional[str] = None) -> None:
        """Raises Violation if the task's connection does not end."""
        connection = self._listener.connection(self.tag)
        assert connection is not None, "call expect_started first"
        self._listener.wait_until(
            lambda: _has_ended(connection), f"the `wait` task {self.tag} to be stopped", requirement
        )

    @property
    def is_running(self) -> bool:
        """Whether the task has started and its connection is open."""
        connection = self._listener.connection(self.tag)
        return connection is not None and not _has_ended(connection)


def _has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
