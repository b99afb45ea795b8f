"""What asks a worker to end before it has begun: it leaves at once, with exit code 0, as one that has drained.

    interpreter starts ──▶ leave_on_signals ──▶ imports, options, fork server ──▶ the agent's own handlers
       (it is killed)        (it leaves: there is nothing to finish and nothing to hand over)

Rules:
- This is the first that the program runs, so nothing is imported here that takes time.
- A signal that is ignored, as by nohup, stays ignored.
- Also the first process of a container has a handler by this: the kernel drops signals for which such a process has
  none.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Iterable, Optional


def leave_on_signals(numbers: Iterable[int] = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))) -> None:
    """Let these signals end this process with exit code 0, until it has other handlers; for the main thread."""
    for number in numbers:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _leave)


def _leave(_number: int, _frame: Optional[FrameType]) -> None:
    os._exit(0)  # and no exception, which whatever runs now might catch
