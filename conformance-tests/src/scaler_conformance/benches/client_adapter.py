"""The suite's end of the pipes to a client's adapter: commands go out, events come in (client-adapter.md).

Rules:
- Nothing here waits: the transport's poll has the pipes among what it watches, and calls `read` and `flush`.
- What the adapter writes that is no event is the implementation's fault.
- Commands and events are in the trace, as what passes on the wire is.
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
"""What an adapter may speak: one of version 1 has fewer commands, and says so in `can`."""
_READ_BYTES = 1 << 16
_MOST_SHOWN = 300


class Adapter:
    """The pipes to one adapter.

    Parameters:
        running: was started with pipes.
    """

    def __init__(self, running: Running, log: WireLog) -> None:
        assert running.stdin is not None and running.stdout is not None
        self.stdin, self.stdout = running.stdin, running.stdout
        self._log = log
        self._outgoing = b""
        self._incomplete = b""
        self._is_closing = False
        self.has_ended = False  # nothing more will come
        self.events: List[Dict[str, Any]] = []  # that no case has taken
        for each in (self.stdin, self.stdout):
            os.set_blocking(each.fileno(), False)

    def tell(self, do: str, **members: Any) -> None:
        """Give a command."""
        text = json.dumps({"do": do, **members})
        self._log.note(f"adapter <- {_shortened(text)}")
        self._outgoing += text.encode() + b"\n"
        self.flush()

    @property
    def has_unsent(self) -> bool:
        return bool(self._outgoing)

    def flush(self) -> None:
        """Write what the pipe takes."""
        while self._outgoing:
            try:
                written = os.write(self.stdin.fileno(), self._outgoing)
            except BlockingIOError:
                return
            except (OSError, ValueError):  # it has ended: whoever waits for it will say so
                self._outgoing = b""
                return
            self._outgoing = self._outgoing[written:]
        if self._is_closing:
            with contextlib.suppress(OSError):
                self.stdin.close()

    def read(self) -> bool:
        """Take in what has come; whether there was anything.

        Raises Violation when it is no event.
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
            raise Violation("lines of the adapter that are events", f"it wrote {_shortened(text)!r}")
        self.events.append(event)

    def close_input(self) -> None:
        """Let it end, as soon as it has read all that it was told."""
        self._is_closing = True
        self.flush()


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}... {len(text)} in all"
