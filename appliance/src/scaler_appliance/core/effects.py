"""The effects that the core asks the shell to perform. Effects are values: tests compare them."""

from __future__ import annotations

from typing import NamedTuple, Sequence, Union

from scaler_protocol import messages as m

MAXIMUM_ERROR_TEXT = 1000  # characters

Buffer = Union[bytes, bytearray, memoryview]


class Send(NamedTuple):
    """Send one message; its payload frame consists of the joined parts."""

    peer: bytes
    message: m.Member
    payload: Sequence[Buffer] = ()


class SendChunk(NamedTuple):
    """Read a part of an object file and send it as an ObjectResponse."""

    peer: bytes
    object_id: int
    offset: int
    length: int
    size: int


class StoreChunk(NamedTuple):
    """Write a part of an object that is being received to its file; the last part completes the file."""

    object_id: int
    offset: int
    chunk: Buffer
    is_last: bool
    size: int  # of the whole object
    on_disk: bool  # where to put it; if there is no room, the other place is used, and `on_object_spilled` or
    # `on_object_spill_failed` reports that


class SpillObject(NamedTuple):
    """Move an object's file from memory to disk, in the background; `on_object_spilled` or
    `on_object_spill_failed` follows, unless the object ends before.
    """

    object_id: int


class RemoveObject(NamedTuple):
    """Delete an object's file, wherever it is."""

    object_id: int


class Forget(NamedTuple):
    """A session has ended: drop what has not been sent to its peer, and delete files that it left behind without a
    record of the object.
    """

    peer: bytes
    session: int


class Log(NamedTuple):
    """Write a log line; `level` is a name of the standard library's logging levels."""

    level: str
    text: str


class Stop(NamedTuple):
    """End the program; all peers have been notified."""

    reason: str


Effect = Union[Send, SendChunk, StoreChunk, SpillObject, RemoveObject, Forget, Log, Stop]


class PeerError(Exception):
    """A peer broke the protocol: its session ends, the others continue.

    Parameters:
        reason: of the Refusal.
        text: for the peer's user and our log; it may name what a peer sent, and is cut at MAXIMUM_ERROR_TEXT.
    """

    def __init__(self, reason: m.RefusalReason, text: str) -> None:
        text = text if len(text) <= MAXIMUM_ERROR_TEXT else f"{text[:MAXIMUM_ERROR_TEXT]}…"
        super().__init__(text)
        self.reason = reason
        self.text = text
