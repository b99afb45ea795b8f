"""Addresses of the scheduler and of its monitor."""

from __future__ import annotations

import re


class AddressError(ValueError):
    """An address that cannot be used; the message says what one looks like."""


_TCP = re.compile(r"tcp://(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\[\]]+|\*):(?P<port>\d{1,5}|\*)")
_IPC = re.compile(r"ipc://(?P<path>.+)")
_MAXIMUM_IPC_PATH_BYTES = 107  # of a Unix domain socket's address


def check_address(address: str) -> str:
    """Return `address` in ZeroMQ's form; port 0 or `*` lets the system choose one.

    Raises AddressError.
    """
    tcp = _TCP.fullmatch(address)
    if tcp is not None and tcp["port"] == "*":
        return address
    if tcp is not None and int(tcp["port"]) <= 65535:
        return f"tcp://{tcp['host']}:{'*' if int(tcp['port']) == 0 else tcp['port']}"
    ipc = _IPC.fullmatch(address)
    if ipc is not None and len(ipc["path"].encode()) <= _MAXIMUM_IPC_PATH_BYTES:
        return address
    if ipc is not None:
        raise AddressError(f"{address!r}: the path is longer than {_MAXIMUM_IPC_PATH_BYTES} bytes")
    raise AddressError(f"{address!r} is no address: use one like tcp://127.0.0.1:2345 or ipc:///tmp/scaler")


def monitor_address_of(address: str) -> str:
    """The monitor address that belongs to a scheduler bound to `address`."""
    tcp = _TCP.fullmatch(address)
    if tcp is None:
        return f"{address}_monitor"
    host = tcp["host"].strip("[]").replace(":", ".")
    return f"ipc:///tmp/{host}_{tcp['port']}_monitor"
