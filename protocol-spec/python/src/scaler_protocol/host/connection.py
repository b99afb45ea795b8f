"""One ZMTP connection over a non-blocking stream socket: the transport shared by clients, workers and schedulers.

Rules:
- Nothing here blocks or waits: the owner registers `fileno()` with its event loop, calls `receive()` when the socket is
  readable, and calls `flush()` when it is writable and `has_unsent` is true.
- Data that the kernel does not accept at once is queued in order; the owner bounds it by `unsent_bytes`. Small messages
  are joined there, so that they take as much memory as is counted.
- No read is larger than SMALLEST_READ_BYTES, except within a larger frame: so a read brings few messages at once.
- A lost connection is an OSError, a ZmtpError or a MemoryError from `receive`, `send` or `flush`; the owner then closes
  it. An owner may leave that to `receive`: after any error in sending the stream ends for both peers, so that no
  message is left out of it.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from array import array
from bisect import bisect_left
from collections import deque
from itertools import islice
from math import inf
from typing import Callable, Deque, List, Optional, Sequence

from scaler_protocol.host import system
from scaler_protocol.host.addresses import Address, local_socket_name, resolve
from scaler_protocol.host.peer_credentials import is_of_this_user
from scaler_protocol.wire.buffers import flat_view
from scaler_protocol.wire.zmtp import Buffer, Zmtp, ZmtpError, begins_like_zmtp

SMALLEST_READ_BYTES = 64 * 1024  # CPython allocates this much without a system call
LARGEST_READ_BYTES = 1024 * 1024
COLLECTED_BYTES = 256 * 1024
"""Of a frame, before the owner is told to read: a link of 1 Gbit/s takes two milliseconds for that."""
KEEPALIVE_IDLE_SECONDS = 30  # NAT boxes forget idle connections

RETRANSMIT_MILLISECONDS = 1000
"""At most, between two attempts to send what was not acknowledged. TCP doubles the pause up to two minutes, so that a
link that is healed after half a minute would stay silent for as long again. Linux has this limit since 6.15."""

UNACKNOWLEDGED_MILLISECONDS = 600_000
"""After which the system ends a connection. Sessions end silent ones before; without it, frequent attempts would be
used up after a quarter of a minute."""

_TCP_USER_TIMEOUT: int = getattr(socket, "TCP_USER_TIMEOUT", 18)  # of Linux, like the next one
_TCP_RTO_MAX_MS = 44

GATHER_BYTES = 64 * 1024  # of small messages that wait

LARGEST_WRITE_BYTES = 256 * 1024
"""Per call; PyPy copies the whole argument, however little of it the kernel accepts."""

_IPV4_MAPPED = "::ffff:"
_MAXIMUM_BUFFERS_PER_CALL = 512  # below IOV_MAX of every system


def connect_to_local_socket(address: Address) -> Optional[socket.socket]:
    """A socket connected to the Unix domain socket beside a TCP address, if its owner is this user or root.

    Any user of this host may take a name in the abstract namespace, so the owner must be checked. None means: use TCP.
    """
    name = local_socket_name(address)
    if name is None:
        return None
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.setblocking(False)
        stream.connect(name)
        # SCL-TRN-010
        if is_of_this_user(stream):
            return stream
    except OSError:
        pass
    stream.close()
    return None


def first_words(address: Address, timeout_seconds: float) -> bytes:
    """A server's answer to an HTTP request line; empty if it sends nothing, like a busy scheduler, or speaks ZMTP.

    Servers of most protocols either speak first, or answer a line that they cannot parse.
    """
    try:
        family, target = resolve(address)
        with socket.socket(family, socket.SOCK_STREAM) as stream:
            stream.settimeout(timeout_seconds)
            stream.connect(target)
            stream.sendall(b"GET / HTTP/1.0\r\n\r\n")
            words = stream.recv(64)
            return b"" if begins_like_zmtp(words) else words
    except OSError:
        return b""


def _retransmit_soon(stream: socket.socket) -> None:
    """See to it that traffic flows soon after a link is healed, as far as the system can."""
    with contextlib.suppress(OSError):  # an older kernel, or a sandbox
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, UNACKNOWLEDGED_MILLISECONDS)
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, RETRANSMIT_MILLISECONDS)


class _Joined(Deque[memoryview]):
    """Whole messages in one buffer.

    Parameters:
        data: the messages.
        ends: where each of them ends.
    """

    def __init__(self, data: bytearray, ends: array[int]) -> None:
        super().__init__((memoryview(data),))
        self.total_bytes, self.ends = len(data), ends

    def rest_of_first(self) -> bytes:
        """What is left of the message that has left in part; empty if there is none."""
        sent = self.total_bytes - len(self[0])
        return bytes(self[0][: self.ends[bisect_left(self.ends, sent)] - sent]) if sent else b""


class Connection:
    """A connection that carries messages of one or more frames.

    Parameters:
        stream: connected or connecting; this object makes it non-blocking and owns it.
        protocol: the state of ZMTP at this end, and how it encodes messages.
    """

    __slots__ = (
        "protocol",
        "unsent_bytes",
        "read_bytes",
        "_stream",
        "_encode",
        "_unsent",
        "_gathered",
        "_ends",
        "_held",
        "_told_from_bytes",
    )

    def __init__(self, stream: socket.socket, protocol: Zmtp) -> None:
        stream.setblocking(False)
        if stream.family != system.AF_UNIX:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_KEEPIDLE"):
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS)
            if sys.platform.startswith("linux"):
                _retransmit_soon(stream)
        self.protocol = protocol
        self.unsent_bytes = 0
        self.read_bytes = 0  # by the last call of `receive`
        self._stream = stream
        self._encode = protocol.encode
        self._unsent: Deque[Deque[memoryview]] = deque()  # messages, or joined ones; the first may have left in part
        self._gathered = bytearray()  # small messages behind them
        self._ends = array("I")  # where each of these ends
        self._told_from_bytes = 1  # that are there
        self._held: Optional[List[Sequence[Buffer]]] = []  # messages queued until the handshake is done; None after it

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def is_local(self) -> bool:
        """Whether both ends are of this host for certain, since it is a Unix domain socket."""
        return self._stream.family == system.AF_UNIX

    @property
    def local_host(self) -> str:
        """The host of our end; empty if there is none, as of a Unix domain socket, or the system does not tell it."""
        if self._stream.family not in (socket.AF_INET, socket.AF_INET6):
            return ""
        try:
            host = str(self._stream.getsockname()[0])
        except OSError:
            return ""
        return host[len(_IPV4_MAPPED) :] if host.startswith(_IPV4_MAPPED) else host

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is complete."""
        return self._held is None

    @property
    def peer_has_spoken(self) -> bool:
        """Whether the peer has sent anything."""
        return self.protocol.peer_has_spoken

    @property
    def has_unsent(self) -> bool:
        """Whether data is queued because the kernel's buffer is full."""
        return bool(self._unsent or self._gathered)

    def take_error(self) -> int:
        """The error number of the connection attempt; 0 if it succeeded."""
        return self._stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def start(self) -> None:
        """Begin the handshake; the stream must be connected.

        Raises OSError.
        """
        self._write(self.protocol.take_output())

    def receive(self) -> List[List[bytes]]:
        """Read once, and return the messages that are complete now.

        Raises OSError or ZmtpError if the connection is lost.
        """
        protocol = self.protocol
        missing_bytes, place, data = protocol.missing_bytes, protocol.place, b""
        try:
            if place is not None:
                self.read_bytes = self._stream.recv_into(place, min(missing_bytes, LARGEST_READ_BYTES))
            else:
                data = self._stream.recv(
                    SMALLEST_READ_BYTES
                    if missing_bytes < SMALLEST_READ_BYTES
                    else min(missing_bytes, LARGEST_READ_BYTES)
                )
                self.read_bytes = len(data)
        except (BlockingIOError, InterruptedError):
            self.read_bytes = 0
            return []
        try:
            messages = protocol.feed(data) if place is None else protocol.filled(self.read_bytes)
        except ZmtpError:
            self._send_last_words(protocol.take_output())
            raise
        return self._answered(messages)

    def collect(self) -> None:
        """Have the socket readable only when much of the unfinished frame is there, or its rest; or at its end.

        To be called after each `receive`, by an owner that reads large frames. Linux only. Raises OSError.
        """
        missing_bytes = self.protocol.missing_bytes
        bytes_there = 1 if missing_bytes < SMALLEST_READ_BYTES else min(missing_bytes, COLLECTED_BYTES)
        if bytes_there != self._told_from_bytes and sys.platform.startswith("linux"):
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, bytes_there)
            self._told_from_bytes = bytes_there

    def opened(self) -> List[List[bytes]]:
        """What `receive` would have returned, if it had opened the frame that `Zmtp.opening` has opened.

        Raises OSError or ZmtpError if the connection is lost.
        """
        return self._answered(self.protocol.opened())

    def _answered(self, messages: List[List[bytes]]) -> List[List[bytes]]:
        """Messages, after what the protocol has to say."""
        protocol = self.protocol
        try:
            if protocol.output:
                self._write(protocol.take_output())
            if self._held is not None and protocol.is_ready:
                held, self._held = self._held, None
                for frames in held:
                    self.send(frames)
        except (OSError, MemoryError):
            if not messages:
                raise
        return messages  # a failed answer to them is reported by the next call

    def _send_last_words(self, data: bytes) -> None:
        """Tell the peer why the connection ends, if that is possible at once."""
        if data and not self.has_unsent:
            try:
                self._stream.send(data)
            except (OSError, MemoryError):
                pass  # the connection ends anyway

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send a message, now or as soon as there is room.

        Raises OSError or MemoryError if the connection is lost.
        """
        if self._held is not None:
            self._held.append(frames)
            return
        try:
            buffers = self._encode(frames)
            views = deque(map(flat_view, buffers)) if len(buffers) > 1 else None
        except MemoryError:
            self.abort()
            raise
        if views is None:
            self._write(buffers[0])
        else:
            was_empty = not self.has_unsent
            self._join()
            self._unsent.append(views)
            self.unsent_bytes += sum(map(len, views))
            if was_empty:
                self.flush()

    def send_aside(self, frames: Sequence[Buffer], least_bytes: int) -> Optional[Callable[[], None]]:
        """Queue a message whose last frame is large: `flush` may be called once what is returned was, by any thread.

        None: send it like others, for the reasons of `Zmtp.encode_aside`.
        """
        aside = self.protocol.encode_aside(frames, least_bytes) if self._held is None else None
        if aside is None:
            return None
        buffers, seal = aside
        self._join()
        views = deque(map(flat_view, buffers))
        self._unsent.append(views)
        self.unsent_bytes += sum(map(len, views))
        return seal

    def send_encoded(self, data: Buffer) -> None:
        """Send bytes of ZMTP, now or as soon as there is room.

        Raises OSError or MemoryError if the connection is lost.
        """
        self._write(data)

    def lone_encoder(self) -> Callable[[Sequence[Buffer]], List[Buffer]]:
        """A function that encodes a message of at most two frames for `send_encoded`.

        Of all that it encodes, one message may be sent, before any that `send` sends from now on. Any thread may use
        it.
        """
        return self.protocol.lone_encoder()

    def _write(self, data: Buffer) -> None:
        """Send the bytes of one message, or of commands between messages."""
        if self._unsent or self._gathered:
            try:
                self._gathered += data
                self._ends.append(len(self._gathered))
            except MemoryError:
                self.abort()
                raise
            self.unsent_bytes += len(data)
            if len(self._gathered) >= GATHER_BYTES:
                self._join()
            return
        try:
            sent = self._stream.send(data)
        except (OSError, MemoryError) as error:
            if not isinstance(error, (BlockingIOError, InterruptedError)):
                self.abort()
                raise
            sent = 0
        if sent < len(data):
            self._unsent.append(deque((memoryview(data)[sent:],)))
            self.unsent_bytes += len(data) - sent

    def _forget_gathered(self) -> None:
        self._gathered, self._ends = bytearray(), array("I")

    def _join(self) -> None:
        """Queue the small messages that were joined."""
        if self._gathered:
            self._unsent.append(_Joined(self._gathered, self._ends))
            self._forget_gathered()

    def flush(self, most_bytes: float = inf) -> bool:
        """Send queued data, and return whether the queue is empty.

        Parameters:
            most_bytes: to be sent in this call, and one write more: a peer that reads as fast as we write would have
                all that is queued in one go.

        Raises OSError or MemoryError if the connection is lost.
        """
        least_unsent_bytes = self.unsent_bytes - most_bytes
        while self._unsent or self._gathered:
            if self.unsent_bytes <= least_unsent_bytes:
                return False
            if not self._unsent:
                self._join()
            message = self._unsent[0]
            try:
                sent = self._send_some(message)
            except (BlockingIOError, InterruptedError):
                return False
            except (OSError, MemoryError):
                self.abort()
                raise
            self.unsent_bytes -= sent
            while message and sent >= len(message[0]):
                sent -= len(message.popleft())
            if message:
                message[0] = message[0][sent:]
            else:
                self._unsent.popleft()
        return True

    def _send_some(self, message: Deque[memoryview]) -> int:
        if len(message) == 1 or len(message[0]) >= LARGEST_WRITE_BYTES:
            return self._stream.send(message[0][:LARGEST_WRITE_BYTES])
        parts: List[memoryview] = []
        room = LARGEST_WRITE_BYTES
        for view in islice(message, _MAXIMUM_BUFFERS_PER_CALL):
            parts.append(view[:room])
            room -= len(parts[-1])
            if not room:
                break
        return self._stream.sendmsg(parts)

    def drop_unsent(self) -> None:
        """Discard queued messages, except the rest of a message that has been sent in part."""
        if self._held is not None:
            self._held = []
        self._forget_gathered()
        while len(self._unsent) > 1:
            self._unsent.pop()
        first = self._unsent[0] if self._unsent else None
        if isinstance(first, _Joined):
            self._unsent.clear()
            rest = first.rest_of_first()
            if rest:
                self._unsent.append(deque((memoryview(rest),)))
        self.unsent_bytes = sum(map(len, self._unsent[0])) if self._unsent else 0

    def abort(self) -> None:
        """End the stream for both peers, because a message cannot be sent in whole: `receive` reads its end."""
        self._unsent.clear()
        self._forget_gathered()
        self.unsent_bytes = 0
        try:
            self._stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended

    def finish(self) -> None:
        """Send nothing more: the peer reads the end of the stream after the data that it has not read yet."""
        try:
            self._stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the peer has already closed

    def close(self) -> None:
        self._stream.close()
