"""Who is at the other end of a Unix domain socket: the kernel knows, and cannot be deceived."""

from __future__ import annotations

import os
import socket
import struct

_PEER_CREDENTIALS: int = getattr(socket, "SO_PEERCRED", 17)  # PyPy 3.9 lacks the name
_CREDENTIALS = struct.Struct("iII")  # Linux's `struct ucred`: process, user, group
_ROOT = 0


def is_of_this_user(stream: socket.socket) -> bool:
    """Whether the kernel says that the other end of a connected Unix domain socket belongs to this user or root.

    They can do whatever this process can. Of a listening program, it is the user that made the socket; of a caller, the
    one that called.
    """
    if stream.family != socket.AF_UNIX:
        return False
    try:
        found = stream.getsockopt(socket.SOL_SOCKET, _PEER_CREDENTIALS, _CREDENTIALS.size)
        return _CREDENTIALS.unpack(found)[1] in (_ROOT, os.geteuid())
    except (OSError, struct.error):  # a system without SO_PEERCRED
        return False
