"""`python -m scaler.programs` is `scaler`: `scaler CONFIG.toml`, or `scaler COMMAND …`.

Rule: a first word that is neither a command nor a program is the name of a file.
"""

from __future__ import annotations

import importlib
import sys
from typing import Callable, Dict, List, Optional, Sequence

from scaler_protocol.programs.startup import run_program

COMMANDS: Dict[str, str] = {
    "dev": "scaler.programs.dev",
    "drain": "scaler.programs.drain",
    "keys": "scaler_protocol.keys.command",
    "replay": "scaler.programs.replay",
    "up": "scaler.programs.up",
}
"""The module of each command, by its name."""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the program; its exit code."""
    return run_program(lambda: _program(arguments))


def _program(arguments: Optional[Sequence[str]]) -> Callable[[], int]:
    given: List[str] = list(sys.argv[1:] if arguments is None else arguments)
    module = COMMANDS.get(given[0]) if given else None
    if module is not None:
        run_command = importlib.import_module(module).main
        return lambda: int(run_command(given[1:]))
    from scaler.programs.other_programs import PROGRAMS
    from scaler.programs.other_programs import main as run_other

    if given and given[0] in PROGRAMS:
        return lambda: run_other(given[0], given[1:])
    from scaler.programs.from_file import main as run_file

    return lambda: run_file(given)


if __name__ == "__main__":
    sys.exit(main())
