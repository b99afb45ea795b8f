"""Whom a monitor watches when it is given no address.

Rule: the scheduler of the same configuration file goes before one that is found on this host.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

from scaler_appliance.shell.addresses import monitor_address_of
from scaler_protocol.addresses import AddressError, parse_address
from scaler_protocol.discovery import DiscoveryError, find_scheduler
from scaler_protocol.program_options import ConfigurationError

Sections = Mapping[str, Sequence[Mapping[str, Any]]]


def find_monitor(sections: Sections) -> Optional[Tuple[str, str]]:
    """A scheduler's monitor address, and where it is from. For `Option.find`.

    Parameters:
        sections: of the configuration file.

    Raises ConfigurationError when there is none.
    """
    for section in sections.get("scheduler", ()):
        written = section.get("monitor_address", section.get("monitor-address"))
        if isinstance(written, str) and written:
            return written, "the file's [scheduler] monitor_address"
        try:
            parsed = parse_address(str(section.get("address")))
        except AddressError:
            continue
        if parsed.path or parsed.port:  # else nobody knows its port yet
            return monitor_address_of(str(section["address"])), "the file's [scheduler] address"
    try:
        entry = find_scheduler()
    except (DiscoveryError, OSError):
        raise ConfigurationError(
            "which scheduler? None of this user runs on this host: name its monitor address, which it logs when it"
            " starts, such as ipc:///tmp/127.0.0.1_2345_monitor"
        ) from None
    return entry.details["monitor_address"], "found on this host"
