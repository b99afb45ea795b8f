"""What systems do differently: the SDK's client also runs on Windows, which has less of POSIX.

Rules:
- Where a flag of an open file does not exist, it is 0: there is nothing to ask for.
- Windows has neither numbers of users nor modes of files that say who may read them. Who may is up to the folder: those
  of a user's profile are private. So all files count as this user's there, and modes are not looked at.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

try:
    import fcntl
except ImportError:  # Windows; an attribute of type None would be taken for a module by type checkers
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

HAS_USERS = hasattr(os, "geteuid")
"""Whether files have owners and modes."""

AF_UNIX: int = getattr(socket, "AF_UNIX", -1)

O_BINARY: int = getattr(os, "O_BINARY", 0)
O_CLOEXEC: int = getattr(os, "O_CLOEXEC", getattr(os, "O_NOINHERIT", 0))
O_NOCTTY: int = getattr(os, "O_NOCTTY", 0)
O_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
O_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)

LOCK_SH, LOCK_EX, LOCK_NB = 1, 2, 4


def user_id() -> int:
    """The number of the user this process acts as; 0 where all files belong to 0."""
    return os.geteuid() if HAS_USERS else 0


def flock(file: Any, operation: int) -> None:
    """Lock an open file, as `fcntl.flock`.

    Raises OSError if it is locked, or there are no such locks here.
    """
    if not _HAS_LOCKS:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    fcntl.flock(file, operation)
