"""The HTTP server: a socket, uvicorn, and a quick and orderly shutdown.

Rules:
- The socket listens before anything else begins, so that a port in use is reported before a link is printed.
- Shutdown first ends streams of events, so that it does not wait for them; a browser that does not read gets one
  second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import Any, Awaitable, Callable, Iterator, Optional

import uvicorn

GRACE_SECONDS = 1
MAXIMUM_CONNECTIONS = 1000
BACKLOG = 512


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0: any free one.

    Raises OSError, whose message names the address.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(f"--host {host}: {error.strerror or error}") from error
    family, _, _, _, target = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        hint = "" if port == 0 else "; use another --port, or --port 0 for any free one"
        raise OSError(f"cannot listen at {host}:{port}: {error.strerror}{hint}") from error
    listener.setblocking(False)
    return listener


class _Server(uvicorn.Server):
    """A uvicorn server that does not handle signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """Serves until asked to stop.

    Parameters:
        application: an ASGI application.
        listener: of `listen`.
        on_stop: called once then; it ends streams of events.
    """

    def __init__(self, application: Any, listener: socket.socket, on_stop: Callable[[], None]) -> None:
        config = uvicorn.Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAXIMUM_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._server = _Server(config)
        self._listener = listener
        self._on_stop = on_stop

    def stop(self) -> None:
        """Idempotent."""
        if not self._server.should_exit:
            self._server.should_exit = True
            self._on_stop()

    def take_signals(self) -> None:
        """From now on signals stop it. To be called before its address is published: a signal may follow at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # which nohup has set
                loop.add_signal_handler(number, self.stop)

    async def run(self, work: Awaitable[None], exit_when_stdin_closes: bool = False) -> None:
        """Serve, concurrently with other work, until stopped by a signal, by `stop`, or by the end of standard input.

        Raises the exceptions of the other work.
        """
        loop = asyncio.get_running_loop()
        if exit_when_stdin_closes:
            loop.add_reader(sys.stdin.fileno(), self._on_stdin)
        working = asyncio.ensure_future(work)
        working.add_done_callback(lambda _: self.stop())
        error: Optional[BaseException] = None
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            if working.done() and not working.cancelled():
                error = working.exception()
            working.cancel()
        if error is not None:
            raise error

    def _on_stdin(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.stop()
