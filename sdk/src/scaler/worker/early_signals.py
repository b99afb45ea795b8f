"""Signals that ask a worker to end before it has begun, and when it ends already: neither is ended by them.

    interpreter starts ──▶ leave_on_signals ──▶ imports, options, fork server ──▶ the agent's own handlers
       (it is killed)        (it leaves with code 0: it has nothing to finish)                │
                                             the interpreter ends ◀── ignore_late_signals ◀───┘

Rules:
- This is the first that the program runs, so nothing is imported here that takes time.
- A program that starts a worker holds its signals back until then: `held_signals`. Otherwise a signal that comes while
  the interpreter starts meets no Python, and ends the process.
- A signal that is ignored, as by nohup, stays ignored.
- Also the first process of a container has a handler by this: the kernel drops signals for which such a process has
  none.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType
from typing import Iterable, Iterator, Optional

from scaler.worker.forwarded_signals import FORWARDED_AS

EARLY = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM), *FORWARDED_AS.values())
"""Signals that ask a worker to end; Ctrl-C is an exception in Python, which programs handle from their start."""


def leave_on_signals(numbers: Iterable[int] = EARLY) -> None:
    """Let these signals end this process with exit code 0, until it has other handlers; for the main thread.

    Those that came before, and were held back, end it now.
    """
    numbers = set(numbers)
    for number in numbers:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _leave)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


@contextlib.contextmanager
def held_signals(others: Iterable[int] = ()) -> Iterator[None]:
    """What this thread starts meanwhile gets these signals, and EARLY, only when it calls `leave_on_signals`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*EARLY, *others})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_late_signals(others: Iterable[int] = ()) -> None:
    """This program ends in any case: a further signal changes neither how, nor its exit code.

    They are ignored by the system, since Python takes its own handlers back before its last objects are gone.

    Parameters:
        others: besides those that end programs.
    """
    for number in (*EARLY, *FORWARDED_AS, *others):
        signal.signal(number, signal.SIG_IGN)


def _leave(_number: int, _frame: Optional[FrameType]) -> None:
    os._exit(0)  # and no exception, which whatever runs now might catch
