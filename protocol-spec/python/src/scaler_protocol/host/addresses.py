"""Addresses of schedulers: `tcp://HOST:PORT` and `ipc://PATH`, as ZeroMQ writes them.

Rules:
- Parsing an address resolves nothing and opens nothing; `resolve` looks the host name up.
- A path that begins with `@` is a name in Linux's abstract namespace, without a file.
"""

from __future__ import annotations

import errno
import os
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
    "0.0.0.0": "127.0.0.1",  # a wildcard listener listens on loopback too
    "*": "127.0.0.1",
}

_NO_ANSWER = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH)

SocketAddress = Union[str, Tuple[str, int], Tuple[str, int, int, int]]


class AddressError(ValueError):
    """An address that cannot be used; the message shows the expected form."""


class Address(NamedTuple):
    """A parsed address: `path` for Unix domain sockets, else `host` and `port`.

    Port 0 (also written `*`) lets the system choose one, and host `*` is every network interface. Both are for
    listening only.
    """

    host: str
    port: int
    path: str = ""

    @property
    def is_local(self) -> bool:
        """Whether the address is on this host: a path, or a loopback address."""
        return bool(self.path) or self.host in _LOOPBACK_HOSTS

    def __str__(self) -> str:
        if self.path:
            return f"ipc://{self.path}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse an address.

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


def local_socket_name(address: Address) -> Optional[str]:
    """The name of the Unix domain socket beside a TCP address of this host; None for other addresses and systems.

    Messages on one host need no TCP, which is half of the cost of sending a small message. The name is in Linux's
    abstract namespace: it has no file, and belongs to the same network namespace as the port.
    """
    host = _LOOPBACK_HOSTS.get(address.host)
    return None if host is None or not sys.platform.startswith("linux") else f"\0scaler/{host}:{address.port}"


def why_not_connected(address: Address, error: OSError) -> str:
    """Why a connection attempt failed, in words: refused, no answer, no permission, unknown host, closed at once."""
    reason = error.strerror or str(error)
    if isinstance(error, socket.gaierror):
        return f"unknown host name in {address} ({reason})"
    if error.errno in (errno.EACCES, errno.EPERM):
        whose = _owner(address.path) if address.path else ""
        return f"no permission to connect to {address} ({reason}){whose}"
    if isinstance(error, (TimeoutError, socket.timeout)) or error.errno in _NO_ANSWER:  # two classes before 3.10
        return f"no answer from {address} ({reason}): a firewall drops the packets, or the host is down"
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):  # between two calls of ours
        return why_not_greeted(address, has_spoken=False, has_closed=True)
    return f"nothing listens at {address} ({reason})"


def why_not_greeted(address: Address, has_spoken: bool, is_scheduler: bool = False, has_closed: bool = False) -> str:
    """Why a peer accepted the connection and then did not answer in time.

    Parameters:
        has_spoken: it has started to speak ZeroMQ's protocol.
        is_scheduler: it is known to be a scheduler.
        has_closed: it closed the connection, at this attempt or an earlier one.
    """
    if has_closed:
        closed = f"at {address} accepted the connection and closed it before it answered"
        if is_scheduler:
            return f"the scheduler {closed}: it was stopped, or serves as many peers as it can"
        return f"the program {closed}: a scheduler that was stopped, a forwarder without its target, or another program"
    if is_scheduler:
        return f"the scheduler at {address} accepted the connection and did not answer in time: it is busy or hung"
    what = f"the program at {address} accepted the connection"
    if has_spoken:
        return f"{what}, speaks ZeroMQ's protocol, and did not answer in time: a busy scheduler, or another program"
    return f"{what} and sent nothing in time: a scheduler that is busy or hung, or another program"


def why_foreign(address: Address, first_words: bytes) -> str:
    """The message about a server that speaks another protocol."""
    first_line = first_words.splitlines()[0] if first_words.strip() else first_words
    return f"the program at {address} is not a Scaler scheduler: its first bytes are {first_line[:40]!r}"


def _owner(path: str) -> str:
    """The owner of a socket, for use in a message; empty if it cannot be determined."""
    try:
        number = os.stat(path).st_uid
    except OSError:
        return ""
    try:
        import pwd  # not everywhere

        return f": the socket belongs to {pwd.getpwuid(number).pw_name}"
    except (ImportError, KeyError):
        return f": the socket belongs to user {number}"


def resolve(address: Address, listens: bool = False) -> Tuple[int, SocketAddress]:
    """The socket family and the address for the socket calls.

    Raises OSError if the host is unknown.
    """
    if address.path:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError(errno.EAFNOSUPPORT, "this system has no Unix domain sockets: use an address tcp://HOST:PORT")
        return socket.AF_UNIX, "\0" + address.path[1:] if address.path.startswith("@") else address.path
    host = "0.0.0.0" if address.host == "*" else address.host
    flags = socket.AI_PASSIVE if listens else 0
    try:
        found = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError:  # an invalid name: a label is empty or too long
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    family, _, _, _, target = min(found, key=lambda entry: entry[0] != socket.AF_INET)  # IPv4 first, as ZeroMQ does
    return family, target  # type: ignore[return-value]  # typeshed allows for other families
