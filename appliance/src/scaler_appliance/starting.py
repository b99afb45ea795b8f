"""How the programs begin and end: Ctrl-C is no error, however early or late it comes.

Rule: nothing is imported here but what costs nothing: what takes time is imported by `load`, where it is watched over.
"""

from __future__ import annotations

import signal
from typing import Callable

EXIT_INTERRUPTED = 130  # as shells have it


def run_program(load: Callable[[], Callable[[], int]]) -> int:
    """Import a program and run it; its exit code, or EXIT_INTERRUPTED when Ctrl-C came before it looked after that.

    Parameters:
        load: imports the program, and returns its main function.
    """
    try:
        code = load()()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # there is nothing left to tidy up, nor to be told
    return code
