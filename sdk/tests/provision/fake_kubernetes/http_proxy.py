"""A proxy on this host: it forwards requests for `http:`, and makes tunnels for everything else."""

from __future__ import annotations

import base64
import http.client
import selectors
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Iterator, List
from urllib.parse import urlsplit

CHUNK = 65536
TIMEOUT_SECONDS = 20.0


class HttpProxy:
    """
    Parameters:
        credentials: `user:password` of those whom it serves.

    Attributes:
        requests: those that it has served: method and target.
    """

    def __init__(self, credentials: str) -> None:
        self.requests: List[str] = []
        self.authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    proxy: HttpProxy
    close_connection = True

    def _is_signed_in(self) -> bool:
        if self.headers.get("Proxy-Authorization") == self.proxy.authorization:
            self.proxy.requests.append(f"{self.command} {self.path}")
            return True
        self.send_response(407, "Proxy Authentication Required")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def do_CONNECT(self) -> None:
        if not self._is_signed_in():
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as server:
            self.send_response(200)
            self.end_headers()
            _relay(self.connection, server)

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._is_signed_in():
            return
        url = urlsplit(self.path)
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=TIMEOUT_SECONDS)
        headers = {name: value for name, value in self.headers.items() if not name.startswith("Proxy-")}
        connection.request(self.command, f"{url.path}?{url.query}", body or None, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _forward  # noqa: N815 (their names)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 (its name)
        """Tests read `requests`."""


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Both ways, until one of them has ended."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in selector.select(TIMEOUT_SECONDS):
                data = key.fileobj.recv(CHUNK)  # type: ignore[union-attr]  # a socket
                if not data:
                    return
                key.data.sendall(data)


@contextmanager
def http_proxy(credentials: str) -> Iterator[HttpProxy]:
    proxy = HttpProxy(credentials)
    try:
        yield proxy
    finally:
        proxy.close()
