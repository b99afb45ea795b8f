"""The suite's end of the pipes to a client's adapter: commands go out, events come in (see client-adapter.md).

Rules:
- Nothing here blocks: the transport polls the pipes together with its socket, and calls `read` and `flush`.
- A line of the adapter that is not an event is a violation by the implementation.
- Commands and events are in the trace, like messages on the wire.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, List

from scaler_conformance.benches.implementation import Running
from scaler_conformance.judging.verdicts import Violation
from scaler_conformance.playing.wire_log import WireLog

VERSION = 2
VERSIONS = (1, 2)
"""Supported versions of the adapter protocol. Version 1 has fewer commands, as `can` shows."""
_READ_BYTES = 1 << 16
_MOST_SHOWN = 300


class Adapter:
    """The pipes to one adapter.

    Parameters:
        running: an implementation that was started with pipes.
    """

    def __init__(self, running: Running, log: WireLog) -> None:
        assert running.stdin is not None and running.stdout is not None
        self.stdin, self.stdout = running.stdin, running.stdout
        self._log = log
        self._outgoing = b""
        self._incomplete = b""
        self._is_closing = False
        self.has_ended = False  # it has closed its standard output
        self.events: List[Dict[str, Any]] = []  # not yet taken by a case
        for each in (self.stdin, self.stdout):
            os.set_blocking(each.fileno(), False)

    def tell(self, do: str, **members: Any) -> None:
        """Send a command."""
        text = json.dumps({"do": do, **members})
        self._log.note(f"adapter <- {_shortened(text)}")
        self._outgoing += text.encode() + b"\n"
        self.flush()

    @property
    def has_unsent(self) -> bool:
        return bool(self._outgoing)

    def flush(self) -> None:
        """Write as much as the pipe accepts."""
        while self._outgoing:
            try:
                written = os.write(self.stdin.fileno(), self._outgoing)
            except BlockingIOError:
                return
            except (OSError, ValueError):  # it has ended, which the next wait for it reports
                self._outgoing = b""
                return
            self._outgoing = self._outgoing[written:]
        if self._is_closing:
            with contextlib.suppress(OSError):
                self.stdin.close()

    def read(self) -> bool:
        """Read what has arrived; returns whether there was anything.

        Raises Violation if a line is not an event.
        """
        came = False
        while not self.has_ended:
            try:
                more = os.read(self.stdout.fileno(), _READ_BYTES)
            except BlockingIOError:
                return came
            except (OSError, ValueError):
                more = b""
            came = True
            self.has_ended = not more
            *lines, self._incomplete = (self._incomplete + more).split(b"\n")
            for line in filter(None, lines):
                self._take_in(line)
        return came

    def _take_in(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        self._log.note(f"adapter -> {_shortened(text)}")
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            raise Violation(
                "a JSON object with `event` on each line that the adapter writes", f"got {_shortened(text)!r}"
            )
        self.events.append(event)

    def close_input(self) -> None:
        """Close its standard input once it has been sent all commands, so that it ends."""
        self._is_closing = True
        self.flush()


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}... ({len(text)} characters)"
