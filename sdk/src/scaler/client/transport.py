"""A client's connection: one ZeroMQ socket, and the only module of the client that knows ZeroMQ.

Rules:
- Connecting takes a bounded time and ends in a Welcome or in an error that says what is wrong at that address.
- Sending never blocks: what does not fit into the pipe waits here, in order.
"""

from __future__ import annotations

import os
import platform
import re
import select
import socket as sockets
import time
from collections import deque
from typing import Deque, List, Optional, Sequence, Tuple, Union

import zmq

from scaler.exceptions import (
    NotASchedulerError,
    ProtocolVersionError,
    SchedulerRefusedError,
    SchedulerUnreachableError,
)
from scaler.payload import Buffer
from scaler.version import __version__
from scaler_protocol import (
    PROTOCOL_MAJOR,
    PROTOCOL_MINOR_MAX,
    PROTOCOL_MINOR_MIN,
    MalformedMessageError,
    decode,
    encode,
)
from scaler_protocol import messages as m

LINGER_MILLISECONDS = 1000
COPY_LIMIT_BYTES = 64 * 1024  # below this, copying costs less than sharing memory with ZeroMQ's thread
_PROBE_INTERVAL_SECONDS = 0.05
_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/]+):(?P<port>\d+)")


class Transport:
    """A connected socket; not thread safe.

    Parameters:
        address: of the scheduler.
        hello: who we are; versions are filled in here.
        timeout_seconds: how long nobody may listen, and how long the answer to Hello may take.

    Raises SchedulerUnreachableError, NotASchedulerError, ProtocolVersionError, SchedulerRefusedError, ValueError.
    """

    def __init__(self, address: str, hello: m.Hello, timeout_seconds: float) -> None:
        self.address = address
        deadline = time.monotonic() + timeout_seconds
        _wait_for_listener(address, deadline)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, LINGER_MILLISECONDS)
        self._socket.setsockopt(zmq.IPV6, int("[" in address))
        self._socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        self._socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        self._waiting: Deque[List[Buffer]] = deque()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._poll = select.poll()
        self._poll.register(self._wake_reader, select.POLLIN)
        self._poll.register(int(self._socket.getsockopt(zmq.FD)), select.POLLIN)
        try:
            self._socket.connect(address)
            self.welcome = self._greet(hello, deadline)
        except BaseException:
            self.close()
            raise

    def _greet(self, hello: m.Hello, deadline: float) -> m.Welcome:
        hello.major, hello.minor_min, hello.minor_max = PROTOCOL_MAJOR, PROTOCOL_MINOR_MIN, PROTOCOL_MINOR_MAX
        hello.implementation = m.Implementation(
            name="scaler-sdk",
            version=__version__,
            language=f"Python {platform.python_version()} ({platform.python_implementation()})",
        )
        hello.host = sockets.gethostname()
        hello.process_id = os.getpid()
        self.send(hello)
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not self._socket.poll(int(remaining * 1000) + 1):
                raise NotASchedulerError(
                    f"something listens at {self.address}, but it does not answer as a Scaler scheduler does:"
                    " check the address and the port, and that the scheduler is of version 1 of the protocol"
                )
            answer = self._receive_answer()
            if isinstance(answer, m.Welcome):
                return answer
            if isinstance(answer, m.Refusal):
                raise refusal_error(answer, self.address)

    def _receive_answer(self) -> object:
        try:
            return decode(self._socket.recv_multipart()[0])
        except MalformedMessageError as error:
            raise NotASchedulerError(
                f"what listens at {self.address} is no Scaler scheduler, or one of an incompatible generation: {error}"
            ) from error

    def send(self, message: m.Member, payload: Sequence[Buffer] = ()) -> None:
        frames: List[Buffer] = [encode(message)]
        if payload:
            frames.append(payload[0] if len(payload) == 1 else b"".join(payload))
        if self._waiting or not self._try_send(frames):
            self._waiting.append(frames)

    def _try_send(self, frames: List[Buffer]) -> bool:
        copy = len(frames) == 1 or len(frames[1]) < COPY_LIMIT_BYTES
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=copy)
        except zmq.Again:
            return False
        return True

    def send_waiting(self) -> None:
        """Try again what did not fit into the pipe before."""
        while self._waiting and self._try_send(self._waiting[0]):
            self._waiting.popleft()

    def receive(self) -> Optional[Tuple[bytes, bytes]]:
        """The next message as (header, payload), or None when there is none now."""
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return frames[0], frames[1] if len(frames) > 1 else b""

    def wait(self, timeout_seconds: float) -> None:
        """Sleep until something arrives, the pipe has room for what waits, `wake` is called, or the time is over."""
        interesting = zmq.POLLIN | zmq.POLLOUT if self._waiting else zmq.POLLIN
        if int(self._socket.getsockopt(zmq.EVENTS)) & interesting:
            return  # the descriptor only signals changes
        for descriptor, _ in self._poll.poll(max(0, int(timeout_seconds * 1000))):
            if descriptor == self._wake_reader:
                os.read(self._wake_reader, 4096)

    def wake(self) -> None:
        """End `wait` early; may be called by any thread."""
        try:
            os.write(self._wake_writer, b"\0")
        except BlockingIOError:
            pass  # the pipe is full of wake-ups

    def close(self) -> None:
        self._socket.close()
        self._context.term()
        os.close(self._wake_reader)
        os.close(self._wake_writer)


def refusal_error(refusal: m.Refusal, address: str) -> ConnectionError:
    """The exception that says what a Refusal says."""
    if refusal.reason == m.RefusalReason.VERSION_MISMATCH:
        return ProtocolVersionError(f"the scheduler at {address} cannot be used: {refusal.message}")
    return SchedulerRefusedError(f"the scheduler at {address} refused this client: {refusal.message}")


def _wait_for_listener(address: str, deadline: float) -> None:
    """Return as soon as somebody listens at the address; ZeroMQ itself would wait for ever and tell nothing."""
    family, target = _socket_address(address)
    while True:
        probe = sockets.socket(family, sockets.SOCK_STREAM)
        probe.settimeout(max(0.05, deadline - time.monotonic()))
        try:
            probe.connect(target)
            return
        except OSError as error:
            if time.monotonic() + _PROBE_INTERVAL_SECONDS >= deadline:
                raise SchedulerUnreachableError(
                    f"nobody listens at {address} ({error.strerror or error}): start a scheduler there with"
                    f" `scaler_scheduler {address}`, or check the address"
                ) from error
        finally:
            probe.close()
        time.sleep(_PROBE_INTERVAL_SECONDS)


def _socket_address(address: str) -> Tuple[int, Union[str, Tuple[str, int]]]:
    tcp = _TCP.fullmatch(address)
    if tcp is not None:
        host = tcp["host"].strip("[]")
        return (sockets.AF_INET6 if ":" in host else sockets.AF_INET), (host, int(tcp["port"]))
    if address.startswith("ipc://") and len(address) > len("ipc://"):
        return sockets.AF_UNIX, address[len("ipc://") :]
    raise ValueError(f"{address!r} is no scheduler address: use one like tcp://127.0.0.1:2345")
