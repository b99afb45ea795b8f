"""`scaler scheduler`, `worker`, `provision`, `top` and `ui`: programs that also have names of their own.

Rule: this process becomes the program, so that its signals, its exit code and its questions to a terminal are its own.
"""

from __future__ import annotations

import os
import sys
from typing import Callable, Dict, List, Sequence

from scaler.cluster.appliance import interface_command, scheduler_command, top_command
from scaler.exceptions import ProgramStartError, with_page

EXIT_NOT_FOUND = 127
"""Of shells, for a command that is not installed."""

_COMMANDS: Dict[str, Callable[[], List[str]]] = {
    "scheduler": scheduler_command,
    "worker": lambda: [sys.executable, "-m", "scaler.worker"],
    "provision": lambda: [sys.executable, "-m", "scaler.provision"],
    "top": top_command,
    "ui": interface_command,
}


def main(word: str, arguments: Sequence[str]) -> int:
    """Become the program.

    Parameters:
        word: one of the programs, without `scaler_`.

    Returns an exit code, and only if the program cannot be run.
    """
    try:
        command = [*_COMMANDS[word](), *arguments]
        sys.stdout.flush()
        os.execvp(command[0], command)
    except (ProgramStartError, OSError) as error:
        print(f"scaler {word}: error: {with_page(error)}", file=sys.stderr)
        return EXIT_NOT_FOUND
