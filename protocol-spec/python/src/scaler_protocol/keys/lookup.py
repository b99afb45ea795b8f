"""Which key file a program uses that connects to a scheduler.

Rules:
- The first of these that applies, and no other is tried after it:

  1. the file that was given;
  2. the file that SCALER_KEY_FILE names;
  3. the owner's key of the scheduler that this user runs on this host at the address: it announces its key directory,
     or that it has no keys;
  4. the owner's key in the default key directory, if there is one: schedulers that this user runs elsewhere have it,
     if the hosts share a home;
  5. none: see `credentials` for what then happens.

- A file that exists and cannot be used is an error in each of these cases: no program connects without a key because
  its file is not private.
- What another user announces is ignored: the folder of announcements is private, or not used.
"""

from __future__ import annotations

import os
from typing import Mapping, NamedTuple, Optional

from scaler_protocol.host.addresses import parse_address, parse_addresses
from scaler_protocol.host.discovery import SCHEDULER, DiscoveryError, connectable, entries
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_directory import KeyDirectory, default_key_directory
from scaler_protocol.keys.key_file import KeyFile, read_key_file

FILE_VARIABLE = "SCALER_KEY_FILE"
DIRECTORY_DETAIL = "key_directory"
"""Of a scheduler's announcement: the absolute path of its folder of keys."""
MONITOR_DETAIL = "monitor_address"
"""Of a scheduler's announcement: where monitors connect."""
SECURITY_DETAIL = "security"
"""Of a scheduler's announcement: NO_SECURITY if it takes connections without keys."""
NO_SECURITY = "none"


class FoundKey(NamedTuple):
    """What there is for a connection to a scheduler.

    Attributes:
        key_file: None if there is none.
        is_announced_insecure: this user runs the scheduler on this host, and it serves without keys.
    """

    key_file: Optional[KeyFile]
    is_announced_insecure: bool = False


def find_key(address: str, key_file: Optional[str]) -> FoundKey:
    """The key for a connection to a scheduler: see the rules above.

    Parameters:
        address: of the scheduler, or a list of them, or the one where monitors connect to it.
        key_file: the path that the user has given; None if there is none.

    Raises KeyFileError if the file cannot be used.
    """
    if key_file is not None and not key_file:
        raise KeyFileError("the path of the key file is empty: name a file, or leave it out")
    path = key_file or os.environ.get(FILE_VARIABLE)
    if path:
        return FoundKey(read_key_file(path))
    details = _announced_details(address)
    if details.get(SECURITY_DETAIL) == NO_SECURITY:
        return FoundKey(None, is_announced_insecure=True)
    announced = details.get(DIRECTORY_DETAIL)
    if announced:
        return FoundKey(KeyDirectory(announced).owner())
    default = KeyDirectory(default_key_directory())
    return FoundKey(default.owner() if default.has_owner() else None)


def _announced_details(address: str) -> Mapping[str, str]:
    """What the newest scheduler of this user on this host at an address announces; empty if there is none."""
    try:
        found = entries(SCHEDULER)
    except (DiscoveryError, OSError):
        return {}
    for wanted in [_comparable(str(each)) for each in parse_addresses(address)]:
        for entry in found:
            monitor_address = entry.details.get(MONITOR_DETAIL)
            if wanted in (_comparable(entry.address), monitor_address and _comparable(monitor_address)):
                return entry.details
    return {}


def _comparable(address: str) -> str:
    parsed = parse_address(connectable(address))
    return str(parsed._replace(host="127.0.0.1")) if parsed.host == "localhost" else str(parsed)
