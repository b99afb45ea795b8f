"""ZMTP 3.1 (ZeroMQ RFC 37; 3.0 peers of RFC 23 are accepted) without I/O: bytes in, messages out, and back.

Rules:
- No socket, clock or thread. The owner moves the bytes: it sends what `take_output()` returns, passes received bytes
  to `feed()`, and sends messages as `encode()` lays them out, once `is_ready`.
- Mechanism NULL; `secure_zmtp` adds CURVE. PLAIN, and socket types other than DEALER, ROUTER and XPUB, need libzmq.
- To an XPUB socket, a command SUBSCRIBE or CANCEL of ZMTP 3.1 is what a message of one frame is in ZMTP 3.0: the byte 1
  or 0, and the topic. Owners see messages only.
- Sizes that a peer announces are checked before memory is allocated. A fault of a peer is a `ZmtpError`, which ends
  its connection; nothing that a peer sends raises any other exception.
- Work is linear in the bytes received, however they are split; a frame that arrives in one piece is copied once.
- An owner that reads large frames again and again may have each in the memory of the one before: new memory costs more
  than what is done with it. It reads into `place`, and no byte of such a frame is copied here.
- The first frame of a message, whose decoding blocks everything else, has a smaller limit than the whole message.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union, cast

from scaler_protocol.wire.errors import ProtocolError

Buffer = Union[bytes, bytearray, memoryview]

MORE, LONG, COMMAND = 1, 2, 4
GREETING_BYTES = 64
MAXIMUM_COMMAND_BYTES = 64 * 1024
COPY_BELOW_BYTES = 16 * 1024
"""Smaller frames are joined with their neighbours: one buffer is cheaper to send than several."""

REUSE_FROM_BYTES = 64 * 1024
"""Smaller frames get memory of their own, whatever `reused_bytes` says."""

_GATHER_BELOW_BYTES = 4096  # smaller pieces of an unfinished frame are joined as they arrive
_LONG_HEADER, _LONG_SIZE = struct.Struct(">BQ"), struct.Struct(">Q")
_SHORT_LAST, _SHORT_MORE = ([bytes((flags, size)) for size in range(256)] for flags in (0, MORE))
_COMPATIBLE = {
    "DEALER": (b"DEALER", b"ROUTER", b"REP"),
    "ROUTER": (b"DEALER", b"ROUTER", b"REQ"),
    "XPUB": (b"SUB", b"XSUB"),
}
_SUBSCRIPTIONS = {b"SUBSCRIBE": b"\1", b"CANCEL": b"\0"}


class ZmtpError(ProtocolError):
    """The peer broke the transport's rules: close its connection."""


def begins_like_zmtp(data: bytes) -> bool:
    """Whether a peer that has sent this speaks ZMTP, as far as it has come.

    The eight bytes between carry no meaning: libzmq puts there what ZMTP 1 would read as a length.
    """
    return data[:1] == b"\xff" and (len(data) <= 9 or bool(data[9] & 1))


class ForeignPeerError(ZmtpError):
    """The peer is not a compatible ZeroMQ socket: another program, another mechanism, or another socket type."""


class MechanismError(ForeignPeerError):
    """One of the two ends requires keys, and the other has none."""


class RefusedError(ZmtpError):
    """The peer refused the connection with an ERROR command, or by closing during the handshake."""


class UnfinishedHandshakeError(RefusedError):
    """The peer closed the connection during the handshake: it does not accept ours, or was stopped just then."""


class PeerGoneError(ZmtpError):
    """The peer closed the connection; messages that it sent completely have been delivered."""


class MalformedFrameError(ZmtpError):
    """The peer sent an invalid frame, or an unreadable command."""


class LimitExceededError(ZmtpError):
    """The peer announced a message with more bytes or frames than the limit."""


class Zmtp:
    """One connection, seen from our end, with the mechanism NULL.

    Parameters:
        socket_type: ours, "DEALER", "ROUTER" or "XPUB".
        maximum_message_bytes: of all frames of one message together.
        maximum_first_frame_bytes: of the first frame; by default the same.
        maximum_frames: of one message.
        identity: the name that a ROUTER peer may use for us; at most 255 bytes, empty: the peer chooses.

    Attributes:
        reused_bytes: last frames of messages up to this size that arrive in several pieces are views of the same
            memory, if they are large. The next message may overwrite it, once `feed` or `filled` has returned this one
            and it was not kept (`keep_memory`). Sealed ones are laid out in the same memory as well, after each
            `all_has_left`.
        place: where the next bytes are to be read, to be followed by `filled`; None: they are passed to `feed`.
        aside_bytes: sealed frames of at least this size, in memory that is used again, are not opened by `feed` and
            `filled`: then nothing else may be read until `opening` was called, by any thread, and then `opened`. 0:
            all are opened.
        opening: opens such a frame; raises ZmtpError if it was forged.
    """

    _has_sealed_frames = False  # each one is for `_check_header` and `_take_frame` to look at

    def __init__(
        self,
        socket_type: str,
        maximum_message_bytes: int,
        maximum_first_frame_bytes: Optional[int] = None,
        maximum_frames: int = 64,
        identity: bytes = b"",
    ) -> None:
        if socket_type not in _COMPATIBLE:
            raise ValueError(f"socket type {socket_type!r}: use one of {', '.join(_COMPATIBLE)}")
        if len(identity) > 255:
            raise ValueError(f"identity must have at most 255 bytes, got {len(identity)}")
        self._socket_type, self._identity = socket_type, identity
        self._maximum_message_bytes = maximum_message_bytes
        self._maximum_first_frame_bytes = min(maximum_message_bytes, maximum_first_frame_bytes or maximum_message_bytes)
        self._maximum_frames = maximum_frames
        self._short_pair_bytes = self._maximum_first_frame_bytes if maximum_frames >= 2 else 0
        self.is_ready = False  # the peer's READY has arrived: messages may be sent
        self.peer_minor_version = -1
        self.peer_properties: Dict[bytes, bytes] = {}  # from its READY; names in lower case
        self._greeted = False
        self.output = self._greeting()  # to be sent now: see `take_output`
        self._is_between = False  # ready, and with no piece of a message: the next byte begins one
        self._held = b""  # a piece of the greeting or of a frame's header
        self._frames: List[bytes] = []  # of the unfinished message
        self._room = self._maximum_first_frame_bytes  # the limit for the next frame of the unfinished message
        self._flags = self._size = 0  # of the unfinished frame
        self.missing_bytes = 0  # of the unfinished frame
        self._pieces: List[Union[bytes, bytearray]] = []
        self.reused_bytes = 0
        self.place: Optional[memoryview] = None
        self.aside_bytes = 0
        self.opening: Optional[Callable[[], None]] = None
        self._memory = bytearray()  # of frames that are read into it
        self._other_memory = bytearray()  # which comes next if that one is kept

    @property
    def peer_has_spoken(self) -> bool:
        """Whether the peer has sent anything."""
        return self._greeted or bool(self._held)

    @property
    def held_bytes(self) -> int:
        """How much has arrived of a message that is not complete."""
        arrived_bytes = self._size - self.missing_bytes if self.missing_bytes else 0
        return len(self._held) + arrived_bytes + sum(map(len, self._frames))

    def allow(self, maximum_message_bytes: int, maximum_first_frame_bytes: int) -> None:
        """From now on the peer may send messages of these sizes; one that is arriving may be too large from now on."""
        is_first = not self._frames
        before = self._maximum_first_frame_bytes if is_first else self._maximum_message_bytes
        self._maximum_message_bytes = maximum_message_bytes
        self._maximum_first_frame_bytes = min(maximum_message_bytes, maximum_first_frame_bytes)
        self._room += (self._maximum_first_frame_bytes if is_first else maximum_message_bytes) - before
        self._short_pair_bytes = self._maximum_first_frame_bytes if self._maximum_frames >= 2 else 0

    def take_output(self) -> bytes:
        """The bytes to send now, before any message: greeting, READY, PONG or ERROR; usually empty."""
        output, self.output = self.output, b""
        return output

    def feed(self, data: bytes) -> List[List[bytes]]:
        """Process received bytes, split anywhere (empty: the peer has closed); returns the messages they complete.

        Raises ZmtpError; then send what `take_output` returns if possible without waiting, and close.
        """
        size = len(data)
        if self._is_between and 4 <= size <= self._short_pair_bytes and data[0] == MORE:
            # Two short frames and nothing else, on which latency depends?
            second = 2 + data[1]
            rest = size - second - 2
            if rest >= 0 and not data[second] and data[second + 1] == rest:
                return [[data[2:second], data[second + 2 :]]]
        return self._feed_any(data)

    def _feed_any(self, data: bytes) -> List[List[bytes]]:
        self._is_between = False
        messages: List[List[bytes]] = []
        if not data:
            if self.is_ready:
                raise PeerGoneError("the peer closed the connection")
            raise UnfinishedHandshakeError(
                "the peer closed the connection in the handshake: it has waited too long, or check that it uses"
                " mechanism NULL and a matching socket type"
            )
        if self.missing_bytes or self._held or self._frames or not self.is_ready:
            data = self._continue(data, messages)
        if data:
            self._read_frames(data, messages)
        self._is_between = self.is_ready and not (self.missing_bytes or self._held or self._frames)
        return messages

    def _continue(self, data: bytes, messages: List[List[bytes]]) -> bytes:
        """Read what goes on with bytes that came before; returns the bytes that follow it."""
        if self.missing_bytes:
            data = self._continue_frame(data, messages)
        if self._held:
            data, self._held = self._held + data, b""
        if not self._greeted:
            data = self._read_greeting(data)
        return data

    def _read_greeting(self, data: bytes) -> bytes:
        """Check the greeting as it arrives; returns the bytes that follow it."""
        if data and not begins_like_zmtp(data):
            raise ForeignPeerError(f"the peer does not speak ZMTP; it began with {data[:10]!r}")
        if len(data) > 10 and data[10] < 3:
            raise ForeignPeerError("the peer speaks ZMTP before 3.0; it needs ZeroMQ 4.0 or later")
        if len(data) < GREETING_BYTES:
            self._held = data
            return b""
        self.peer_minor_version = data[11] if data[10] == 3 else 1
        # SCL-TRN-002
        self._check_mechanism(data[12:32].rstrip(b"\0"))
        self._greeted = True
        self._begin_handshake()
        return data[GREETING_BYTES:]

    def _greeting(self) -> bytes:
        return greeting(b"NULL")

    def _check_mechanism(self, mechanism: bytes) -> None:
        if mechanism == b"CURVE":
            raise MechanismError("the peer requires keys (mechanism CURVE), and this end has none")
        if mechanism != b"NULL":
            raise ForeignPeerError(f"the peer uses mechanism {mechanism!r}; this end supports NULL only")

    def _begin_handshake(self) -> None:
        self._send_command(b"\5READY" + self._metadata())

    def _metadata(self) -> bytes:
        """The properties to tell the peer."""
        return property_of(b"Socket-Type", self._socket_type.encode()) + property_of(b"Identity", self._identity)

    def _read_frames(self, data: bytes, messages: List[List[bytes]]) -> None:
        position, end, is_sealed = 0, len(data), self._has_sealed_frames
        while end - position >= 2:
            flags = data[position]
            if flags & LONG:
                if end - position < 9:
                    break
                size = _LONG_SIZE.unpack_from(data, position + 1)[0]
                start = position + 9
            else:
                size = data[position + 1]
                start = position + 2
            if flags > 3 or size > self._room or is_sealed or not self.is_ready:
                self._check_header(flags, size)
            position = start + size
            if position > end:
                self._flags, self._size, self.missing_bytes = flags, size, position - end
                if REUSE_FROM_BYTES <= size <= self.reused_bytes and self._frames and not flags & MORE:
                    if messages:  # one of them may be there, and is to be returned first
                        self._memory = bytearray()
                    self._begin_in_place(data, start)
                else:
                    self._pieces = [data[start:]]
                return
            if is_sealed or flags & COMMAND:
                self._take_frame(flags, data[start:position], messages)
            else:
                self._frames.append(data[start:position])
                if flags & MORE:
                    self._expect_more(size)
                else:
                    messages.append(self._frames)
                    self._frames, self._room = [], self._maximum_first_frame_bytes
        self._held = data[position:]

    def _check_header(self, flags: int, size: int) -> None:
        if flags > 7 or (flags & COMMAND and flags & MORE):
            raise MalformedFrameError(f"invalid frame flags {flags:#04x}")
        if flags & COMMAND:
            if size > MAXIMUM_COMMAND_BYTES:
                raise LimitExceededError(f"a command of {size} bytes; the limit is {MAXIMUM_COMMAND_BYTES}")
        elif not self.is_ready:
            raise MalformedFrameError("a message arrived before the READY command")
        # SCL-SEC-006
        elif size > self._room:
            limit = self._maximum_message_bytes if self._frames else self._maximum_first_frame_bytes
            raise LimitExceededError(f"a {'message' if self._frames else 'first frame'} of more than {limit} bytes")

    def _continue_frame(self, data: bytes, messages: List[List[bytes]]) -> bytes:
        """Read more of an unfinished frame; returns the bytes that follow it."""
        if self._size > self._room:  # since `allow`
            self._check_header(self._flags, self._size)
        if self.place is not None:
            count = min(len(data), self.missing_bytes)
            self.place[:count] = data[:count]
            self._filled(count, messages)
            return data[count:]
        piece = data if len(data) <= self.missing_bytes else data[: self.missing_bytes]
        if len(piece) < _GATHER_BELOW_BYTES and isinstance(self._pieces[-1], bytearray):
            self._pieces[-1] += piece
        else:
            self._pieces.append(piece if len(piece) >= _GATHER_BELOW_BYTES else bytearray(piece))
        self.missing_bytes -= len(piece)
        if self.missing_bytes:
            return b""
        body, self._pieces = b"".join(self._pieces), []
        self._take_frame(self._flags, body, messages)
        return data[len(piece) :]

    def _begin_in_place(self, data: bytes, start: int) -> None:
        """Bytes from `start` on begin a large frame."""
        if len(self._memory) < self._size:
            self._memory = bytearray(self._size)
        view = memoryview(self._memory)
        count = len(data) - start
        view[:count] = memoryview(data)[start:]
        self.place = view[count : self._size]

    def filled(self, count: int) -> List[List[bytes]]:
        """So many bytes were read into `place`; returns the messages that they complete.

        Raises ZmtpError, like `feed`.
        """
        if not count:
            return self.feed(b"")
        if self._size > self._room:  # since `allow`
            self._check_header(self._flags, self._size)
        messages: List[List[bytes]] = []
        self._filled(count, messages)
        self._is_between = self.is_ready and not (self.missing_bytes or self._frames)
        return messages

    def keep_memory(self, view: memoryview) -> Optional[bytearray]:
        """A view of the last message is still needed: the memory that no other message overwrites until `use_memory`.

        None: no other one would overwrite it.
        """
        if view.obj is not self._memory:
            return None
        kept, self._memory, self._other_memory = self._memory, self._other_memory, bytearray()
        return kept

    def use_memory(self, kept: bytearray) -> None:
        """Memory that was kept may be used again."""
        self._other_memory = kept

    def _filled(self, count: int, messages: List[List[bytes]]) -> None:
        assert self.place is not None
        self.missing_bytes -= count
        self.place = self.place[count:] if self.missing_bytes else None
        if not self.missing_bytes:
            self._take_frame(self._flags, memoryview(self._memory)[: self._size], messages)

    def _take_frame(self, flags: int, body: Union[bytes, memoryview], messages: List[List[bytes]]) -> None:
        if flags & COMMAND:
            self._take_command(bytes(body), messages)
            return
        self._frames.append(cast(bytes, body))  # an owner that sets `reused_bytes` expects views
        if flags & MORE:
            self._expect_more(len(body))
        else:
            messages.append(self._frames)
            self._frames, self._room = [], self._maximum_first_frame_bytes

    def _expect_more(self, size: int) -> None:
        """A frame of this size is not the last of its message."""
        count = len(self._frames)
        if count == 1:
            self._room = self._maximum_message_bytes
        if count >= self._maximum_frames:
            raise LimitExceededError(f"a message of more than {self._maximum_frames} frames")
        self._room -= size

    def _take_command(self, body: bytes, messages: List[List[bytes]]) -> None:
        name_end = 1 + body[0] if body else 1
        name, rest = body[1:name_end], body[name_end:]
        if name == b"ERROR":
            text = "".join(each if each.isprintable() else "?" for each in rest[1:256].decode("utf-8", "replace"))
            raise RefusedError(f"the peer refused the connection: {text}")
        if not self.is_ready:
            self._take_handshake(body)
        # SCL-TRN-008
        elif name == b"PING":
            if not 2 <= len(rest) <= 18:
                raise MalformedFrameError(f"a PING with {len(rest)} bytes")
            self._send_command(b"\4PONG" + rest[2:])  # the first two bytes are how long the peer will wait
        elif name in _SUBSCRIPTIONS and self._socket_type == "XPUB":
            if len(rest) >= self._maximum_first_frame_bytes:
                raise LimitExceededError(f"a topic of more than {self._maximum_first_frame_bytes - 1} bytes")
            messages.append([_SUBSCRIPTIONS[name] + rest])
            # Other commands (PONG; those of later versions) need no action.

    def _send_command(self, command: Buffer) -> None:
        self.output += as_command(command)

    def _take_handshake(self, command: bytes) -> None:
        if not command.startswith(b"\5READY"):
            raise MalformedFrameError(f"the first command is {command[1:17]!r} instead of READY")
        self._take_metadata(command[6:])

    def _take_metadata(self, data: bytes) -> None:
        """The peer's properties, which complete the handshake."""
        properties, at = self.peer_properties, 0
        while at < len(data):
            size_at = at + 1 + data[at]
            value_at = size_at + 4
            value_end = value_at + int.from_bytes(data[size_at:value_at], "big")
            if data[at] == 0 or len(data) < max(value_at, value_end):
                raise MalformedFrameError("the properties of the peer are malformed")
            properties[data[at + 1 : size_at].lower()] = data[value_at:value_end]
            at = value_end
        socket_type = properties.get(b"socket-type", b"")
        # SCL-TRN-002
        if socket_type not in _COMPATIBLE[self._socket_type]:
            reason = f"a {self._socket_type} socket cannot speak with one of type {socket_type[:16]!r}"
            self._refuse(reason)
            raise ForeignPeerError(reason)
        self.is_ready = True

    def _refuse(self, reason: str) -> None:
        """Tell the peer why its connection is closed."""
        text = reason.encode()[:255]
        self._send_command(b"\5ERROR" + bytes((len(text),)) + text)

    def encode(self, frames: Sequence[Buffer]) -> List[Buffer]:
        """Lay out one message for `sendmsg`: to be sent in this order, each message once."""
        return encode(frames)

    def encode_aside(
        self, frames: Sequence[Buffer], least_bytes: int
    ) -> Optional[Tuple[List[Buffer], Callable[[], None]]]:
        """As `encode`, of a message whose last frame has at least so many bytes and is sealed: the last buffer may be
        sent once the function was called that is returned, by any thread.

        None: that frame is shorter, or is not sealed, or the memory for it is not free.
        """
        return None

    def opened(self) -> List[List[bytes]]:
        """`opening` was called, and has raised nothing: the messages that `filled` would have returned.

        Raises ZmtpError, like `filled`.
        """
        raise NotImplementedError("nothing is sealed")

    def all_has_left(self) -> None:
        """The system has all that was encoded so far: memory may be used again in which it was laid out."""

    def lone_encoder(self) -> Callable[[Sequence[Buffer]], List[Buffer]]:
        """A function like `encode` for messages of at most two frames, of which one may be sent.

        It has to be sent before any message that `encode` lays out from now on. Any thread may use the function.
        """
        return encode


def encode(frames: Sequence[Buffer]) -> List[Buffer]:
    """Lay out one message for `sendmsg`; frames of COPY_BELOW_BYTES or more are not copied."""
    if len(frames) == 2:  # on which latency depends, if they are short
        header, payload = frames
        if type(header) is bytes and len(header) < 256:
            size = payload.nbytes if isinstance(payload, memoryview) else len(payload)
            if size < 256:
                return [b"".join((_SHORT_MORE[len(header)], header, _SHORT_LAST[size], payload))]
    buffers: List[Buffer] = []
    small: List[Buffer] = []
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        size, more = frame.nbytes if isinstance(frame, memoryview) else len(frame), index < last
        if size < 256:
            small.append(_SHORT_MORE[size] if more else _SHORT_LAST[size])
        else:
            small.append(_LONG_HEADER.pack(LONG | more, size))
        if size < COPY_BELOW_BYTES:
            small.append(frame)
        else:
            buffers += (b"".join(small), frame)
            small = []
    if small:
        buffers.append(b"".join(small))
    return buffers


def greeting(mechanism: bytes, as_server: bool = False) -> bytes:
    """The first bytes of a connection."""
    return b"\xff" + bytes(7) + b"\x01\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes((as_server,)) + bytes(31)


def as_command(body: Buffer) -> bytes:
    """A command frame."""
    size = len(body)
    return (bytes((COMMAND, size)) if size < 256 else _LONG_HEADER.pack(COMMAND | LONG, size)) + body


def property_of(name: bytes, value: bytes) -> bytes:
    """A property of a peer, as it stands in a handshake."""
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value
