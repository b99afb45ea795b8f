"""What is asked of the owner of data connections. Effects are plain values, which tests compare."""

from __future__ import annotations

from typing import NamedTuple, Union

from scaler_protocol.wire import messages as m

Buffer = Union[bytes, bytearray, memoryview]


class ConnectData(NamedTuple):
    """Connect to a holder of an object. `on_data_connected` follows, or `on_data_closed`.

    Parameters:
        connection: the number that this connection gets.
        address: where that peer serves others.
        key: its public key; empty: it has none.
        chunk_bytes: that are requested at once. More than that, and a header, is not read.
    """

    connection: int
    address: str
    key: bytes
    chunk_bytes: int = 1024 * 1024


class SendData(NamedTuple):
    """Send a message to the other end of a data connection, unless that has ended."""

    connection: int
    message: m.Member
    payload: Buffer = b""


class CloseData(NamedTuple):
    """End a data connection, after what was sent; no event of it follows."""

    connection: int
