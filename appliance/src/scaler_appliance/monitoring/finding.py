"""Which scheduler is watched when no address is given.

Rules: what is nearest goes first: the scheduler of the same file, that of SCALER_ADDRESS, the newest of this user here.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence, Tuple

from scaler_appliance.shell.addresses import monitor_address_of
from scaler_protocol.addresses import AddressError
from scaler_protocol.discovery import ADDRESS_VARIABLE, SCHEDULER, DiscoveryError, entries
from scaler_protocol.program_options import ConfigurationError


def find_monitor(sections: Mapping[str, Sequence[Mapping[str, Any]]]) -> Optional[Tuple[str, str]]:
    """A monitor address, and where it is from; for `Option.find`.

    Raises ConfigurationError when there is no scheduler.
    """
    return _in_file(sections) or _in_environment() or _on_this_host()


def _in_file(sections: Mapping[str, Sequence[Mapping[str, Any]]]) -> Optional[Tuple[str, str]]:
    for scheduler in sections.get("scheduler", ()):
        keys = {str(key).replace("-", "_"): value for key, value in scheduler.items()}
        if isinstance(keys.get("monitor_address"), str):
            return keys["monitor_address"], "[scheduler] monitor_address"
        try:
            return monitor_address_of(str(keys.get("address"))), "[scheduler] address"
        except AddressError:
            pass
    return None


def _in_environment() -> Optional[Tuple[str, str]]:
    address = os.environ.get(ADDRESS_VARIABLE)
    if not address:
        return None
    try:
        return monitor_address_of(address), f"environment {ADDRESS_VARIABLE}"
    except AddressError as error:
        raise ConfigurationError(f"environment variable {ADDRESS_VARIABLE}: {error}") from None


def _on_this_host() -> Tuple[str, str]:
    try:
        for entry in entries(SCHEDULER):
            if entry.details.get("monitor_address"):
                return entry.details["monitor_address"], f"found on this host (process {entry.process_id})"
    except DiscoveryError as error:
        raise ConfigurationError(str(error)) from None
    raise ConfigurationError(
        "no monitor address, and no scheduler of this user runs on this host: start one, or give the monitor address"
        " that it logs when it starts, such as ipc:///tmp/127.0.0.1_2345_monitor"
    )
