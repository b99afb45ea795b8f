"""Starts a program of an unpacked copy; the files in its folder `programs` import this.

Rule: a module of the copy that cannot be imported means that the copy lost it. It is not used again: the launcher
unpacks a new one at the next start. What was never in the copy, such as a class that a logging configuration names, is
the user's error.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Optional

COPY = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
SEAL = os.path.join(COPY, "complete")


def start(module: str, function: str, with_stand_ins: bool = False) -> None:
    """Run `function` of `module` and end with its exit code.

    Parameters:
        with_stand_ins: add empty stand-ins for modules of the standard library that the copy lacks.
    """
    # Hashes are for names of small files and of keys here: those without OpenSSL will do.
    warnings.filterwarnings("ignore", "The _hashlib module", RuntimeWarning)
    if with_stand_ins:
        import asyncio  # noqa: F401  imported early, so that it sees that a module is missing

        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_ins"))
    try:
        code = getattr(importlib.import_module(module), function)()
    except ImportError as error:
        if not _is_of_copy(error.name):
            raise
        program = os.path.basename(sys.argv[0])
        try:
            os.unlink(SEAL)
            hint = f"start {program} again to unpack it again"
        except OSError:
            hint = f"delete that folder and start {program} again"
        sys.exit(f"{program}: {error}: what was unpacked to {COPY} is damaged; {hint}")
    sys.exit(code)


def _is_of_copy(module: Optional[str]) -> bool:
    try:
        with open(SEAL) as seal:
            return module is not None and module.partition(".")[0] in seal.read().split()
    except OSError:
        return True
