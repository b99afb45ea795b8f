"""Notices of workers about the code that runs a client's tasks, logged once for each subject."""

from __future__ import annotations

import logging
from typing import Set

from scaler.values.code_notes import notice_from_log

logger = logging.getLogger("scaler")

MAXIMUM_SUBJECTS = 1000


class Notices:
    """Logs notices, in the I/O thread."""

    def __init__(self) -> None:
        self._subjects: Set[str] = set()

    def on_text(self, text: str) -> None:
        """A worker sent a notice."""
        notice = notice_from_log(text)
        if notice is not None and notice.subject not in self._subjects and len(self._subjects) < MAXIMUM_SUBJECTS:
            self._subjects.add(notice.subject)
            logger.warning("Client: %s", notice.text)
