"""Addresses of schedulers: `tcp://HOST:PORT` and `ipc://PATH`, as ZeroMQ writes them, and lists of them.

Rules:
- Parsing an address resolves nothing and opens nothing; `resolve` and `resolve_all` look the host name up.
- A path that begins with `@` is a name in Linux's abstract namespace, without a file.
- A list names the places where one scheduler may be, with commas in between, and the first is preferred.
- The wildcard `*`, and `[::]`, listen for IPv6 and IPv4, where the system has both; `0.0.0.0` only for IPv4.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
from contextlib import suppress
from itertools import chain, zip_longest
from typing import List, NamedTuple, Optional, Sequence, Tuple, Union

MAXIMUM_PATH_BYTES = 107  # of a Unix domain socket's address

_TCP = re.compile(r"tcp://(?P<host>\[[0-9a-fA-F:.%a-z]+\]|[^:/\[\]]+|\*):(?P<port>\d{1,5}|\*)")
_IPC = re.compile(r"ipc://(?P<path>.+)", re.DOTALL)
_BETWEEN = re.compile(r",\s*(?=tcp://|ipc://)")

_LOOPBACK_HOSTS = {
    "localhost": "127.0.0.1",
    "127.0.0.1": "127.0.0.1",
    "::1": "::1",
    "0.0.0.0": "127.0.0.1",  # a wildcard listener listens on loopback too
    "*": "127.0.0.1",
    "::": "127.0.0.1",
}
WILDCARDS = ("*", "::")

_UNREACHABLE = (errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN)

SocketAddress = Union[str, Tuple[str, int], Tuple[str, int, int, int]]
Target = Tuple[int, SocketAddress]
"""The family of a socket, and what it connects to."""


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

    def from_any_folder(self) -> Address:
        """The same place, for programs in other folders than this one: a relative path becomes an absolute one.

        If that would be too long for a socket, the path stays as it is.
        """
        if not self.path or self.path.startswith(("@", "/")):
            return self
        path = os.path.abspath(self.path)
        return self if len(path.encode()) > MAXIMUM_PATH_BYTES else self._replace(path=path)


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


def parse_addresses(text: str) -> Tuple[Address, ...]:
    """Parse an address, or several with commas in between.

    Raises AddressError if one of them is malformed, or is there twice.
    """
    parsed = tuple(map(parse_address, _BETWEEN.split(text)))
    if len(set(parsed)) < len(parsed):
        raise AddressError(f"{text!r} names an address twice: leave one of them out")
    return parsed


def local_socket_name(address: Address) -> Optional[str]:
    """The name of the Unix domain socket beside a TCP address of this host; None for other addresses and systems.

    Messages on one host need no TCP, which is half of the cost of sending a small message. The name is in Linux's
    abstract namespace: it has no file, and belongs to the same network namespace as the port.
    """
    host = _LOOPBACK_HOSTS.get(address.host)
    return None if host is None or not sys.platform.startswith("linux") else f"\0scaler/{host}:{address.port}"


class AttemptsFailedError(OSError):
    """No attempt to connect to one of several places has succeeded.

    Parameters:
        failures: the address, the host that its name stands for (empty if it has none, or was not resolved), and what
            happened there.
    """

    def __init__(self, failures: Sequence[Tuple[Address, str, OSError]]) -> None:
        numbers = [error.errno for _, _, error in failures if not isinstance(error, socket.gaierror)]
        number = errno.ECONNREFUSED if errno.ECONNREFUSED in numbers else next(iter(numbers), errno.EHOSTUNREACH)
        super().__init__(number, "; ".join(dict.fromkeys(_why_not_at(*failure) for failure in failures)))
        self.failures = failures


def why_not_connected(address: Address, error: OSError) -> str:
    """Why a connection attempt failed, in words: refused, no answer, unreachable, no permission, a name that does not
    resolve, closed at once."""
    return str(error.strerror) if isinstance(error, AttemptsFailedError) else _why_not_at(address, "", error)


def _why_not_at(address: Address, host: str, error: OSError) -> str:
    reason = error.strerror or str(error)
    place = str(address) if host in ("", address.host) else f"{address}, which is {host},"
    if isinstance(error, socket.gaierror):
        if error.errno == socket.EAI_AGAIN:
            return f"the host name in {address} cannot be resolved for now ({reason}): the name server does not answer"
        return f"unknown host name in {address} ({reason})"
    if error.errno in (errno.EACCES, errno.EPERM):
        whose = _owner(address.path) if address.path else ""
        return f"no permission to connect to {place} ({reason}){whose}"
    if isinstance(error, (TimeoutError, socket.timeout)) or error.errno == errno.ETIMEDOUT:  # two classes before 3.10
        causes = "a firewall drops the packets, the host is down, or more peers connect than it can accept"
        return f"no answer from {place} ({reason}): {causes}"
    if error.errno in _UNREACHABLE:
        return f"{place} is unreachable ({reason}): a firewall rejects the packets, or no route leads there"
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):  # between two calls of ours
        return why_not_greeted(address, has_spoken=False, has_closed=True)
    return f"nothing listens at {place} ({reason})"


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


def is_numeric(address: Address) -> bool:
    """Whether it is known without asking anyone where the address is, and that is one place."""
    if address.path or address.host in WILDCARDS:
        return True
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, address.host.partition("%")[0])
            return True
    return False


def resolve(address: Address, listens: bool = False) -> Target:
    """The socket family and the address for the socket calls; IPv4 if a name has both, as ZeroMQ does.

    Raises OSError if the host is unknown.
    """
    return min(_found(address, listens), key=lambda target: target[0] != socket.AF_INET)


def resolve_all(address: Address) -> List[Target]:
    """All places for which an address stands, best first, and families by turns (RFC 8305, section 4).

    May wait for a name server. Raises OSError if the host is unknown.
    """
    found = list(dict.fromkeys(_found(address)))
    first = [target for target in found if target[0] == found[0][0]]
    others = [target for target in found if target[0] != found[0][0]]
    return [target for target in chain(*zip_longest(first, others)) if target is not None]


def _found(address: Address, listens: bool = False) -> List[Target]:
    """What the system's resolver says, in its order, which is that of RFC 6724."""
    if address.path:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError(errno.EAFNOSUPPORT, "this system has no Unix domain sockets: use an address tcp://HOST:PORT")
        return [(socket.AF_UNIX, "\0" + address.path[1:] if address.path.startswith("@") else address.path)]
    host = address.host
    if host in WILDCARDS and not listens:
        host = "127.0.0.1"
    elif host == "*":
        host = "0.0.0.0"
    flags = socket.AI_PASSIVE if listens else 0
    try:
        found = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError:  # an invalid name: a label is empty or too long
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    return [(family, target) for family, _, _, _, target in found]  # type: ignore[misc]  # other families
