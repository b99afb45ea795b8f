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

PROGRAMS: Dict[str, Callable[[], List[str]]] = {
    "scheduler": scheduler_command,
    "worker": lambda: [sys.executable, "-m", "scaler.worker"],
    "provision": lambda: [sys.executable, "-m", "scaler.provision"],
    "top": top_command,
    "ui": interface_command,
}
"""What runs each of them, by the word that stands for it: `scaler top` is `scaler_top`."""


def main(word: str, arguments: Sequence[str]) -> int:
    """Become the program that a word stands for; an exit code, if that cannot be run."""
    return become(PROGRAMS[word], arguments, f"scaler {word}: error", EXIT_NOT_FOUND)


def become(command_of: Callable[[], List[str]], arguments: Sequence[str], beginning: str, exit_code: int) -> int:
    """Become another program. Returns only if that cannot be run.

    Parameters:
        command_of: returns the command that runs it, or raises ProgramStartError.
        beginning: of what is printed if it cannot be run.
        exit_code: to be returned then.
    """
    try:
        command = [*command_of(), *arguments]
        sys.stdout.flush()
        os.execvp(command[0], command)
    except (ProgramStartError, OSError) as error:
        print(f"{beginning}: {with_page(error)}", file=sys.stderr)
        return exit_code
