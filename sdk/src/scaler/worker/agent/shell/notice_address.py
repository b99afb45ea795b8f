"""Asks an address again and again whether this machine will be taken away, as clouds tell it: `--drain-url`.

    thread ──GET──▶ the address ──200──▶ on_notice, once

Rules:
- Requests are made in a thread of their own: an address that does not answer costs its time limit, and not the loop.
- An answer is a notice if its status is 200 and it has the text that is asked for. Clouds answer with 404, or with
  another text, until there is one.
- Proxies are not used, and no redirection is followed: the address is the machine's own.
- What goes wrong is logged once, and it is asked again: a worker that gets no notice works all the same.
- A service that wants a token, as that of AWS does, says 401, and gives one to those who ask.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Callable, Dict, Sequence, Tuple

from scaler.worker.notice_urls import parsed

if TYPE_CHECKING:
    from http.client import HTTPConnection

ASK_INTERVAL_SECONDS = 2.0
TIMEOUT_SECONDS = 3.0
MAXIMUM_BYTES = 1 << 16  # of an answer that are read
MAXIMUM_FAULT = 256  # characters: a fault may quote what is no HTTP

TOKEN_PATH = "/latest/api/token"
TOKEN_REQUEST = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
TOKEN_HEADER = "X-aws-ec2-metadata-token"
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404

logger = logging.getLogger("scaler")


class NoticeAddress:
    """
    Parameters:
        url: see `notice_urls`.
        headers: of each request.
        text: which an answer must have to be a notice.
        on_notice: called in a thread, with what to tell people. It may raise RuntimeError: it is too late.
    """

    def __init__(
        self, url: str, headers: Sequence[Tuple[str, str]], text: str, on_notice: Callable[[str], object]
    ) -> None:
        self._url, self._parts = url, parsed(url)
        self._headers, self._text, self._on_notice = dict(headers), text, on_notice
        self._token: Dict[str, str] = {}
        self._fault = ""
        self._is_closed = threading.Event()

    def start(self) -> bool:
        """Ask from now on; returns whether there is room for a thread. If not, it may be tried again."""
        if self._is_closed.is_set():
            return True
        try:
            threading.Thread(target=self._run, name="scaler-notice", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            self._warn(f"there is no room for a thread ({error})")
            return False
        return True

    def close(self) -> None:
        """Ask no more."""
        self._is_closed.set()

    def _run(self) -> None:
        import http.client  # not needed by those that do not ask

        while not self._is_closed.is_set():
            try:
                is_notice = self._ask()
            except (OSError, ValueError, http.client.HTTPException) as error:
                is_notice = False
                self._warn(str(error)[:MAXIMUM_FAULT] or type(error).__name__)
            if is_notice and not self._is_closed.is_set():
                try:
                    self._on_notice(f"{self._url} gives notice (drain_url)")
                except RuntimeError:  # the loop has ended
                    pass
                return
            self._is_closed.wait(ASK_INTERVAL_SECONDS)

    def _ask(self) -> bool:
        status, body = self._request("GET", self._parts.path, {**self._headers, **self._token})
        if status == _UNAUTHORIZED and self._renews_token():
            status, body = self._request("GET", self._parts.path, {**self._headers, **self._token})
        if status not in (_OK, _NOT_FOUND):
            self._warn(f"status {status}")
            return False
        self._fault = ""
        return status == _OK and self._text in body

    def _renews_token(self) -> bool:
        status, body = self._request("PUT", TOKEN_PATH, TOKEN_REQUEST)
        token = body.strip()
        self._token = {TOKEN_HEADER: token} if status == _OK and token.isascii() and token.isprintable() else {}
        return bool(self._token)

    def _request(self, method: str, path: str, headers: Dict[str, str]) -> Tuple[int, str]:
        connection = self._connection()
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(MAXIMUM_BYTES).decode("utf-8", "replace")
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        kind = HTTPSConnection if self._parts.is_encrypted else HTTPConnection
        return kind(self._parts.host, self._parts.port or None, timeout=TIMEOUT_SECONDS)

    def _warn(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            logger.warning("Worker: %s cannot be asked for notice (drain_url): %s; trying again", self._url, fault)
