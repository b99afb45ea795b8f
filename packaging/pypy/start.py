"""Starts a program of an unpacked copy; the files in its folder `programs` import this.

Rules:
- A module of the copy that cannot be imported means that the copy lost it. It is not used again: the launcher unpacks a
  new one at the next start. What was never in the copy, such as a class that a logging configuration names, is the
  user's error.
- The self-test reads all files of the copy first: these are checksums against accidents, not against attackers.
"""

from __future__ import annotations

import os
import sys

from scaler_module_archive import NAME, import_from

TYPE_CHECKING = False  # as in `typing`, which is in the archive
if TYPE_CHECKING:
    from typing import List, NoReturn, Optional, Tuple

COPY = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
LIBRARY = os.path.dirname(os.path.abspath(__file__))
SEAL = os.path.join(COPY, "complete")
CHECKSUMS = os.path.join(COPY, "checksums")  # a line for each file: CRC-32 in hexadecimal digits, a blank, its path


def start(module: str, function: str, with_stand_ins: bool = False) -> None:
    """Run `function` of `module` and end with its exit code.

    Parameters:
        with_stand_ins: add empty stand-ins for modules of the standard library that the copy lacks.
    """
    try:
        import_from(os.path.join(LIBRARY, NAME), LIBRARY)
        import importlib
        import warnings
    except ImportError as error:
        _give_up(str(error))
    # Hashes are for names of small files and of keys here: those without OpenSSL will do.
    warnings.filterwarnings("ignore", "The _hashlib module", RuntimeWarning)
    if with_stand_ins:
        import asyncio  # noqa: F401  imported early, so that it sees that a module is missing

        sys.path.append(os.path.join(LIBRARY, "stand_ins"))
    if sys.argv[1:] == ["--self-test"]:
        _check_copy()
    try:
        code = getattr(importlib.import_module(module), function)()
    except ImportError as error:
        if not _is_of_copy(error.name):
            raise
        _give_up(str(error))
    sys.exit(code)


def _give_up(why: str) -> NoReturn:
    """End the program, and see to it that the next start has a new copy."""
    program = os.path.basename(sys.argv[0])
    try:
        os.unlink(SEAL)
        hint = f"start {program} again to unpack it again"
    except OSError:
        hint = f"delete that folder and start {program} again"
    sys.exit(f"{program}: {why}: what was unpacked to {COPY} is damaged; {hint}")


def _check_copy() -> None:
    """Read all files of the copy; end the program if one is missing or differs from what was packed."""
    count, damaged = _damaged_files()
    if damaged:
        others = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        _give_up(f"{damaged[0]} is missing or was changed{others}")
    print(f"unpacked: {count} files in {COPY}, as they were packed")


def _damaged_files() -> Tuple[int, List[str]]:
    """How many files there should be, and those that are missing or differ."""
    import zlib  # which only this needs

    try:
        with open(CHECKSUMS, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return 1, [os.path.basename(CHECKSUMS)]
    damaged = []
    for line in lines:
        checksum, _, name = line.partition(" ")
        try:
            with open(os.path.join(COPY, name), "rb") as opened:
                is_same = zlib.crc32(opened.read()) == int(checksum, 16)
        except OSError:
            is_same = False
        if not is_same:
            damaged.append(name)
    return len(lines), damaged


def _is_of_copy(module: Optional[str]) -> bool:
    try:
        with open(SEAL) as seal:
            return module is not None and module.partition(".")[0] in seal.read().split()
    except OSError:
        return True
