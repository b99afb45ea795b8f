"""A TCP forwarder in a process of its own, whose connections can be stalled one-way, or broken.

`python stalling_forwarder.py LISTEN_HOST TARGET_HOST TARGET_PORT` prints its port, then obeys the lines on its standard
input, and repeats each when it has: `pass`, `stall up` (what callers send stays here), `stall down`, `stall both ways`,
`break` (every connection is reset). It ends when its standard input does.

Rule: while a direction is stalled it is not read: the sender's system fills up as with a network that drops packets.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
from typing import Dict, List, Set

LIMIT_BYTES = 1 << 18  # that are read and not written yet, in each direction
CLOSE_WITH_RESET = struct.pack("ii", 1, 0)


class Direction:
    """One direction of a connection: what `source` says is written to `sink`."""

    def __init__(self, is_up: bool, source: socket.socket, sink: socket.socket) -> None:
        self.is_up = is_up
        self.source = source
        self.sink = sink
        self.waiting = bytearray()
        self.has_ended = False

    def read(self) -> None:
        try:
            data = self.source.recv(1 << 16)
        except BlockingIOError:
            return
        self.waiting += data
        self.has_ended = not data

    def write(self) -> None:
        if self.waiting:
            try:
                del self.waiting[: self.sink.send(self.waiting)]
            except BlockingIOError:
                pass
        if self.has_ended and not self.waiting:
            raise ConnectionError("the source has ended")


class Forwarder:
    def __init__(self, host: str, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._stalled: Set[bool] = set()  # directions: whether up
        self._directions: List[Direction] = []
        self._listener = socket.create_server((host, 0))
        self._listener.setblocking(False)
        self._commands = b""
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        while True:
            for ready in self._wait():
                if ready is self._listener:
                    self._accept()
                elif ready is sys.stdin:
                    if not self._obey():
                        return
            for direction in list(self._directions):
                if direction in self._directions and direction.is_up not in self._stalled:
                    self._pass_on(direction)

    def _wait(self) -> List[object]:
        interests: Dict[object, int] = {self._listener: selectors.EVENT_READ, sys.stdin: selectors.EVENT_READ}
        for direction in self._directions:
            if direction.is_up in self._stalled:
                continue
            if len(direction.waiting) < LIMIT_BYTES and not direction.has_ended:
                interests[direction.source] = interests.get(direction.source, 0) | selectors.EVENT_READ
            if direction.waiting:
                interests[direction.sink] = interests.get(direction.sink, 0) | selectors.EVENT_WRITE
        with selectors.DefaultSelector() as selector:
            for file, events in interests.items():
                selector.register(file, events)  # type: ignore[arg-type]  # all have a descriptor
            return [key.fileobj for key, _ in selector.select()]

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:
            return
        try:
            far = socket.create_connection(self._target, timeout=1.0)
        except OSError:
            _reset(near)  # no scheduler listens there at the moment
            return
        for stream in (near, far):
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._directions += (Direction(True, near, far), Direction(False, far, near))

    def _pass_on(self, direction: Direction) -> None:
        try:
            if len(direction.waiting) < LIMIT_BYTES and not direction.has_ended:
                direction.read()
            direction.write()
        except OSError:
            self._close(direction)

    def _close(self, ended: Direction) -> None:
        streams = (ended.source, ended.sink)
        self._directions = [each for each in self._directions if each.source not in streams]
        for stream in streams:
            stream.close()

    def _obey(self) -> bool:
        data = os.read(0, 4096)
        *words, self._commands = (self._commands + data).split(b"\n")
        for word in words:
            if word == b"break":
                for direction in self._directions:
                    _reset(direction.source)
                self._directions = []
            else:
                stalled = {b"pass": set(), b"stall up": {True}, b"stall down": {False}}
                self._stalled = stalled.get(word, {True, False})
            print(word.decode(), flush=True)
        return bool(data)


def _reset(stream: socket.socket) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CLOSE_WITH_RESET)
    stream.close()


if __name__ == "__main__":
    forwarder = Forwarder(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    print(forwarder.port, flush=True)
    forwarder.run()
