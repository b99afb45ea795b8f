"""libsodium, through cffi: the arithmetic of CURVE.

Rules:
- PyNaCl brings the library where it has wheels. Where it has none, as for PyPy, the library in pyzmq's wheels is the
  same one, and that of the system will do.
- Only functions of libsodium that take and fill buffers are used; the secrets of a connection are Python's bytes, which
  are not wiped: who can read the memory of a process can read its tasks, too.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from functools import cache
from typing import Any, Iterator, Tuple

from scaler_protocol.wire.curve import KEY_BYTES, SHORT_BYTES, TAG_BYTES, ForgedError, KeyPair
from scaler_protocol.wire.zmtp import Buffer

KEPT_BYTES = (1 << 20) + 64  # for chunks of objects
_TAG_ROOM = bytes(TAG_BYTES)


class MissingLibraryError(ImportError):
    """There is no libsodium, without which no connection can be encrypted."""


class SodiumBox:
    """A precomputed key; see `scaler_protocol.wire.curve.Box`.

    Short texts are sealed and opened in memory of the box, which one thread at a time may use.
    """

    __slots__ = ("_sodium", "_from_buffer", "_seal", "_open", "_key", "_short_room", "_short_text")

    def __init__(self, sodium: Sodium, key: Any) -> None:
        self._sodium, self._key = sodium, key
        self._from_buffer, self._seal, self._open = sodium.from_buffer, sodium.seal, sodium.open
        self._short_room: Any = None
        self._short_text: Any = None  # the same memory

    def seal(self, nonce: bytes, head: bytes, *parts: Buffer) -> bytearray:
        text = bytearray().join((head, _TAG_ROOM, *parts))
        head_bytes = len(head)
        at = self._from_buffer(text) + head_bytes
        self._seal(at, at + TAG_BYTES, len(text) - head_bytes - TAG_BYTES, nonce, self._key)  # in place
        return text

    def seal_short(self, nonce: bytes, head: bytes, text: bytes) -> bytes:
        if self._short_room is None:
            self._make_short_room()
        size = len(text)
        self._seal(self._short_room, text, size, nonce, self._key)
        sealed: bytes = self._short_text[0 : size + TAG_BYTES]
        return head + sealed

    def open(self, nonce: bytes, data: Buffer, start: int = 0) -> bytes:
        opened: bytes = self._opened(nonce, data, start, len(data))[:]
        return opened

    def open_split(self, nonce: bytes, data: bytes, start: int, end: int) -> Tuple[bytes, bytes]:
        sealed_bytes = end - start
        if TAG_BYTES <= sealed_bytes <= SHORT_BYTES:  # on which latency depends: with as few steps as possible
            if self._short_room is None:
                self._make_short_room()
            if self._open(self._short_room, data[start:end], sealed_bytes, nonce, self._key):
                raise ForgedError
            short = self._short_text
            return short[0:1], short[1 : sealed_bytes - TAG_BYTES]
        opened = self._opened(nonce, data, start, end)
        return opened[0:1], opened[1:]

    def seal_into(self, memory: memoryview, nonce: bytes, head: bytes, *parts: Buffer) -> None:
        head_bytes = end = len(head)
        memory[:end] = head
        end += TAG_BYTES
        for part in parts:
            begin, end = end, end + len(part)
            memory[begin:end] = part
        at = self._from_buffer(memory) + head_bytes
        self._seal(at, at + TAG_BYTES, len(memory) - head_bytes - TAG_BYTES, nonce, self._key)  # in place

    def open_in_place(self, nonce: bytes, memory: memoryview) -> memoryview:
        if len(memory) < TAG_BYTES:
            raise ForgedError
        at = self._from_buffer(memory)
        is_forged = self._open(at + TAG_BYTES, at, len(memory), nonce, self._key)
        del at  # with it in an error's traceback, CPython below 3.12.7 may crash when it collects that (gh-77894)
        if is_forged:
            raise ForgedError
        return memory[TAG_BYTES:]

    def _make_short_room(self) -> None:
        self._short_room = self._sodium.allocate("unsigned char[]", SHORT_BYTES + TAG_BYTES)
        self._short_text = self._sodium.buffer(self._short_room)

    def _opened(self, nonce: bytes, data: Buffer, start: int, end: int) -> Any:
        sealed_bytes = end - start
        if sealed_bytes < TAG_BYTES:
            raise ForgedError
        size = sealed_bytes - TAG_BYTES
        opened = self._sodium.room(size)
        if self._open(opened, self._from_buffer(data) + start, sealed_bytes, nonce, self._key):
            raise ForgedError
        return self._sodium.buffer(opened, size)


class Sodium:
    """See `scaler_protocol.wire.curve.Arithmetic`.

    Parameters:
        ffi, library: of cffi.
        source: where the library comes from, for people.
    """

    def __init__(self, ffi: Any, library: Any, source: str = "") -> None:
        self._ffi, self._library = ffi, library
        self.source = source
        self.from_buffer, self.buffer = ffi.from_buffer, ffi.buffer
        self.allocate = ffi.new_allocator(should_clear_after_alloc=False)
        self._kept = threading.local()
        self.seal, self.open = library.crypto_box_easy_afternm, library.crypto_box_open_easy_afternm
        if library.sodium_init() < 0:
            raise MissingLibraryError("libsodium could not be initialized")

    def room(self, size: int) -> Any:
        """Memory to be used at once, and by this thread only: it is the same each time, as new memory costs as much
        as opening what is written to it."""
        if size > KEPT_BYTES:
            return self.allocate("unsigned char[]", size)
        try:
            return self._kept.room
        except AttributeError:
            room = self._kept.room = self.allocate("unsigned char[]", KEPT_BYTES)
            return room

    def random(self, size_bytes: int) -> bytes:
        return os.urandom(size_bytes)

    def new_keys(self) -> KeyPair:
        public, secret = (self._ffi.new("unsigned char[]", KEY_BYTES) for _ in range(2))
        self._library.crypto_box_keypair(public, secret)
        return KeyPair(bytes(self._ffi.buffer(public)), bytes(self._ffi.buffer(secret)))

    def public_key(self, secret: bytes) -> bytes:
        """The public key that belongs to a secret one."""
        public = self._ffi.new("unsigned char[]", KEY_BYTES)
        self._library.crypto_scalarmult_base(public, secret)
        return bytes(self._ffi.buffer(public))

    def box(self, public: bytes, secret: bytes) -> SodiumBox:
        if len(public) != KEY_BYTES or len(secret) != KEY_BYTES:
            raise ValueError(f"keys have {KEY_BYTES} bytes, got {len(public)} and {len(secret)}")
        key = self._ffi.new("unsigned char[]", KEY_BYTES)
        if self._library.crypto_box_beforenm(key, public, secret):
            raise ForgedError
        return SodiumBox(self, key)


@cache
def load_sodium() -> Sodium:
    """The library of this process.

    Raises MissingLibraryError.
    """
    for ffi, library, source in _candidates():
        return Sodium(ffi, library, source)
    raise MissingLibraryError(
        "connections with keys need libsodium, which was not found; install it: pip install pynacl"
    )


def _candidates() -> Iterator[Tuple[Any, Any, str]]:
    try:
        from nacl._sodium import ffi, lib

        yield ffi, lib, "PyNaCl"
    except ImportError:
        pass
    try:
        from scaler_protocol.host.sodium_functions import ffi
    except ImportError:  # no cffi
        return
    for path in _paths():
        try:
            yield ffi, ffi.dlopen(path), path
        except OSError:
            continue


def _paths() -> Iterator[str]:
    found = importlib.util.find_spec("zmq")
    if found is not None and found.origin is not None:
        libraries = os.path.join(os.path.dirname(os.path.dirname(found.origin)), "pyzmq.libs")
        names = sorted(os.listdir(libraries)) if os.path.isdir(libraries) else []
        yield from (os.path.join(libraries, name) for name in names if name.startswith("libsodium"))
    from ctypes.util import find_library  # not at the top: few programs look here, and importing it takes 20 ms

    system = find_library("sodium")
    if system is not None:
        yield system
