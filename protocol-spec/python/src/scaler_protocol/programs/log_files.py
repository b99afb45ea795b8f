"""Files that log lines are written to, one for each day: at midnight, a file gets the date of its day as a suffix.

They have a module of their own, since few programs write to files and importing what rotates them takes a while.

Rules:
- No line is lost when the day ends. A worker is several processes with one file: the first that writes on the next day
  renames it, and the others go on in the new one.
- A file that cannot be renamed, or has a namesake of that day, also gets the lines of the next day.
- Pipes and devices have no days.
"""

from __future__ import annotations

import contextlib
import io
import logging.handlers
import os
import time

from scaler_protocol.host import system
from scaler_protocol.host.output_files import append_output
from scaler_protocol.programs.log_streams import LosesLines


class RotatedLogFile(LosesLines, logging.handlers.TimedRotatingFileHandler):
    """A file that is opened as all output files are.

    Parameters:
        path: of the file of today.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, when="midnight", encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(open(append_output(self.baseFilename), "ab"), encoding=self.encoding)

    def computeRollover(self, currentTime: int) -> int:  # noqa: N802, N803  # the standard library's names
        year, month, day, *_ = time.localtime(currentTime)
        return int(time.mktime((year, month, day + 1, 0, 0, 0, 0, 0, -1)))

    def shouldRollover(self, record: logging.LogRecord) -> int:  # noqa: N802
        return int(time.time() >= self.rolloverAt and os.path.isfile(self.baseFilename))

    def doRollover(self) -> None:  # noqa: N802
        day = time.strftime(self.suffix, time.localtime(self.rolloverAt - 1))
        with contextlib.suppress(OSError):
            _rename_once(self.baseFilename, f"{self.baseFilename}.{day}")
        ended, self.stream = self.stream, self._open()
        if ended is not None:
            ended.close()
        self.rolloverAt = self.computeRollover(int(time.time()))


def _rename_once(path: str, dated: str) -> None:
    """Rename a file, unless another process has done so. Raises OSError."""
    while not os.path.exists(dated):
        descriptor = append_output(path)
        try:
            system.flock(descriptor, system.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)) and not os.path.exists(dated):
                os.rename(path, dated)
        finally:
            os.close(descriptor)
