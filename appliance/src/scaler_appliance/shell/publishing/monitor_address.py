"""Where the scheduler's monitors find it."""

from __future__ import annotations

from scaler_protocol.host.addresses import WILDCARDS, parse_address


def monitor_address_of(address: str) -> str:
    """The monitor address that belongs to a scheduler that listens at `address`."""
    parsed = parse_address(address)
    if parsed.path:
        return f"{address}_monitor"
    host = "0.0.0.0" if parsed.host in WILDCARDS else parsed.host
    return f"ipc:///tmp/{host.replace(':', '.')}_{parsed.port}_monitor"
