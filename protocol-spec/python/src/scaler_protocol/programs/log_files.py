"""Files that log lines are written to.

They have a module of their own, since few programs write to files and importing what rotates them takes a while.
"""

from __future__ import annotations

import io
import logging.handlers

from scaler_protocol.host.output_files import append_output
from scaler_protocol.programs.log_streams import LosesLines


class RotatedLogFile(LosesLines, logging.handlers.TimedRotatingFileHandler):
    """A file that is opened as all output files are."""

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(open(append_output(self.baseFilename), "ab"), encoding=self.encoding)
