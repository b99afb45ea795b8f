"""Where callers come from, and who of them has made so many faults that it is turned away.

    caller ─▶ origin_of: its address, or its user on this host ─▶ is_blocked? ─▶ turned away, before anything is read
    connection that ends by a fault of its peer ─▶ charge

Rules:
- An origin is an IPv4 address, the first 64 bits of an IPv6 address, or a user. A network behind one address is one
  origin: who shares it with a caller that makes faults all the time may have to try several times.
- Each fault costs an origin FAULT_SECONDS of its own allowance, so that a flood from one does not delay the callers
  from others: ORIGIN_BURST_SECONDS at once, and ORIGIN_SHARE of the time.
- The table is bounded. Faults of an origin for which it has no room are for the owner to charge to all callers, like
  those of this user's own programs at a Unix socket.
- No clock: times are arguments.
"""

from __future__ import annotations

import socket
from typing import Any, Dict, Tuple

from scaler_protocol.host.peer_credentials import is_of_this_user, user_of_peer

ORIGIN_SHARE, ORIGIN_BURST_SECONDS = 0.05, 0.25  # with faults of 5 ms each: ten a second, and fifty at once
MAXIMUM_ORIGINS = 4096
_MAPPED = "::ffff:"  # before an IPv4 address that calls at an IPv6 socket


def origin_of(stream: socket.socket, address: Any) -> str:
    """Who is to be charged for what a caller does; empty: a program of this user, which is never turned away.

    Parameters:
        address: as `accept` returns it.
    """
    if stream.family == socket.AF_UNIX:
        return "" if is_of_this_user(stream) else f"user {user_of_peer(stream)}"
    host = str(address[0])
    if stream.family == socket.AF_INET6 and not host.startswith(_MAPPED):
        return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:8].hex(":", 2)
    return _unmapped(host)


def label_of(address: Any) -> str:
    """A caller's address as people write it, for the log; empty at a Unix socket.

    Parameters:
        address: as `accept` returns it.
    """
    if not isinstance(address, tuple):
        return ""
    host = _unmapped(str(address[0]))
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"


def _unmapped(host: str) -> str:
    return host[len(_MAPPED) :] if host.startswith(_MAPPED) else host


class CallerOrigins:
    """What origins have to make up for, as leaky buckets."""

    def __init__(self) -> None:
        self._used: Dict[str, Tuple[float, float]] = {}  # seconds, and when that was so

    def charge(self, origin: str, now: float, seconds: float) -> bool:
        """A fault of an origin has cost so much; returns False if all callers have to pay for it."""
        if not origin:
            return False
        if origin not in self._used and len(self._used) >= MAXIMUM_ORIGINS:
            self._used = {each: used for each, used in self._used.items() if _left(used, now) > 0.0}
            if len(self._used) >= MAXIMUM_ORIGINS:
                return False
        self._used[origin] = _left(self._used.get(origin, (0.0, now)), now) + seconds, now
        return True

    def is_blocked(self, origin: str, now: float) -> bool:
        """Whether callers from there are turned away."""
        used = self._used.get(origin)
        return used is not None and _left(used, now) > ORIGIN_BURST_SECONDS


def _left(used: Tuple[float, float], now: float) -> float:
    seconds, when = used
    return max(0.0, seconds - ORIGIN_SHARE * (now - when))
