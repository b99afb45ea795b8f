"""Whether a process that has ended is started again, and when.

Rules: one that was killed is, and one that met an error that it did not foresee, or its own bug, after a pause that
grows while it does not stay. One that says why it cannot go on has ended, and so has one that fails at each start.
"""

from __future__ import annotations

from typing import Optional

EXIT_ERROR = 1  # of a program that met an error that it did not foresee
EXIT_BROKEN_INVARIANT = 70  # of a scheduler that met a bug of its own
_UNFORESEEN = (EXIT_ERROR, EXIT_BROKEN_INVARIANT)
_SHORTEST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_MAXIMUM_ERRORS = 5  # in a row, each soon after the start


class Restarts:
    """What is remembered of one process and those that replaced it."""

    def __init__(self) -> None:
        self._pause_seconds = _SHORTEST_PAUSE_SECONDS
        self._errors = 0

    def pause_seconds(self, code: int, lifetime_seconds: float) -> Optional[float]:
        """How long to wait before the process is replaced; None when it is not.

        Parameters:
            code: with which it ended; the negative number of a signal when that killed it.
            lifetime_seconds: how long it had run.
        """
        if lifetime_seconds > _LONGEST_PAUSE_SECONDS:
            self._pause_seconds, self._errors = _SHORTEST_PAUSE_SECONDS, 0
        self._errors += code in _UNFORESEEN
        if code >= 0 and (code not in _UNFORESEEN or self._errors >= _MAXIMUM_ERRORS):
            return None
        pause_seconds = self._pause_seconds
        self._pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
        return pause_seconds
