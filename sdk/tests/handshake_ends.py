"""A server whose connections end in the middle of the handshake: it is killed, or a forwarder without its target."""

from __future__ import annotations

import contextlib
import socket
import struct

from scaler_protocol.wire.zmtp import Zmtp

GREETING_BYTES = 64
CLOSE_WITH_RESET = struct.pack("ii", 1, 0)
ENDS = ["before the greeting", "after the greeting", "after READY", "after Hello"]


def end_connection(stream: socket.socket, where: str, is_reset: bool) -> None:
    """Take part in the handshake up to a point, then close the connection."""
    with contextlib.suppress(ConnectionError):  # the other side may have given up
        protocol = Zmtp("ROUTER", 1 << 20)
        if where != "before the greeting":
            stream.sendall(protocol.take_output())
            protocol.feed(stream.recv(GREETING_BYTES, socket.MSG_WAITALL))
        if where in ("after READY", "after Hello"):
            stream.sendall(protocol.take_output())
        while where == "after Hello" and not protocol.feed(stream.recv(4096)):
            pass
    if is_reset:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CLOSE_WITH_RESET)
    else:
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(4096):  # else what was not read would reset the connection
            pass
