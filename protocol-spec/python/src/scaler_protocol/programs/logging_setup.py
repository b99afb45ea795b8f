"""Logging setup of all programs: the log format that existing tools expect.

Rules:
- One format, `[INFO]2023-03-19 12:16:10-0400: message`, or, for log collectors, one JSON object per line with stable
  names, or, for systemd's journal, `<6>message`. Only the `scaler` logger is configured, never the root logger.
- The standard library handles destinations, rotation and configuration files.
- Texts come from peers, too: only what this program logs begins a line, and nothing in it controls a terminal. Further
  lines of a text are indented; control characters and direction marks are escaped.
- The same line is written a few times a minute at most (see `repeated_lines`).
- If a line cannot be written, because a disk is full or a reader has gone, this is reported once on standard error, and
  the program continues.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Dict, Optional, Sequence

from scaler_protocol.programs.log_streams import LogStream
from scaler_protocol.programs.repeated_lines import limit_repetitions
from scaler_protocol.programs.terminal_texts import escaped

LOGGER_NAME = "scaler"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FORMATS = ("text", "json", "journal")

_PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
_FORMAT = "[%(levelname)s]%(asctime)s: %(message)s"
_DATE_FORMAT = "%Y-%m-%d %H:%M:%S%z"


class TextFormatter(logging.Formatter):
    """A record begins at the start of a line, and nothing else does."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record)).replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """One JSON object per record, on one line: `time` (ISO 8601, with the offset from UTC), `level`, `logger`,
    `process`, `message`, and `exception`, a traceback, if there is one.
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
        return escaped(json.dumps(fields, ensure_ascii=False))


class JournalFormatter(logging.Formatter):
    """Lines for systemd's journal: each begins with its priority, and has no time, which the journal knows."""

    def format(self, record: logging.LogRecord) -> str:
        priority = f"<{_PRIORITIES.get(record.levelname, _PRIORITIES['INFO'])}>"
        return priority + escaped(super().format(record)).replace("\n", f"\n{priority}    ")


def _formatter(line_format: str) -> logging.Formatter:
    if line_format == "json":
        return JsonFormatter()
    return JournalFormatter() if line_format == "journal" else TextFormatter(_FORMAT, datefmt=_DATE_FORMAT)


def setup_logging(
    paths: Sequence[str], level: str, config_file: Optional[str] = None, line_format: str = "text"
) -> logging.Logger:
    """Configure the `scaler` logger and return it.

    Parameters:
        paths: `/dev/stdout` or `-`, `/dev/stderr`, or files (rotated at midnight).
        level: one of LEVELS.
        config_file: a `logging.config.fileConfig` file, which then controls all logging.
        line_format: one of FORMATS.

    Raises:
        ValueError: the level is not in LEVELS, the format is not in FORMATS, or the configuration file is invalid.
        OSError: a file cannot be opened.
    """
    logger = logging.getLogger(LOGGER_NAME)
    if config_file is not None:
        _configure(config_file)
        for handler in {*logger.handlers, *logging.getLogger().handlers}:
            limit_repetitions(handler, LOGGER_NAME)
        logger.info("logging as in %s", config_file)
        return logger
    if level.upper() not in LEVELS:
        raise ValueError(f"unknown logging level {level!r}: use one of {', '.join(LEVELS)}")
    if line_format not in FORMATS:
        raise ValueError(f"unknown logging format {line_format!r}: use one of {', '.join(FORMATS)}")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    formatter = _formatter(line_format)
    for path in paths:
        handler = _make_handler(path)
        handler.setFormatter(formatter)
        limit_repetitions(handler, LOGGER_NAME)
        logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    logger.info("logging to %s", tuple(paths))
    return logger


def _configure(config_file: str) -> None:
    from logging.config import fileConfig  # which takes a twentieth of a start

    with open(config_file, "rb"):  # what cannot be read is taken for an empty file before Python 3.12
        pass
    try:
        fileConfig(config_file, disable_existing_loggers=False)
    except Exception as error:  # of the parser, of what the file names, and of its expressions
        what = f"the section or key {error} is missing" if isinstance(error, KeyError) else str(error).strip()
        raise ValueError(f"{config_file} is not a valid logging.config file: {what}") from error


def _make_handler(path: str) -> logging.Handler:
    if path in ("/dev/stdout", "-"):
        return LogStream(sys.stdout)
    if path == "/dev/stderr":
        return LogStream(sys.stderr)
    from scaler_protocol.programs.log_files import RotatedLogFile  # like logging.config

    return RotatedLogFile(path)
