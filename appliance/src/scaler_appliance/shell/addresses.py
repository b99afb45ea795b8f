"""Where the scheduler's monitors find it."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

from scaler_protocol.addresses import AddressError, parse_address


def monitor_address_of(address: str) -> str:
    """The monitor address that belongs to a scheduler that listens at `address`."""
    parsed = parse_address(address)
    if parsed.path:
        return f"{address}_monitor"
    return f"ipc:///tmp/{parsed.host.replace(':', '.')}_{parsed.port}_monitor"


def monitor_address_in(sections: Mapping[str, Sequence[Mapping[str, Any]]]) -> Optional[Tuple[str, str]]:
    """The monitor address of the scheduler that a configuration file is about, and where it is said; None if not.

    For `Option.find` of monitors.
    """
    for section in sections.get("scheduler", ()):
        written = section.get("monitor_address", section.get("monitor-address"))
        if isinstance(written, str) and written:
            return written, "the file's [scheduler]"
        try:
            parsed = parse_address(section.get("address") or "")
        except (AddressError, TypeError):
            continue
        if parsed.path or parsed.port:
            return monitor_address_of(section["address"]), "the file's [scheduler]"
    return None
