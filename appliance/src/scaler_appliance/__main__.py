"""`python -m scaler_appliance ADDRESS` is `scaler_scheduler ADDRESS`; with the argument `replay` it repeats a
recording, with `keys` it is `scaler keys`, with `ping` it asks a scheduler for an answer, and with `--self-test` it
tests itself.

Rule: hardly anything is imported before PyPy runs with the right size of the young generation of its garbage collector,
which can only be set when the interpreter starts (see ADR 0009).
"""

from __future__ import annotations

import os
import sys
from typing import Callable

from scaler_appliance.just_in_time import pause_compiling, resume_compiling

NURSERY_VARIABLE = "PYPY_GC_NURSERY"
NURSERY_SIZE = "16M"


def main() -> int:
    """Run the program; its exit code."""
    if sys.implementation.name == "pypy" and NURSERY_VARIABLE not in os.environ:
        os.environ[NURSERY_VARIABLE] = NURSERY_SIZE
        os.execv(sys.executable, [sys.executable, *_program(), *sys.argv[1:]])
    pause_compiling()
    from scaler_protocol.programs.startup import run_program

    return run_program(_load)


def _load() -> Callable[[], int]:
    if sys.argv[1:2] == ["replay"]:
        from scaler_appliance.shell.replay_program import main as replay

        resume_compiling()
        return lambda: replay(sys.argv[2:])
    if sys.argv[1:2] == ["keys"]:
        from scaler_protocol.keys.command import main as keys

        return lambda: keys(sys.argv[2:], "scaler_scheduler keys")
    if sys.argv[1:2] == ["ping"]:
        from scaler_appliance.checks.ping import main as ping

        return lambda: ping(sys.argv[2:])
    if sys.argv[1:] == ["--self-test"]:
        from scaler_appliance.checks.self_test import main as test

        return test
    from scaler_appliance.shell.scheduler_program import main as run

    return run


def _program() -> list[str]:
    """The command line with which this interpreter runs this program."""
    if sys.flags.isolated:
        # In a pex, argv[0] is the archive, which would unpack and choose an interpreter again.
        return ["-I", "-m", "scaler_appliance"]
    return ["-m", "scaler_appliance"] if sys.argv[0] == __file__ else [sys.argv[0]]


if __name__ == "__main__":
    sys.exit(main())
