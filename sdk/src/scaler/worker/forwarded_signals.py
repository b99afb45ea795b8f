"""By which signals a supervisor tells its agent of those that it gets.

Rule: an agent has to tell a signal that was forwarded from the same one that it gets itself, because some systems send
signals to all processes of a program. Real-time signals are used for that, where there are any: their default action is
to end the process, too.
"""

from __future__ import annotations

import signal
from typing import Dict

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FIRST = getattr(signal, "SIGRTMIN", 0)  # of which the C library uses the first few

FORWARDED_AS: Dict[signal.Signals, int] = {
    number: int(_FIRST) + place if _FIRST else int(number) for place, number in enumerate(_ENDING, start=5)
}
"""The signal that stands for each of those that ask a program to end."""
