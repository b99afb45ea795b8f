"""Streams that log lines are written to."""

from __future__ import annotations

import contextlib
import logging
import sys


class LosesLines(logging.Handler):
    """A handler that may fail to write lines."""

    _has_warned = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the standard library's name
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._has_warned:
            self._has_warned = True
            with contextlib.suppress(OSError):
                print(f"scaler: log lines are lost: {error}", file=sys.stderr, flush=True)


class LogStream(LosesLines, logging.StreamHandler):  # type: ignore[type-arg]
    """A stream that is open already."""
