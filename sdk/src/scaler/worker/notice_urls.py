"""What an address must be that a worker asks for notice (`--drain-url`)."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit


class NoticeUrl(NamedTuple):
    """The parts of an address that a request needs.

    Attributes:
        port: 0: that of the scheme.
        path: with the query.
    """

    is_encrypted: bool
    host: str
    port: int
    path: str


def parsed(url: str) -> NoticeUrl:
    """Its parts. Raises ValueError, with what is wrong."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("the address must begin with http:// or https://")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("the address has characters that must be escaped")
    if "@" in parts.netloc:
        raise ValueError("the address must have no name and password: give --drain-url-header")
    if not parts.hostname:
        raise ValueError("the address names no host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return NoticeUrl(parts.scheme == "https", parts.hostname, parts.port or 0, path)  # raises if it is no port


def fault_of_url(url: str) -> str:
    """Why it cannot be asked; empty if it can."""
    try:
        parsed(url)
    except ValueError as error:
        return str(error)
    return ""
