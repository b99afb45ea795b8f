"""Who is at the other end of a Unix domain socket: the kernel knows, and cannot be deceived."""

from __future__ import annotations

import socket
import struct
from functools import lru_cache
from typing import Optional

from scaler_protocol.host import system

_PEER_CREDENTIALS: int = getattr(socket, "SO_PEERCRED", 17)  # PyPy 3.9 lacks the name
_CREDENTIALS = struct.Struct("iII")  # Linux's `struct ucred`: process, user, group
_ROOT = 0


def is_of_this_user(stream: socket.socket) -> bool:
    """Whether the kernel says that the other end of a connected Unix domain socket belongs to this user or root.

    They can do whatever this process can. Of a listening program, it is the user that made the socket; of a caller, the
    one that called.
    """
    return user_of_peer(stream) in (_ROOT, system.user_id())


def is_caller_of_this_user(stream: socket.socket) -> bool:
    """Whether the program that has called this one belongs to the same user: both then speak without keys.

    A caller of root does not count, though it can do whatever this process can: it wants this one to prove a key.
    """
    return user_of_peer(stream) == system.user_id()


def is_of_root_alone(stream: socket.socket) -> bool:
    """Whether the other end belongs to root, and this process does not: root does not trust us without a key."""
    return system.user_id() != _ROOT and user_of_peer(stream) == _ROOT


def user_of_peer(stream: socket.socket) -> Optional[int]:
    """The user at the other end; None if that is not known."""
    if stream.family != system.AF_UNIX:
        return None
    try:
        found = stream.getsockopt(socket.SOL_SOCKET, _PEER_CREDENTIALS, _CREDENTIALS.size)
        user = int(_CREDENTIALS.unpack(found)[1])
    except (OSError, struct.error):  # a system without SO_PEERCRED
        return None
    return None if user == user_of_others() else user


@lru_cache(maxsize=1)
def user_of_others() -> Optional[int]:
    """The user id that stands for all users that this user namespace does not know; None if it knows all of them."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as uid_map:
            if uid_map.read().split() == ["0", "0", "4294967295"]:
                return None
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as overflow:
            return int(overflow.read())
    except (OSError, ValueError):
        return None
