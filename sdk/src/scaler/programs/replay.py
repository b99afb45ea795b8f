"""`scaler replay FILE`: repeat what a scheduler has recorded, with the scheduler that is installed here.

Rule: the scheduler's program does it; this one becomes it.
"""

from __future__ import annotations

import os
import sys
from typing import Sequence

from scaler.cluster.appliance import scheduler_command
from scaler.exceptions import ProgramStartError

EXIT_FAILED = 1


def main(arguments: Sequence[str]) -> int:
    """Run the program; returns its exit code where it cannot be run."""
    try:
        command = [*scheduler_command(), "replay", *arguments]
        sys.stdout.flush()
        os.execvp(command[0], command)
    except (ProgramStartError, OSError) as error:
        print(f"scaler replay: {error}", file=sys.stderr)
        return EXIT_FAILED
