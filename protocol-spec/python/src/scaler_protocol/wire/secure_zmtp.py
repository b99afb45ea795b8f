"""ZMTP with the mechanism CURVE: the same connection as `Zmtp`, whose frames only the two ends can read.

    feed() ─▶ frames ─▶ handshake: CurveClient or CurveServer ─▶ then: SealedFrames.open ─▶ messages
                                                                       SealedFrames.seal ◀─ encode()

Rules:
- Each frame is sealed for itself, as libzmq does it; its flags are inside. But between two ends that both say in the
  handshake that they read it, a short message of two frames is sealed as one: what costs is the number of frames.
- Limits count what is inside a frame; a frame on its way is some bytes longer.
- A peer with another mechanism is turned away: there is no way down to NULL.
- A message that was encoded and never sent leaves a gap between the nonces, which is allowed.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

from scaler_protocol.wire.curve import (
    JOINED,
    SEALED_COMMAND,
    SEALED_FRAME_BYTES,
    SEALED_HEADER_BYTES,
    Admit,
    Arithmetic,
    CurveClient,
    CurveServer,
    KeyPair,
    KeyRejectedError,
    Opening,
    SealedFrames,
)
from scaler_protocol.wire.zmtp import (
    COMMAND,
    COPY_BELOW_BYTES,
    LONG,
    MORE,
    REUSE_FROM_BYTES,
    Buffer,
    MalformedFrameError,
    MechanismError,
    Zmtp,
    as_command,
    greeting,
    property_of,
)

_LONE_FRAMES = 2
_LONG_SIZE = struct.Struct(">Q")
_JOINS, _YES = b"X-Scaler-Joined", b"1"


class ClientSecurity(NamedTuple):
    """For the end that connects.

    Attributes:
        arithmetic: of a library.
        keys: its own.
        server_key: the public key that the other end must prove to own.
    """

    arithmetic: Arithmetic
    keys: KeyPair
    server_key: bytes


class ServerSecurity(NamedTuple):
    """For the end that is connected to.

    Attributes:
        arithmetic: of a library.
        keys: its own; a client must know one of them.
        admit: decides about the public key that a client has proved to own.
    """

    arithmetic: Arithmetic
    keys: Sequence[KeyPair]
    admit: Admit


class SecureZmtp(Zmtp):
    """See `Zmtp`, whose interface it has.

    Parameters:
        security: of our end.
        others: as of `Zmtp`.
    """

    _has_sealed_frames = True

    def __init__(
        self,
        security: Union[ClientSecurity, ServerSecurity],
        socket_type: str,
        maximum_message_bytes: int,
        maximum_first_frame_bytes: Optional[int] = None,
        maximum_frames: int = 64,
        identity: bytes = b"",
    ) -> None:
        self._is_server = isinstance(security, ServerSecurity)
        self._sealed: Optional[SealedFrames] = None  # from the end of the handshake on
        self._joins = False  # the peer reads messages of two frames as one
        self._sealing_memory = bytearray()  # of large frames, see `reused_bytes`
        self._is_sealing_memory_free = True
        super().__init__(socket_type, maximum_message_bytes, maximum_first_frame_bytes, maximum_frames, identity)
        self._curve: Union[CurveClient, CurveServer]
        if isinstance(security, ServerSecurity):
            self._curve = CurveServer(security.arithmetic, security.keys, security.admit, self._metadata())
        else:
            self._curve = CurveClient(security.arithmetic, security.keys, security.server_key, self._metadata())

    @property
    def peer_key(self) -> bytes:
        """The public key that a client has proved to own; empty before that, and at the client's end."""
        return self._curve.peer_key if isinstance(self._curve, CurveServer) else b""

    def encode(self, frames: Sequence[Buffer]) -> List[Buffer]:
        assert self._sealed is not None, "the handshake is not complete"
        joined = self._sealed.seal_joined(frames) if self._joins and len(frames) == 2 else None
        return joined or self._encode_long(self._sealed, frames)

    def _encode_long(self, sealed: SealedFrames, frames: Sequence[Buffer]) -> List[Buffer]:
        aside = self.encode_aside(frames, REUSE_FROM_BYTES)
        if aside is None:
            return _encode(sealed, frames)
        buffers, seal = aside
        seal()
        return buffers

    def encode_aside(
        self, frames: Sequence[Buffer], least_bytes: int
    ) -> Optional[Tuple[List[Buffer], Callable[[], None]]]:
        assert self._sealed is not None
        *others, last = frames
        size = last.nbytes if isinstance(last, memoryview) else len(last)
        if not self._is_sealing_memory_free or not least_bytes <= size <= self.reused_bytes:
            return None
        self._is_sealing_memory_free = False
        size += SEALED_FRAME_BYTES + SEALED_HEADER_BYTES
        if len(self._sealing_memory) < size:
            self._sealing_memory = bytearray(size)
        buffers: List[Buffer] = [self._sealed.seal(MORE, frame) for frame in others]
        frame, seal = self._sealed.sealing_into(self._sealing_memory, 0, last)
        return [*buffers, frame], seal

    def all_has_left(self) -> None:
        self._is_sealing_memory_free = True

    def lone_encoder(self) -> Callable[[Sequence[Buffer]], List[Buffer]]:
        assert self._sealed is not None, "the handshake is not complete"
        return partial(_encode_lone, self._sealed, self._sealed.reserve(_LONE_FRAMES), self._joins)

    # The handshake ----------------------------------------------------------------------------------------------------

    def _greeting(self) -> bytes:
        return greeting(b"CURVE", self._is_server)

    # SCL-TRN-002
    def _check_mechanism(self, mechanism: bytes) -> None:
        if mechanism != b"CURVE":
            what = "has none" if mechanism == b"NULL" else f"uses mechanism {mechanism!r}"
            self._refuse("keys are required here (mechanism CURVE)")
            raise MechanismError(f"this end requires keys (mechanism CURVE), and the peer {what}")

    def _begin_handshake(self) -> None:
        if isinstance(self._curve, CurveClient):
            self._send_command(self._curve.first_command())

    def _take_handshake(self, command: bytes) -> None:
        try:
            answer, metadata = self._curve.take(command)
        except KeyRejectedError as error:
            self._refuse(str(error))
            raise
        if answer:
            self._send_command(answer)
        self._sealed = self._curve.frames
        if self._sealed is not None:
            self._take_metadata(metadata)
            self._joins = self.peer_properties.get(_JOINS.lower()) == _YES

    def _metadata(self) -> bytes:
        return super()._metadata() + property_of(_JOINS, _YES)

    # Frames -----------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> List[List[bytes]]:
        if not self._is_between:
            return self._feed_any(data)
        # Whole frames, on which latency depends: with as few steps as possible.
        assert self._sealed is not None
        messages: List[List[bytes]] = []
        position, end, open_frame = 0, len(data), self._sealed.open
        while end - position >= 2 + SEALED_FRAME_BYTES:
            if data[position] == LONG:
                start = position + 9
                stop = start + _LONG_SIZE.unpack_from(data, position + 1)[0]
            else:
                start = position + 2
                stop = start + data[position + 1]
            if stop > end or data[position] & ~LONG or stop - start > self._room:
                break
            flags, content = open_frame(data, start, stop)
            middle = 4 + int.from_bytes(content[:4], "big") if flags == JOINED else 0
            if 0 < middle <= len(content) and self._short_pair_bytes and not self._frames:
                messages.append([content[4:middle], content[middle:]])
            else:
                self._take_opened(flags, content, messages)
            position = stop
        if position < end or not end:
            return messages + self._feed_any(data[position:])
        self._is_between = not self._frames
        return messages

    def _check_header(self, flags: int, size: int) -> None:
        if self._sealed is None:
            super()._check_header(flags, size)
        elif flags & ~LONG:
            raise MalformedFrameError(f"flags {flags:#04x} of a frame that should be sealed")
        elif size > self._room + SEALED_FRAME_BYTES:
            super()._check_header(0, size - SEALED_FRAME_BYTES)

    def _take_frame(self, flags: int, body: Union[bytes, memoryview], messages: List[List[bytes]]) -> None:
        if self._sealed is None:
            super()._take_frame(flags, body, messages)
        elif isinstance(body, memoryview):
            opening = self._sealed.opening(body)
            if 0 < self.aside_bytes <= len(body):
                self.opening = opening
            else:
                opening()
                self._take_opening(self._sealed, opening, messages)
        else:
            sealed_flags, content = self._sealed.open(body, 0, len(body))
            self._take_opened(sealed_flags, content, messages)

    def opened(self) -> List[List[bytes]]:
        messages: List[List[bytes]] = []
        opening, self.opening = self.opening, None
        assert self._sealed is not None and isinstance(opening, Opening)
        self._take_opening(self._sealed, opening, messages)
        self._is_between = not self._frames
        return messages

    def _take_opening(self, sealed: SealedFrames, opening: Opening, messages: List[List[bytes]]) -> None:
        flags, opened = sealed.take_opened(opening)
        if flags:
            self._take_opened(flags, bytes(opened), messages)
        else:
            super()._take_frame(0, opened, messages)

    def _take_opened(self, flags: int, content: bytes, messages: List[List[bytes]]) -> None:
        """A frame was opened, with the flags that stand inside."""
        if flags & SEALED_COMMAND:
            # SCL-SEC-006
            super()._check_header(COMMAND | flags & MORE, len(content))
            super()._take_frame(COMMAND, content, messages)
        elif flags != JOINED:
            super()._take_frame(flags, content, messages)
        elif self._frames or not self._short_pair_bytes:
            raise MalformedFrameError("a joined message where none may be")
        else:
            middle = 4 + int.from_bytes(content[:4], "big")
            if middle > len(content):
                raise MalformedFrameError("a joined message that is shorter than its first frame")
            messages.append([content[4:middle], content[middle:]])

    def _send_command(self, command: Buffer) -> None:
        if self._sealed is None:
            self.output += as_command(command)
        else:
            self.output += self._sealed.seal(SEALED_COMMAND, command)


def _encode_lone(sealed: SealedFrames, last_sent: int, joins: bool, frames: Sequence[Buffer]) -> List[Buffer]:
    # With the same nonces each time, of which none is used twice, because one message is sent.
    assert len(frames) <= _LONE_FRAMES
    joined = sealed.seal_joined(frames, last_sent + 1) if joins and len(frames) == 2 else None
    return joined or _encode(sealed.beginning_at(last_sent), frames)


def _encode(sealed: SealedFrames, frames: Sequence[Buffer]) -> List[Buffer]:
    seal, last = sealed.seal, len(frames) - 1
    buffers: List[Buffer] = []
    small: List[Buffer] = []
    for index, frame in enumerate(frames):
        content = seal(MORE if index < last else 0, frame)
        if len(content) < COPY_BELOW_BYTES:
            small.append(content)
        else:
            buffers += (b"".join(small), content) if small else (content,)
            small = []
    if small:
        buffers.append(b"".join(small))
    return buffers
