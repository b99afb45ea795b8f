"""Asks a scheduler for an answer, and leaves: whether it serves.

Rules:
- The scheduler's loop answers, and with keys, both ends prove theirs. No session begins, and nothing is logged.
- It connects as every peer does: by the local socket, or by TCP with the key that is found.
"""

from __future__ import annotations

import socket

from scaler_appliance.checks.waiting_peer import MAXIMUM_MESSAGE_BYTES, SOCKET_TYPE, WaitingPeer, connect_stream
from scaler_protocol.host.addresses import parse_addresses
from scaler_protocol.host.discovery import connectable
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.wire.secure_zmtp import SecureZmtp


def places(text: str) -> str:
    """An address, or a list of them, as one connects to it from this host."""
    return ",".join(connectable(str(each)) for each in parse_addresses(text))


def greet(credentials: Credentials, deadline: float) -> str:
    """Shake hands with a scheduler and leave; returns how that was protected, in words.

    Parameters:
        credentials: for the scheduler, whose address may be a list.
        deadline: until when to wait, in seconds of the clock `time.monotonic`.

    Raises TimeoutError; OSError if nothing serves there; ProtocolError, KeyFileError or MissingLibraryError if the
    scheduler does not serve this program.
    """
    addresses = parse_addresses(credentials.address)
    local = next(filter(None, map(credentials.local_socket, addresses)), None)
    stream = local or connect_stream(addresses, deadline)
    try:
        protocol = credentials.protocol(stream, SOCKET_TYPE, MAXIMUM_MESSAGE_BYTES)
    except BaseException:
        stream.close()
        raise
    with WaitingPeer(stream, protocol, deadline) as peer:
        peer.shake_hands()
        if isinstance(protocol, SecureZmtp):
            return "encrypted"
        return "by a local socket" if stream.family == socket.AF_UNIX else "without keys"
