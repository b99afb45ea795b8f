"""Where a worker or a client can be reached by workers: what the option `--data-address` means."""

from __future__ import annotations

from typing import Optional

from scaler_protocol.host.addresses import Address, parse_address

NO_DATA_ADDRESS = "off"


def data_address_of(text: str) -> Optional[Address]:
    """Where workers fetch objects; None: nowhere. Raises AddressError."""
    return None if text == NO_DATA_ADDRESS else parse_address(text)
