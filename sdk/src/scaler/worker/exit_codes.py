"""The exit codes of a worker's program."""

from __future__ import annotations

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_REFUSED = 4
EXIT_NO_SCHEDULER = 5
EXIT_BROKEN_INVARIANT = 70  # a bug of its own; EX_SOFTWARE of sysexits.h
