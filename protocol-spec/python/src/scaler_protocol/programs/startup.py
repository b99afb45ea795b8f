"""How the programs begin and end: Ctrl-C is no error, however early or late it comes, nor is a reader that has enough.

Rule: nothing is imported here but what costs nothing: what takes time is imported by `load`, where it is watched over.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import Callable

EXIT_INTERRUPTED = 130  # as shells have it


def run_program(load: Callable[[], Callable[[], int]]) -> int:
    """Import a program and run it; its exit code, or EXIT_INTERRUPTED when Ctrl-C came before it looked after that.

    It is 0 when whoever reads the output has gone, as in `scaler_scheduler --print-config | head -1`.

    Parameters:
        load: imports the program, and returns its main function.
    """
    _open_what_is_closed()
    try:
        try:
            code = load()()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        if not _has_lost_its_reader(sys.stdout.fileno()):
            raise  # another pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor shall the interpreter flush what is left
        code = 0
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # there is nothing left to tidy up, nor to be told
    return code


def _open_what_is_closed() -> None:
    """A program that is started as in `scaler_scheduler >&-` writes to nowhere.

    Else sys.stdout is None, and what the program opens first takes the place of its standard output.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # for as long as this process lives
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)


def _has_lost_its_reader(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))
