"""CURVE (ZeroMQ RFC 26) without I/O: who a peer is, and what only the two ends can read.

    client ──HELLO──▶ server      a new key C', sealed for the server's key S: only the owner of S can go on
    client ◀─WELCOME─ server      a new key S', and a cookie
    client ─INITIATE▶ server      the cookie, the client's key C, and C's word for C': now the server knows who calls
    client ◀──READY── server      from here on, all frames are sealed with C' and S'

Rules:
- No randomness, arithmetic or memory of other connections: the owner passes `Arithmetic`, and a function that says
  which keys are admitted. It is asked once the peer has proved to own its key, and before anything else of it is read.
- Whatever a peer sends raises nothing but `ZmtpError`. After an error the connection is of no more use.
- Each nonce is used once. Those of a peer must increase: a frame that is repeated, or comes out of order, is an error.
- The keys of a connection die with it: who learns the keys C and S later cannot read what was recorded.
"""

from __future__ import annotations

import hmac
import struct
from contextlib import suppress
from functools import partial
from typing import Callable, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from scaler_protocol.wire.zmtp import LONG, MORE, Buffer, MalformedFrameError, ZmtpError

KEY_BYTES = 32
TAG_BYTES = 16  # what sealing adds
COOKIE_BYTES = 96
SEALED_COMMAND = 2
"""The flag of a sealed command; that of frames to which more belong is MORE."""
JOINED = 4
"""The flag of a frame that contains both frames of a message: a size of four bytes, the first frame, and the second."""
JOINED_BYTES = 37
"""What a joined frame is longer than the frames that it contains."""
LARGEST_JOINED_BYTES = 32 * 1024
"""Sealing longer ones takes so much time that it does not matter how often it begins."""
SHORT_BYTES = 4096
"""Of sealed texts that are copied rather than pointed to, because each step costs more than the bytes."""
SEALED_FRAME_BYTES = 33
"""What a sealed frame is longer than its content: the command's name, the nonce, the tag and the flags."""
SEALED_HEADER_BYTES = 9
"""What ZMTP puts before a large one."""

_HELLO, _WELCOME, _INITIATE, _READY, _MESSAGE = (
    b"\x05HELLO",
    b"\x07WELCOME",
    b"\x08INITIATE",
    b"\x05READY",
    b"\x07MESSAGE",
)
_VERSION = b"\x01\x00"
_HELLO_PADDING = bytes(72)  # no answer before the peer has proved itself is longer than its question
_HELLO_BYTES, _WELCOME_BYTES = 200, 168
_VOUCH_BYTES = 16 + 2 * KEY_BYTES + TAG_BYTES  # with its nonce
_LEAST_INITIATE_BYTES = len(_INITIATE) + COOKIE_BYTES + 8 + TAG_BYTES + KEY_BYTES + _VOUCH_BYTES
_LARGEST_COUNT = (1 << 64) - 1
_NUMBER = struct.Struct(">Q")
_LONG_HEAD = struct.Struct(">BQ")
_SHORT_HEADS = [bytes((0, size)) + _MESSAGE for size in range(256)]
_FLAGS = [bytes((flags,)) for flags in range(JOINED + 1)]
_JOINED_HEAD = struct.Struct(">BI")
_FORGED = "a frame was changed on its way, or sealed with another key"
_SEALED_FLAGS = {bytes((flags,)): flags & (MORE | SEALED_COMMAND) for flags in range(256)}
_SEALED_FLAGS[bytes((JOINED,))] = JOINED


class KeyPair(NamedTuple):
    """32 bytes each."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public.hex()}, secret=...)"  # secrets stay out of logs and tracebacks


class ForgedError(Exception):
    """What was to be opened was not sealed with this key and nonce."""


class Box(Protocol):
    """The key that two key pairs have in common (X25519), to seal with XSalsa20 and Poly1305."""

    def seal(self, nonce: bytes, head: bytes, *parts: Buffer) -> bytearray:
        """`head` as it is, and then the parts, sealed as one.

        Parameters:
            nonce: 24 bytes, of which a key never seals two texts.
        """

    def seal_short(self, nonce: bytes, head: bytes, text: bytes) -> bytes:
        """The same for a text of at most SHORT_BYTES, in fewer steps; called by one thread at a time."""

    def open(self, nonce: bytes, data: Buffer, start: int = 0) -> bytes:
        """What was sealed, and stands in `data` from `start` on.

        Raises ForgedError.
        """

    def open_split(self, nonce: bytes, data: bytes, start: int, end: int) -> Tuple[bytes, bytes]:
        """What stands in `data` from `start` to `end`, as the first byte and the others; by one thread at a time.

        Raises ForgedError.
        """

    def seal_into(self, memory: memoryview, nonce: bytes, head: bytes, *parts: Buffer) -> None:
        """Like `seal`, to memory of exactly that size."""

    def open_in_place(self, nonce: bytes, memory: memoryview) -> memoryview:
        """What was sealed, and is all of `memory`: where it stands there now.

        Raises ForgedError.
        """


class Arithmetic(Protocol):
    """What CURVE needs of a library."""

    def random(self, size_bytes: int) -> bytes:
        """Bytes that cannot be predicted."""

    def new_keys(self) -> KeyPair:
        """A new key pair."""

    def box(self, public: bytes, secret: bytes) -> Box:
        """Between the owner of a public key and ourselves.

        Raises ForgedError if the public key is one with which all secret keys make the same box.
        """


class KeyRejectedError(ZmtpError):
    """The peer could not prove to be the one that it must be, or its key is not admitted."""


Admit = Callable[[bytes], Optional[str]]
"""Whether a peer with this public key may connect: None, or the reason why not, which it is told."""


class SealedFrames:
    """The frames of a connection after its handshake.

    Parameters:
        box: of the connection's own keys.
        sending, receiving: the first 16 bytes of all nonces.
        last_sent, last_received: the numbers of the nonces that the handshake has used.
    """

    def __init__(self, box: Box, sending: bytes, receiving: bytes, last_sent: int, last_received: int) -> None:
        self._box = box
        self._seal, self._seal_short, self._open = box.seal, box.seal_short, box.open_split
        self._sending, self._receiving = sending, receiving
        self._last_sent, self._last_received = last_sent, _NUMBER.pack(last_received)

    def seal(self, flags: int, content: Buffer) -> bytearray:
        """A frame, with the header that ZMTP puts before it."""
        self._last_sent += 1
        number = _NUMBER.pack(self._last_sent)
        size = SEALED_FRAME_BYTES + (content.nbytes if isinstance(content, memoryview) else len(content))
        head = _SHORT_HEADS[size] if size < 256 else _LONG_HEAD.pack(LONG, size) + _MESSAGE
        return self._seal(self._sending + number, head + number, _FLAGS[flags], content)

    def sealing_into(self, memory: bytearray, flags: int, content: Buffer) -> Tuple[memoryview, Callable[[], None]]:
        """The same of a large frame, to memory that has room for it: where it is once it is sealed, and what does that.

        Any thread may do it, once.
        """
        self._last_sent += 1
        number = _NUMBER.pack(self._last_sent)
        size = SEALED_FRAME_BYTES + (content.nbytes if isinstance(content, memoryview) else len(content))
        frame = memoryview(memory)[: _LONG_HEAD.size + size]
        head = _LONG_HEAD.pack(LONG, size) + _MESSAGE + number
        return frame, partial(self._box.seal_into, frame, self._sending + number, head, _FLAGS[flags], content)

    # SCL-TRN-012
    def seal_joined(self, frames: Sequence[Buffer], reserved: int = 0) -> List[Buffer]:
        """The two frames of a message as one, for a peer that reads that; nothing if they are too long for it.

        Parameters:
            reserved: the number of a nonce that was set aside; then any thread may call this.
        """
        first, second = frames
        first_bytes = first.nbytes if isinstance(first, memoryview) else len(first)
        size = JOINED_BYTES + first_bytes + (second.nbytes if isinstance(second, memoryview) else len(second))
        if size > LARGEST_JOINED_BYTES:
            return []
        number = _NUMBER.pack(reserved or self._last_sent + 1)
        head = _SHORT_HEADS[size] + number if size < 256 else _LONG_HEAD.pack(LONG, size) + _MESSAGE + number
        nonce, begin = self._sending + number, _JOINED_HEAD.pack(JOINED, first_bytes)
        if reserved:
            return [self._seal(nonce, head, begin, first, second)]
        self._last_sent += 1
        if size <= SHORT_BYTES:
            return [self._seal_short(nonce, head, b"".join((begin, first, second)))]
        return [self._seal(nonce, head, begin, first, second)]

    def reserve(self, count: int) -> int:
        """Set nonces aside for frames that are sealed elsewhere; returns the number before the first of them."""
        self._last_sent += count
        return self._last_sent - count

    def beginning_at(self, last_sent: int) -> SealedFrames:
        """The same connection's, to seal with nonces that were set aside."""
        return SealedFrames(self._box, self._sending, self._receiving, last_sent, _LARGEST_COUNT)

    def open(self, data: bytes, start: int, end: int) -> Tuple[int, bytes]:
        """Flags and content of a frame.

        Parameters:
            start, end: where the frame is in `data`, without the header of ZMTP.

        Raises KeyRejectedError.
        """
        at = start + 16
        number = data[start + 8 : at]
        if end - start < SEALED_FRAME_BYTES or not data.startswith(_MESSAGE, start):
            raise KeyRejectedError("a frame that is not sealed")
        if number <= self._last_received:  # as numbers: both have eight bytes, the greatest first
            raise KeyRejectedError("a sealed frame was repeated, or is out of order")
        try:
            flags, content = self._open(self._receiving + number, data, at, end)
        except ForgedError:
            raise KeyRejectedError(_FORGED) from None
        self._last_received = number
        return _SEALED_FLAGS[flags], content

    def opening(self, frame: memoryview) -> Opening:
        """What opens a large frame, whose content stands in the memory of the frame then; see `take_opened`.

        Raises KeyRejectedError.
        """
        number = bytes(frame[8:16])
        if len(frame) < SEALED_FRAME_BYTES or frame[:8] != _MESSAGE:
            raise KeyRejectedError("a frame that is not sealed")
        if number <= self._last_received:
            raise KeyRejectedError("a sealed frame was repeated, or is out of order")
        return Opening(self._box, self._receiving, number, frame[16:])

    def take_opened(self, opening: Opening) -> Tuple[int, memoryview]:
        """Flags and content of the frame that was opened last."""
        self._last_received = opening.number
        return _SEALED_FLAGS[bytes(opening.text[:1])], opening.text[1:]


class Opening:
    """Opens a large frame where it is; any thread may call it, once.

    Raises KeyRejectedError if the frame was forged.

    Attributes:
        number: of its nonce.
        text: what was sealed, after the call.
    """

    __slots__ = ("number", "text", "_box", "_nonce")

    def __init__(self, box: Box, nonce_begin: bytes, number: bytes, sealed: memoryview) -> None:
        self.number, self.text = number, sealed
        self._box, self._nonce = box, nonce_begin + number

    def __call__(self) -> None:
        try:
            self.text = self._box.open_in_place(self._nonce, self.text)
        except ForgedError:
            raise KeyRejectedError(_FORGED) from None


class CurveClient:
    """The end that connects.

    Parameters:
        arithmetic: of a library.
        keys: its own, C.
        server_key: the public key that the other end must own, S.
        metadata: the properties to tell the server, as in a READY command.
    """

    def __init__(self, arithmetic: Arithmetic, keys: KeyPair, server_key: bytes, metadata: bytes) -> None:
        self._arithmetic, self._keys, self._server_key, self._metadata = arithmetic, keys, server_key, metadata
        self._own = arithmetic.new_keys()  # C'
        try:
            self._hello_box = arithmetic.box(server_key, self._own.secret)
        except ForgedError:
            raise ValueError(f"{server_key.hex()} is not the public key of a server") from None
        self._box: Optional[Box] = None  # of C' and S', once it is known
        self.frames: Optional[SealedFrames] = None  # once the handshake is complete

    def first_command(self) -> Buffer:
        """HELLO."""
        number = _NUMBER.pack(1)
        head = _HELLO + _VERSION + _HELLO_PADDING + self._own.public + number
        return self._hello_box.seal(b"CurveZMQHELLO---" + number, head, bytes(64))

    def take(self, command: bytes) -> Tuple[Buffer, bytes]:
        """A command of the handshake has arrived: the answer, and the server's metadata if that was the last one.

        Raises ZmtpError.
        """
        if self._box is None:
            return self._take_welcome(command), b""
        return b"", self._take_ready(command, self._box)

    def _take_welcome(self, command: bytes) -> Buffer:
        if len(command) != _WELCOME_BYTES or not command.startswith(_WELCOME):
            raise MalformedFrameError(f"instead of CURVE's WELCOME, a command that begins with {command[:16]!r}")
        try:
            opened = self._hello_box.open(b"WELCOME-" + command[8:24], command, 24)
            server_own, cookie = opened[:KEY_BYTES], opened[KEY_BYTES:]
            self._box = self._arithmetic.box(server_own, self._own.secret)
            vouch_box = self._arithmetic.box(server_own, self._keys.secret)
        except ForgedError:
            raise KeyRejectedError("the server does not own the key that this end was given for it") from None
        vouch_nonce = self._arithmetic.random(16)
        vouch = vouch_box.seal(b"VOUCH---" + vouch_nonce, b"", self._own.public, self._server_key)
        number = _NUMBER.pack(2)
        nonce, head = b"CurveZMQINITIATE" + number, _INITIATE + cookie + number
        return self._box.seal(nonce, head, self._keys.public, vouch_nonce, vouch, self._metadata)

    def _take_ready(self, command: bytes, box: Box) -> bytes:
        if len(command) < 14 + TAG_BYTES or not command.startswith(_READY):
            raise MalformedFrameError(f"instead of CURVE's READY, a command that begins with {command[:16]!r}")
        number = command[6:14]
        try:
            metadata = box.open(b"CurveZMQREADY---" + number, command, 14)
        except ForgedError:
            raise KeyRejectedError("the server's READY was changed on its way") from None
        sent, received = 2, _NUMBER.unpack(number)[0]
        self.frames = SealedFrames(box, b"CurveZMQMESSAGEC", b"CurveZMQMESSAGES", sent, received)
        return metadata


class CurveServer:
    """The end that is connected to.

    Parameters:
        arithmetic: of a library.
        keys: its own, S: any of them, of which a client knows one; there are several while they are rotated.
        admit: decides about the client's key.
        metadata: the properties to tell the client.
    """

    def __init__(self, arithmetic: Arithmetic, keys: Sequence[KeyPair], admit: Admit, metadata: bytes) -> None:
        self._arithmetic, self._all_keys, self._admit, self._metadata = arithmetic, keys, admit, metadata
        self._public_key = b""  # S, of the one that the client knows
        self._client_own = self._cookie = b""  # C', from its HELLO
        self._own: Optional[KeyPair] = None  # S', from our WELCOME on
        self.peer_key = b""  # C, once the client has proved to own it
        self.frames: Optional[SealedFrames] = None  # once the handshake is complete

    def take(self, command: bytes) -> Tuple[Buffer, bytes]:
        """A command of the handshake has arrived: the answer, and the client's metadata if that was the last one.

        Raises ZmtpError.
        """
        if self._own is None:
            return self._take_hello(command), b""
        return self._take_initiate(command, self._own)

    def _take_hello(self, command: bytes) -> Buffer:
        if len(command) != _HELLO_BYTES or not command.startswith(_HELLO):
            raise MalformedFrameError(f"instead of CURVE's HELLO, a command that begins with {command[:16]!r}")
        if command[6:8] != _VERSION:
            raise MalformedFrameError(f"CURVE version {command[6]}.{command[7]}; this end supports 1.0")
        if command[8:80] != _HELLO_PADDING:
            raise MalformedFrameError("the padding of CURVE's HELLO is not zero")
        client_own = command[80:112]
        box = self._box_of_hello(command, client_own)
        self._client_own = client_own
        self._own = self._arithmetic.new_keys()
        # This end keeps the connection's state, so the cookie need not contain it: it has to come back, that is all.
        self._cookie = self._arithmetic.random(COOKIE_BYTES)
        nonce = self._arithmetic.random(16)
        return box.seal(b"WELCOME-" + nonce, _WELCOME + nonce, self._own.public, self._cookie)

    def _box_of_hello(self, command: bytes, client_own: bytes) -> Box:
        """Find the key that the client expects; returns the box of that and the client's own."""
        for keys in self._all_keys:
            with suppress(ForgedError):
                box = self._arithmetic.box(client_own, keys.secret)
                box.open(b"CurveZMQHELLO---" + command[112:120], command, 120)
                self._public_key = keys.public
                return box
        raise KeyRejectedError("the client expects another key of this server")

    def _take_initiate(self, command: bytes, own: KeyPair) -> Tuple[Buffer, bytes]:
        if len(command) < _LEAST_INITIATE_BYTES or not command.startswith(_INITIATE):
            raise MalformedFrameError(f"instead of CURVE's INITIATE, a command that begins with {command[:16]!r}")
        at = len(_INITIATE) + COOKIE_BYTES
        if not hmac.compare_digest(command[len(_INITIATE) : at], self._cookie):
            raise KeyRejectedError("the cookie is not the one that this end has sent")
        number = command[at : at + 8]
        try:
            box = self._arithmetic.box(self._client_own, own.secret)
            opened = box.open(b"CurveZMQINITIATE" + number, command, at + 8)
            client, vouch_nonce = opened[:KEY_BYTES], opened[KEY_BYTES : KEY_BYTES + 16]
            vouch_end = KEY_BYTES + _VOUCH_BYTES
            vouch_box = self._arithmetic.box(client, own.secret)
            vouched = vouch_box.open(b"VOUCH---" + vouch_nonce, opened[:vouch_end], KEY_BYTES + 16)
        except ForgedError:
            raise KeyRejectedError("the client does not own the key that it names") from None
        if not hmac.compare_digest(vouched, self._client_own + self._public_key):
            raise KeyRejectedError("the client's key speaks for another connection")
        refusal = self._admit(client)
        if refusal is not None:
            raise KeyRejectedError(refusal)
        self.peer_key = client
        received, sent = _NUMBER.unpack(number)[0], 1
        self.frames = SealedFrames(box, b"CurveZMQMESSAGES", b"CurveZMQMESSAGEC", sent, received)
        ready_number = _NUMBER.pack(1)
        ready = box.seal(b"CurveZMQREADY---" + ready_number, _READY + ready_number, self._metadata)
        return ready, opened[vouch_end:]
