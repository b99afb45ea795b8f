"""The sockets at which a scheduler listens: its address, and a local socket beside it for callers on the same host.

Rules: an address that cannot be listened at is an OSError that says why and what to do. A file that a killed scheduler
left is removed; that of a living one is not.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from typing import Optional, Tuple

from scaler_protocol.host.addresses import Address, local_socket_name, parse_address, resolve

BACKLOG_CONNECTIONS = 1024

logger = logging.getLogger("scaler")


def listen(address: Address) -> Tuple[socket.socket, str]:
    """A listening socket and its address."""
    try:
        family, target = resolve(address, listens=True)
        if address.path and not address.path.startswith("@"):
            _remove_stale_socket_file(address)
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if family != socket.AF_UNIX:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind(target)
            listener.listen(BACKLOG_CONNECTIONS)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        hint = "; use another port, or port 0 for any free one" if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"cannot listen at {address}: {error.strerror or error}{hint}") from error
    if address.path:
        return listener, str(address)
    host, port = listener.getsockname()[:2]
    return listener, str(Address(host, port))


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
