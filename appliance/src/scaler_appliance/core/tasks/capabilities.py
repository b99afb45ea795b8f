"""The capabilities that workers offer and tasks need, as received from peers.

Rule: an amount that cannot be counted is the peer's fault.
"""

from __future__ import annotations

from math import isfinite

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.peers.sessions import MAXIMUM_LABEL_CHARACTERS
from scaler_protocol import messages as m


def check_capabilities(capabilities: list[m.Capability]) -> None:
    """Raise PeerError unless all amounts can be counted."""
    for capability in capabilities:
        if not isfinite(capability.amount) or capability.amount < 0:
            name = capability.name[:MAXIMUM_LABEL_CHARACTERS]
            text = f"capability {name!r}: the amount must be finite and >= 0, got {capability.amount}"
            raise PeerError(m.RefusalReason.MALFORMED, text)
