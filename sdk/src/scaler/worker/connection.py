"""The agent's one connection to the scheduler: a DEALER socket on an event loop.

Rules:
- ZeroMQ's descriptor is edge-triggered: after each send the socket's state is looked at again, and reading
goes on until there is nothing left. Whoever forgets that waits for ever for a message that is there. - A
new session is a new socket: what the old one had not sent yet must not reach the scheduler under a new
name. - Nothing is dropped and nothing blocks: what does not fit is kept and sent when there is room. It is
bounded by what the scheduler has granted: tasks for which it waits, and chunks that it asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Callable, Deque, List, Optional

import zmq

from scaler_protocol import MalformedMessageError, decode, encode
from scaler_protocol import messages as m

logger = logging.getLogger("scaler")

MAXIMUM_MESSAGES_PER_TURN = 256
"""Then processors get their turn."""

CONGESTED_MESSAGES = 1000
"""When so many messages wait for room, processors are not read any more until all have left."""

_RECONNECT_MILLISECONDS = 100
_RECONNECT_MAXIMUM_MILLISECONDS = 2000
_SEND_QUEUE_MESSAGES = 1000


class Connection:
    """A DEALER that hands messages to `on_message(message, payload)`, and calls `on_burst` after those of one read."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        io_threads: int,
        on_message: Callable[[m.Message, bytes], None],
        on_burst: Callable[[], None],
        on_congestion: Callable[[bool], None],
    ) -> None:
        self._loop = loop
        self._address = address
        self._on_message = on_message
        self._on_burst = on_burst
        self._on_congestion = on_congestion
        self.congested = False  # more is kept than should be: whoever can shall wait
        self._context = zmq.Context(io_threads)
        self._socket: Optional[zmq.Socket[bytes]] = None
        self._descriptor = -1
        self._waiting: Deque[List[bytes]] = deque()  # messages that found no room
        self._drain_scheduled = False

    def open(self) -> None:
        """Connect, or connect anew: nothing that was under way arrives any more.

        Raises zmq.ZMQError when the address is none.
        """
        self._close_socket()
        socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, _SEND_QUEUE_MESSAGES)
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MILLISECONDS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAXIMUM_MILLISECONDS)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        try:
            socket.connect(self._address)
        except zmq.ZMQError:
            socket.close()
            raise
        self._socket = socket
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._drain)

    def send(self, message: m.Message, payload: bytes = b"") -> None:
        """Send a message, now or as soon as there is room."""
        frames = [encode(message), payload] if len(payload) else [encode(message)]
        if self._waiting or not self._try_send(frames):
            self._waiting.append(frames)
            if len(self._waiting) == CONGESTED_MESSAGES:
                self._set_congested(True)
        self._schedule_drain()

    def _try_send(self, frames: List[bytes]) -> bool:
        if self._socket is None:
            return True  # closed: nobody is there to be told
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=True)
            return True
        except zmq.Again:
            return False

    def _schedule_drain(self) -> None:
        """A send may have used up the edge that would have woken us for a message."""
        if not self._drain_scheduled and self._socket is not None:
            wanted = zmq.POLLIN | zmq.POLLOUT if self._waiting else zmq.POLLIN
            if int(self._socket.getsockopt(zmq.EVENTS)) & wanted:
                self._drain_scheduled = True
                self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._drain_scheduled = False
        socket = self._socket
        if socket is None:
            return
        while self._waiting and self._try_send(self._waiting[0]):
            self._waiting.popleft()
        if not self._waiting:
            self._set_congested(False)
        if self._read_burst(socket):
            self._on_burst()

    def _set_congested(self, congested: bool) -> None:
        if congested != self.congested:
            self.congested = congested
            self._on_congestion(congested)

    def _read_burst(self, socket: zmq.Socket[bytes]) -> bool:
        """Read what is there, up to a limit; whether anything was."""
        for count in range(MAXIMUM_MESSAGES_PER_TURN):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return count > 0
            self._receive(frames)
            if self._socket is not socket:
                return True  # a new session was started
        self._drain_scheduled = True
        self._loop.call_soon(self._drain)
        return True

    def _receive(self, frames: List[bytes]) -> None:
        try:
            message = decode(frames[0])
        except MalformedMessageError as error:
            logger.error("the scheduler sent a message that cannot be read: %s", error)
            return
        self._on_message(message, frames[1] if len(frames) > 1 else b"")

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._descriptor)
            self._socket.close(linger=0)
            self._socket = None
        self._waiting.clear()
        self._set_congested(False)

    def close(self, linger_milliseconds: int) -> None:
        """Close for good; what is under way has so long to leave."""
        socket, self._socket = self._socket, None
        if socket is not None:
            self._loop.remove_reader(self._descriptor)
            socket.close(linger=linger_milliseconds)
        self._context.term()
