"""Program startup and exit: Ctrl-C at any time and a closed reader of the output are not errors; a full disk behind the
output is one of a line.

Rules:
- Only cheap imports here; slow imports happen in `load`, where Ctrl-C is handled.
- The garbage collector runs neither while modules are imported nor when the process ends: it would find nothing in the
  one case, and what it found in the other ends with the process anyway.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import select
import signal
import sys
from typing import Callable

EXIT_UNWRITTEN = 1
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
EXIT_INTERRUPTED = 130  # the shells' convention


def run_program(load: Callable[[], Callable[[], int]]) -> int:
    """Import a program and run it; returns its exit code, or EXIT_INTERRUPTED if Ctrl-C came before the program handles
    it.

    The code is 0 if the reader of the output has gone, as in `scaler_scheduler --print-config | head -1`, and
    EXIT_UNWRITTEN if the output cannot be written for another reason.

    Parameters:
        load: imports the program, and returns its main function.
    """
    _open_what_is_closed()
    if hasattr(gc, "freeze"):  # PyPy has none
        atexit.register(gc.freeze)
    try:
        try:
            code = _without_collections(load)()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        if not _has_lost_its_reader(sys.stdout.fileno()):
            raise  # another pipe
        _discard_output()
        code = 0
    except OSError as error:
        if error.errno not in _NO_ROOM or not _is_output_full():
            raise
        print(f"cannot write to the standard output: {error.strerror or error}", file=sys.stderr)
        _discard_output()
        code = EXIT_UNWRITTEN
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # there is nothing left to clean up
    return code


def _without_collections(load: Callable[[], Callable[[], int]]) -> Callable[[], int]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return load()
    finally:
        if was_enabled:
            gc.enable()


def _open_what_is_closed() -> None:
    """Open the null device for closed standard streams, as in `scaler_scheduler >&-`.

    Otherwise sys.stdout would be None, and the first file that the program opens would become its standard output.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # uses the lowest free number
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # open for the life of this process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the final flush succeeds


def _is_output_full() -> bool:
    """Whether the output takes no further line."""
    try:
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), b"\n")
    except OSError as error:
        return error.errno in _NO_ROOM
    return False


def _has_lost_its_reader(descriptor: int) -> bool:
    if not hasattr(select, "poll"):
        return True  # Windows: the most likely pipe
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def has_terminal() -> bool:
    """Whether the standard input is a terminal that has not hung up."""
    if not hasattr(os, "tcgetpgrp"):
        return sys.stdin.isatty()
    try:
        os.tcgetpgrp(0)
    except OSError:
        return False
    return True
