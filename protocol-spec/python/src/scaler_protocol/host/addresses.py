"""Addresses of schedulers: `tcp://HOST:PORT` and `ipc://PATH`, as ZeroMQ writes them.

Rules:
- Reading an address resolves nothing and opens nothing; `resolve` asks the system for what a host name means.
- A path that begins with `@` is a name in Linux's abstract namespace, which needs no file.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import socket
import sys
from typing import NamedTuple, Optional, Tuple, Union

MAXIMUM_PATH_BYTES = 107  # of a Unix domain socket's address

_TCP = re.compile(r"tcp://(?P<host>\[[0-9a-fA-F:.%a-z]+\]|[^:/\[\]]+|\*):(?P<port>\d{1,5}|\*)")
_IPC = re.compile(r"ipc://(?P<path>.+)", re.DOTALL)

_LOOPBACK_HOSTS = {
    "localhost": "127.0.0.1",
    "127.0.0.1": "127.0.0.1",
    "::1": "::1",
    "0.0.0.0": "127.0.0.1",  # who listens everywhere listens there too
    "*": "127.0.0.1",
}

_NO_ANSWER = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH)

SocketAddress = Union[str, Tuple[str, int], Tuple[str, int, int, int]]


class AddressError(ValueError):
    """An address that cannot be used; the message says what one looks like."""


class Address(NamedTuple):
    """A parsed address: `path` for Unix domain sockets, else `host` and `port`.

    Port 0 (also written `*`) lets the system choose one, host `*` is every network interface: both only make sense for
    who listens.
    """

    host: str
    port: int
    path: str = ""

    @property
    def is_local(self) -> bool:
        """Whether it can only be of this host: a path, or a loopback address."""
        return bool(self.path) or self.host in _LOOPBACK_HOSTS

    def __str__(self) -> str:
        if self.path:
            return f"ipc://{self.path}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read an address.

    Raises AddressError.
    """
    tcp = _TCP.fullmatch(text)
    if tcp is not None:
        port = 0 if tcp["port"] == "*" else int(tcp["port"])
        if port <= 65535:
            return Address(tcp["host"].strip("[]"), port)
    ipc = _IPC.fullmatch(text)
    if ipc is not None and len(ipc["path"].encode()) <= MAXIMUM_PATH_BYTES:
        return Address("", 0, ipc["path"])
    if ipc is not None:
        raise AddressError(f"{text!r}: the path is longer than {MAXIMUM_PATH_BYTES} bytes")
    raise AddressError(
        f"{text!r} is not a scheduler address: use one such as tcp://127.0.0.1:2345 or ipc:///tmp/scaler"
    )


def shortcut_of(address: Address) -> Optional[str]:
    """The name of the Unix domain socket that stands beside a TCP address of this host; None where there is none.

    Bytes that stay on one host need no TCP, which makes up half of what sending a small message costs. The name is one
    in Linux's abstract namespace: it has no file, and belongs to the same network namespace as the port.
    """
    host = _LOOPBACK_HOSTS.get(address.host)
    return None if host is None or not sys.platform.startswith("linux") else f"\0scaler/{host}:{address.port}"


def why_not_connected(address: Address, error: OSError) -> str:
    """What went wrong when an address was connected to, in words: refused, no answer, no permission, no such host."""
    reason = error.strerror or str(error)
    if isinstance(error, socket.gaierror):
        return f"the host name in {address} is not known here ({reason})"
    if error.errno in (errno.EACCES, errno.EPERM):
        whose = _owner(address.path) if address.path else ""
        return f"no permission to connect to {address} ({reason}){whose}"
    if isinstance(error, (TimeoutError, socket.timeout)) or error.errno in _NO_ANSWER:  # two classes before 3.10
        return f"no answer from {address} ({reason}): a firewall drops what is sent there, or the host is down"
    return f"nothing listens at {address} ({reason})"


def why_not_greeted(address: Address, has_spoken: bool, is_scheduler: bool = False) -> str:
    """What a peer is that took the connection, and then did not answer in time.

    Parameters:
        has_spoken: it began to speak ZeroMQ's protocol.
        is_scheduler: that is known otherwise.
    """
    if is_scheduler:
        return f"the scheduler at {address} took the connection and did not answer in time: it is busy, or stopped"
    what = f"what listens at {address} took the connection"
    if has_spoken:
        return f"{what}, speaks ZeroMQ's protocol, and did not answer in time: a busy scheduler, or another program"
    return f"{what} and said nothing in time: a scheduler that is busy or stopped, or another program"


def why_foreign(address: Address, first_words: bytes) -> str:
    """What a server is that speaks another protocol."""
    first_line = first_words.splitlines()[0] if first_words.strip() else first_words
    return f"what listens at {address} is not a Scaler scheduler: it begins with {first_line[:40]!r}"


def _owner(path: str) -> str:
    """Whose a socket is, to be put in a message; empty where that is not to be known."""
    try:
        number = os.stat(path).st_uid
    except OSError:
        return ""
    try:
        return f": the socket belongs to {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f": the socket belongs to user {number}"


def resolve(address: Address, listens: bool = False) -> Tuple[int, SocketAddress]:
    """The socket family and the address that the system's calls take.

    Raises OSError when the host is not known.
    """
    if address.path:
        return socket.AF_UNIX, "\0" + address.path[1:] if address.path.startswith("@") else address.path
    host = "0.0.0.0" if address.host == "*" else address.host
    flags = socket.AI_PASSIVE if listens else 0
    try:
        found = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError:  # no name at all: a part of it is empty, or too long
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    family, _, _, _, target = min(found, key=lambda entry: entry[0] != socket.AF_INET)  # IPv4 first, as ZeroMQ does
    return family, target  # type: ignore[return-value]  # typeshed allows for other families
