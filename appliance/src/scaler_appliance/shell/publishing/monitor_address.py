"""Where the scheduler's monitors find it."""

from __future__ import annotations

from scaler_protocol.host.addresses import parse_address


def monitor_address_of(address: str) -> str:
    """The monitor address that belongs to a scheduler that listens at `address`."""
    parsed = parse_address(address)
    if parsed.path:
        return f"{address}_monitor"
    return f"ipc:///tmp/{parsed.host.replace(':', '.')}_{parsed.port}_monitor"
