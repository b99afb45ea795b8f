"""Who is at the other end of a Unix domain socket: the kernel knows, and cannot be deceived."""

from __future__ import annotations

import os
import socket
import struct

_PEER_CREDENTIALS: int = getattr(socket, "SO_PEERCRED", 17)  # PyPy 3.9 lacks the name
_CREDENTIALS = struct.Struct("iII")  # Linux's `struct ucred`: process, user, group
_ROOT = 0


def user_of_peer(stream: socket.socket) -> int:
    """The user id of the process that connected, or that listened, at the other end of a Unix domain socket.

    Raises OSError.
    """
    _, user, _ = _CREDENTIALS.unpack(stream.getsockopt(socket.SOL_SOCKET, _PEER_CREDENTIALS, _CREDENTIALS.size))
    return int(user)


def is_trusted_user(user: int) -> bool:
    """Whether a user can do whatever this process can: the same user, or root."""
    return user in (_ROOT, os.getuid())
