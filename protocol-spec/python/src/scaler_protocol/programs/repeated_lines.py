"""Keeps a log short when a program repeats itself: further lines like those written before are counted, not written.

    line ──▶ RepetitionFilter of a handler ──▶ written, MAXIMUM_EQUAL_LINES times in a period
                       │
                       └── counted ──▶ "... and 57000 more like it in 60 seconds: the line", once a period

Rules:
- Equal lines have the same logger, level and text. Warnings and errors that differ only in numbers count as equal, with
  their tracebacks. Information that differs in numbers is about different things, such as the workers of a cluster, and
  has a higher limit.
- Only lines of Scaler's own loggers are counted: what users and their tasks log through the same handler is written.
- Memory is bounded: at most MAXIMUM_KINDS lines are remembered, with the beginnings of their texts.
- No thread and no clock of its own: a count is written before the next line, by `report_repetitions`, and at exit. A
  program that forks must not have a thread here.
"""

from __future__ import annotations

import atexit
import logging
import re
import time
import weakref
from typing import Callable, Dict, List, Tuple

PERIOD_SECONDS = 60.0
MAXIMUM_EQUAL_LINES = 5
"""How many equal lines are written in a period."""

MAXIMUM_SIMILAR_LINES = 100
"""How many lines of information that differ only in numbers are written in a period: clusters have many workers."""

MAXIMUM_KINDS = 500
MAXIMUM_TEXT_LENGTH = 200

_NUMBER = re.compile(r"\b[0-9a-f]*[0-9][0-9a-f]*\b|[0-9]+")  # also hexadecimal ones, such as object ids

_Key = Tuple[str, int, str]


class _Kind:
    """Lines that count as the same, since the first of them.

    Parameters:
        text: of the last line that was counted.
    """

    __slots__ = ("since", "count", "unwritten", "text")

    def __init__(self, since: float, text: str) -> None:
        self.since = since
        self.count = 0
        self.unwritten = 0
        self.text = text


class RepetitionFilter(logging.Filter):
    """Counts the lines of one handler, whose lock it uses.

    Parameters:
        name: of the logger whose lines, and whose children's lines, are counted.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, handler: logging.Handler, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name)
        self._handler = weakref.ref(handler)
        self._clock = clock
        self._kinds: Dict[_Key, _Kind] = {}  # the oldest first

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a line; what is due of earlier ones is written before it."""
        handler = self._handler()
        if handler is None or not super().filter(record):
            return True
        try:
            text = record.getMessage()[:MAXIMUM_TEXT_LENGTH]
        except Exception:  # its arguments do not fit its template, which the handler reports
            return True
        handler.acquire()
        try:
            now = self._clock()
            self._report_until(handler, now - PERIOD_SECONDS)
            similar = record.name, record.levelno, _NUMBER.sub("#", text)
            if record.levelno >= logging.WARNING:
                return self._is_new(handler, similar, text, MAXIMUM_EQUAL_LINES, now)
            equal = record.name, record.levelno, text
            known = self._kinds.get(equal)
            if (
                equal != similar
                and (known is None or known.count < MAXIMUM_EQUAL_LINES)
                and not self._is_new(handler, similar, text, MAXIMUM_SIMILAR_LINES, now)
            ):
                return False
            return self._is_new(handler, equal, text, MAXIMUM_EQUAL_LINES, now)
        finally:
            handler.release()

    def _is_new(self, handler: logging.Handler, key: _Key, text: str, maximum: int, now: float) -> bool:
        """Count a line; returns whether there were no more like it than `maximum`."""
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= MAXIMUM_KINDS:
                self._report(handler, next(iter(self._kinds)))
            kind = self._kinds[key] = _Kind(now, text)
        kind.count += 1
        if kind.count <= maximum:
            return True
        kind.unwritten += 1
        kind.text = text
        return False

    def report(self, is_final: bool = False) -> None:
        """Write how often lines were repeated whose period has ended, or all if nothing follows."""
        handler = self._handler()
        if handler is not None and self._kinds:
            handler.acquire()
            try:
                self._report_until(handler, float("inf") if is_final else self._clock() - PERIOD_SECONDS)
            finally:
                handler.release()

    def _report_until(self, handler: logging.Handler, time: float) -> None:
        while self._kinds:
            key, kind = next(iter(self._kinds.items()))
            if kind.since > time:
                return
            self._report(handler, key)

    def _report(self, handler: logging.Handler, key: _Key) -> None:
        name, level, _ = key
        kind = self._kinds.pop(key)
        if kind.unwritten and not getattr(getattr(handler, "stream", None), "closed", False):
            seconds = self._clock() - kind.since
            values = kind.unwritten, seconds, kind.text
            text = "... and %d more like it in %.0f seconds: %s"
            handler.emit(logging.LogRecord(name, level, __file__, 0, text, values, None))


_filters: List[weakref.ref[RepetitionFilter]] = []


def limit_repetitions(handler: logging.Handler, name: str, clock: Callable[[], float] = time.monotonic) -> None:
    """Write lines of this logger and its children through the handler only a few times a minute each.

    Parameters:
        clock: seconds of a monotonic clock.
    """
    added = RepetitionFilter(handler, name, clock)
    handler.addFilter(added)
    if not _filters:
        atexit.register(report_repetitions, is_final=True)
    _filters[:] = [each for each in _filters if each() is not None]
    _filters.append(weakref.ref(added))


def report_repetitions(is_final: bool = False) -> None:
    """Write the counts that are due to all logs. Programs call it periodically, because a log may be quiet after many
    repetitions.

    Parameters:
        is_final: the program ends, in a way that skips functions registered with `atexit`.
    """
    for reference in list(_filters):
        found = reference()
        if found is not None:
            found.report(is_final)
