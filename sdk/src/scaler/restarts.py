"""Whether and when an ended process is restarted.

Rules: a killed process is restarted. So is one that met an unexpected error or a bug of its own, after a pause that
grows while its successors also end early. A process that ends with a reason is not restarted, nor is one that fails
at every start.
"""

from __future__ import annotations

from typing import Optional

EXIT_ERROR = 1  # of a program that met an unexpected error
EXIT_BROKEN_INVARIANT = 70  # of a scheduler or worker that met a bug of its own
_UNFORESEEN = (EXIT_ERROR, EXIT_BROKEN_INVARIANT)
_SHORTEST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_MAXIMUM_ERRORS = 5  # consecutive, each soon after the start


class Restarts:
    """The restart history of one process and its successors."""

    def __init__(self) -> None:
        self._pause_seconds = _SHORTEST_PAUSE_SECONDS
        self._errors = 0

    def pause_seconds(self, code: int, lifetime_seconds: float) -> Optional[float]:
        """The pause before the process is replaced; None if it is not.

        Parameters:
            code: its exit code, or the negative number of the signal that killed it.
            lifetime_seconds: how long it ran.
        """
        if lifetime_seconds > _LONGEST_PAUSE_SECONDS:
            self._pause_seconds, self._errors = _SHORTEST_PAUSE_SECONDS, 0
        self._errors += code in _UNFORESEEN
        if code >= 0 and (code not in _UNFORESEEN or self._errors >= _MAXIMUM_ERRORS):
            return None
        pause_seconds = self._pause_seconds
        self._pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
        return pause_seconds
