"""The log lines that every program of the product writes, in the form its users' tools know.

Rules:
- One format, `[INFO]2023-03-19 12:16:10-0400: message`, or, for programs that read logs, a JSON object a line with the
  same names in each; only the `scaler` logger is configured, never the root logger.
- Where lines go, how files rotate and how a configuration file is read is the standard library's business.
- A line that cannot be written, since a disk is full or a reader has gone, is told once on standard error, in one line:
  the program goes on with its work.
"""

from __future__ import annotations

import contextlib
import logging
import logging.config
import logging.handlers
import sys
import time
from typing import Dict, Optional, Sequence

LOGGER_NAME = "scaler"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FORMATS = ("text", "json")

_FORMAT = "[%(levelname)s]%(asctime)s: %(message)s"
_DATE_FORMAT = "%Y-%m-%d %H:%M:%S%z"


class JsonFormatter(logging.Formatter):
    """A JSON object for each record, on one line: `time` (ISO 8601, with the offset from UTC), `level`, `logger`,
    `process`, `message`, and `exception`, a traceback, where there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        import json

        then = time.localtime(record.created)
        offset = time.strftime("%z", then)
        fields: Dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', then)}.{int(record.msecs):03d}{offset[:3]}:{offset[3:]}",
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def setup_logging(
    paths: Sequence[str], level: str, config_file: Optional[str] = None, line_format: str = "text"
) -> logging.Logger:
    """Configure the `scaler` logger and return it.

    Parameters:
        paths: `/dev/stdout` or `-`, `/dev/stderr`, or files (rotated at midnight).
        level: one of LEVELS.
        config_file: a `logging.config.fileConfig` file, which then decides everything.
        line_format: one of FORMATS.

    Raises:
        ValueError: the level is none of LEVELS, or the format none of FORMATS.
        OSError: a file cannot be opened.
    """
    logger = logging.getLogger(LOGGER_NAME)
    if config_file is not None:
        logging.config.fileConfig(config_file, disable_existing_loggers=False)
        logger.info("logging as in %s", config_file)
        return logger
    if level.upper() not in LEVELS:
        raise ValueError(f"unknown logging level {level!r}: use one of {', '.join(LEVELS)}")
    if line_format not in FORMATS:
        raise ValueError(f"unknown logging format {line_format!r}: use one of {', '.join(FORMATS)}")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    formatter = JsonFormatter() if line_format == "json" else logging.Formatter(_FORMAT, datefmt=_DATE_FORMAT)
    for path in paths:
        handler = _make_handler(path)
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    logger.info("logging to %s", tuple(paths))
    return logger


class _LosesLines(logging.Handler):
    """A handler whose lines cannot be written now and then."""

    _has_told = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the standard library's name
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._has_told:
            self._has_told = True
            with contextlib.suppress(OSError):
                print(f"scaler: log lines are lost: {error}", file=sys.stderr, flush=True)


class _StreamHandler(_LosesLines, logging.StreamHandler):  # type: ignore[type-arg]
    pass


class _FileHandler(_LosesLines, logging.handlers.TimedRotatingFileHandler):
    pass


def _make_handler(path: str) -> logging.Handler:
    if path in ("/dev/stdout", "-"):
        return _StreamHandler(sys.stdout)
    if path == "/dev/stderr":
        return _StreamHandler(sys.stderr)
    return _FileHandler(path, when="midnight", encoding="utf-8")
