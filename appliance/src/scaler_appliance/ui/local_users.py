"""Whose process is at the other end of a connection over loopback, which all users of a host can open.

    request ──▶ (client's address, ours) ──▶ the client's line in /proc/net/tcp ──▶ the number of its user

Rules:
- Linux says it; elsewhere nothing does, and all users of the host count as this one.
- It is asked for each request: when a connection has ended, another user's may have its port.
- A socket that no process has any more is no user's. Linux says 0 for it, which is root's number.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Tuple

_TABLES = Path("/proc/net")
_ROOT = 0
_USER, _INODE = 7, 9  # columns of a table

_Address = Tuple[str, int]


def is_of_this_user(scope: Mapping[str, Any]) -> bool:
    """Whether a process of this user, or of root, has sent a request; true where the system does not say so.

    Parameters:
        scope: of the request, with `client` and `server` (ASGI).
    """
    client, server = scope.get("client"), scope.get("server")
    if not client or not server or not (_TABLES / "tcp").exists():
        return True
    user = _user_of(client, server)
    return user in (_ROOT, os.geteuid())


def _user_of(client: _Address, server: _Address) -> Optional[int]:
    """The number of the user who has this end of a connection; None if no process has it."""
    plain, mapped = (f" {' '.join(ends)} " for ends in zip(_names_of(client), _names_of(server)))
    for name in ("tcp", "tcp6"):
        try:
            with open(_TABLES / name, encoding="ascii") as table:
                columns = next((line.split() for line in table if plain in line or mapped in line), None)
        except OSError:  # a system without IPv6
            continue
        if columns is not None and columns[_INODE] != "0":
            return int(columns[_USER])
    return None


def _names_of(address: _Address) -> Iterator[str]:
    """How the tables write an address: as what it is, and as one of IPv4 within IPv6."""
    host, port = ipaddress.ip_address(address[0].partition("%")[0]), address[1]
    plain = getattr(host, "ipv4_mapped", None) or host
    mapped = ipaddress.IPv6Address(f"::ffff:{plain}") if plain.version == 4 else plain
    for each in (plain, mapped):
        words = (each.packed[at : at + 4] for at in range(0, len(each.packed), 4))
        yield "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{port:04X}"
