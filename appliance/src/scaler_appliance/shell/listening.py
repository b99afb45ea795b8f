"""The sockets at which a scheduler listens: its address, a local socket beside it for callers on the same host, and the
address for monitors.

Rules:
- An address that cannot be listened at is an OSError that says why and what to do.
- A file that a killed scheduler left is removed; that of a living one is not.
- Only its owner can access the file of a private socket, from the moment it is created.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import time
from typing import Optional, Pattern, Tuple

from scaler_protocol.host.addresses import WILDCARDS, Address, Target, local_socket_name, parse_address, resolve

BACKLOG_CONNECTIONS = 1024
ABANDONED_AFTER_SECONDS = 60.0
_PRIVATE_UMASK = 0o177
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)

logger = logging.getLogger("scaler")


def listen(address: Address, is_private: bool = False, advice: str = "") -> Tuple[socket.socket, str]:
    """A listening socket and its address, as programs in any folder can use it.

    Parameters:
        is_private: whether other users may not connect, if it is a file.
        advice: what to do if one cannot listen there, for the error.

    Raises OSError.
    """
    umask = os.umask(_PRIVATE_UMASK) if is_private else None
    try:
        if address.path and not address.path.startswith("@"):
            _remove_stale_socket_file(address)
        listener = _bound(address)
    except OSError as error:
        if not advice and error.errno == errno.EADDRINUSE:
            advice = "use another port, or port 0 for any free one"
        hint = f"; {advice}" if advice else ""
        raise OSError(f"cannot listen at {address}: {error.strerror or error}{hint}") from error
    finally:
        if umask is not None:
            os.umask(umask)
    if address.path:
        return listener, str(address.from_any_folder())
    host, port = listener.getsockname()[:2]
    return listener, str(Address(host, port))


def _bound(address: Address) -> socket.socket:
    """A socket that listens at an address; at a wildcard for IPv6 and IPv4, or for the one that the system has."""
    if address.host in WILDCARDS:
        try:
            return _bound_to((socket.AF_INET6, ("::", address.port, 0, 0)), both_families=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
            address = address._replace(host="0.0.0.0")
    return _bound_to(resolve(address, listens=True))


def _bound_to(target: Target, both_families: bool = False) -> socket.socket:
    family, name = target
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both_families)
        if family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(name)
        listener.listen(BACKLOG_CONNECTIONS)
    except BaseException:
        listener.close()
        raise
    return listener


def listen_locally(address: Address) -> Optional[socket.socket]:
    """A listening Unix socket for callers on this host; without it they use TCP like all others."""
    name = local_socket_name(address)
    if name is None:
        return None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    try:
        listener.bind(name)
        listener.listen(BACKLOG_CONNECTIONS)
    except OSError as error:
        logger.warning("Scheduler: callers on this host use TCP: its local socket %s is in use (%s)", address, error)
        listener.close()
        return None
    return listener


def _remove_stale_socket_file(address: Address) -> None:
    """Remove the socket file that a killed scheduler left behind, because it would block the next one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            os.unlink(address.path)
        except OSError:
            pass  # there is none, or listening will report the error


def remove_socket_file(address: str) -> None:
    """Remove the file of a Unix socket, if the address is one."""
    path = parse_address(address).path
    if path and not path.startswith("@"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


def sweep_abandoned(directory: str, names: Pattern[str]) -> None:
    """Remove this user's sockets that have such names, and at which no process listens, from a directory.

    Raises OSError if the directory cannot be read.
    """
    for entry in os.scandir(directory) if os.path.isdir(directory) else ():
        try:
            if names.fullmatch(entry.name) and _is_abandoned(entry):
                os.unlink(entry.path)
        except OSError:
            pass  # another process was faster, or owns it


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        return False
    if time.time() - status.st_mtime < ABANDONED_AFTER_SECONDS:
        return False  # its owner may be about to listen
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(entry.path)
        except ConnectionRefusedError:
            return True
    return False
