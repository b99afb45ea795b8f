"""Which scheduler a monitor without an address watches: the one that a client would connect to.

Rule: first the one in SCALER_ADDRESS, then that of the same configuration file, then the newest on this host.
"""

from __future__ import annotations

import os
import socket
from typing import Any, Mapping, Optional, Sequence, Tuple

from scaler_appliance.shell.publishing.monitor_address import monitor_address_of
from scaler_protocol.host.addresses import Address, AddressError, parse_address, parse_addresses, resolve
from scaler_protocol.host.discovery import (
    ADDRESS_VARIABLE,
    SCHEDULER,
    DiscoveryError,
    connectable,
    entries,
    find_scheduler,
)
from scaler_protocol.host.peer_credentials import is_of_this_user
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.programs.options import ConfigurationError
from scaler_protocol.wire.secure_zmtp import ClientSecurity

_NAME_IT = (
    "give its monitor address, which it logs when it starts, such as ipc:///tmp/127.0.0.1_2345_monitor, or start one"
    " with `scaler dev`"
)

Sections = Mapping[str, Sequence[Mapping[str, Any]]]


def security_of_monitor(address: str, key_file: Optional[str], insecure: bool) -> Optional[ClientSecurity]:
    """The keys to watch a scheduler with; None if none are needed: it is at a Unix domain socket of this user or root.

    Parameters:
        address: where monitors connect.
        key_file, insecure: see `Credentials`.

    Raises KeyFileError, MissingLibraryError.
    """
    parsed = parse_address(address)
    if parsed.path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(resolve(parsed)[1])
            except OSError:
                return None  # nothing listens there yet
            if is_of_this_user(probe):
                return None
    return Credentials(address, key_file, insecure or None, "monitor").security()


def find_monitor(sections: Sections) -> Optional[Tuple[str, str]]:
    """A scheduler's monitor address, and where it was found. For `Option.find`.

    Parameters:
        sections: of the configuration file.

    Raises ConfigurationError when there is none.
    """
    named = os.environ.get(ADDRESS_VARIABLE)
    if named:
        return _monitor_address_beside(named), f"environment {ADDRESS_VARIABLE}"
    for section in sections.get("scheduler", ()):
        written = section.get("monitor_address", section.get("monitor-address"))
        if isinstance(written, str) and written:
            return written, "the file's [scheduler] monitor_address"
        try:
            parsed = parse_address(str(section.get("address")))
        except AddressError:
            continue
        if parsed.path or parsed.port:  # else its port is not known yet
            return monitor_address_of(str(section["address"])), "the file's [scheduler] address"
    try:
        known = entries(SCHEDULER)
    except (DiscoveryError, OSError) as error:
        raise ConfigurationError(f"no scheduler to watch: {error}; {_NAME_IT}") from None
    if not known:
        raise ConfigurationError(f"no scheduler of this user was found on this host: {_NAME_IT}")
    return find_scheduler().details["monitor_address"], "found on this host"


def _monitor_address_beside(address: str) -> str:
    """Where the scheduler at an address publishes its status.

    Raises ConfigurationError when that is unknown.
    """
    try:
        parsed = parse_addresses(address)[0]  # the preferred one
        wanted = connectable(str(parsed))
    except AddressError as error:
        raise ConfigurationError(f"environment variable {ADDRESS_VARIABLE}: {error}") from None
    is_here = bool(parsed.path) or _is_of_this_host(parsed)
    try:
        known = {entry.address: entry.details["monitor_address"] for entry in reversed(entries(SCHEDULER))}
    except (DiscoveryError, OSError):
        known = {}  # the scheduler may be another user's, or not announce itself
    if wanted in known:
        return known[wanted]
    for other, monitor_address in known.items():  # the same scheduler under another name of this host
        if is_here and parsed.port and parse_address(other).port == parsed.port:
            return monitor_address
    if not is_here:
        raise ConfigurationError(
            f"the scheduler of {ADDRESS_VARIABLE}, {address}, is on another host: give its monitor address, the"
            " tcp://HOST:PORT of its option --monitor-address"
        )
    return monitor_address_of(wanted)


def _is_of_this_host(address: Address) -> bool:
    try:
        family, target = resolve(address)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((target[0], 0))
    except OSError:
        return False
    return True
