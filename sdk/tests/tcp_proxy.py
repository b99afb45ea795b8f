"""A network between a peer and its scheduler that tests can cut, heal and silence."""

from __future__ import annotations

import socket
import threading
from typing import List, Optional

from scaler_protocol.host.addresses import parse_address


class Proxy:
    """Passes on what comes to a port of its own.

    Parameters:
        target: an address as schedulers have it.
    """

    def __init__(self, target: str) -> None:
        parsed = parse_address(target)
        self._target = (parsed.host, parsed.port)
        self._listener: Optional[socket.socket] = None
        self._streams: List[socket.socket] = []
        self._silent: List[socket.socket] = []  # nothing passes on these any more
        self._silenced = 0  # how often connections were silenced
        self._lock = threading.Lock()
        self._port = 0
        self.heal()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    def heal(self) -> None:
        """Let peers connect."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """End all connections, and allow no others."""
        with self._lock:
            listener, self._listener = self._listener, None
            streams, self._streams, self._silent = [*self._streams, *self._silent], [], []
        if listener is not None:
            _close(listener)
        for stream in streams:
            _close(stream)

    close = cut

    def silence(self) -> None:
        """Pass nothing on any more on the connections that there are, without a word; later ones work."""
        with self._lock:
            self._silenced += 1
            self._silent += self._streams
            self._streams = []

    def isolate(self) -> None:
        """Pass nothing on, without a word, and let no one connect, until it is healed."""
        with self._lock:
            listener, self._listener = self._listener, None
        self.silence()
        if listener is not None:
            _close(listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
                with self._lock:
                    if self._listener is not listener:
                        _close(near)
                        _close(far)
                        return
                    self._streams += (near, far)
                    silenced = self._silenced
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink, silenced), daemon=True).start()
        except OSError:
            return  # cut

    def _pass_on(self, source: socket.socket, sink: socket.socket, silenced: int) -> None:
        try:
            while True:
                data = source.recv(1 << 16)
                if self._silenced > silenced:
                    return
                if not data:
                    break
                sink.sendall(data)
        except OSError:
            pass
        _close(source)
        _close(sink)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _close(stream: socket.socket) -> None:
    try:
        stream.shutdown(socket.SHUT_RDWR)  # `close` alone would not wake the thread that reads
    except OSError:
        pass
    stream.close()
