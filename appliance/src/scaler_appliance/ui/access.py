"""Access control: every request is checked here first.

    without a token (loopback only):  the Host header must be one of ours, because another site may make its own
                                      name point to 127.0.0.1 (DNS rebinding)
    with a token:                     Authorization: Bearer TOKEN, or the cookie that ?token=TOKEN has set

Rules:
- A token is compared in constant time, is never logged, and disappears from the address bar at once.
- Every response has the headers that isolate the page from other sites.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import ipaddress
from typing import Any, Awaitable, Callable, Dict, FrozenSet, Iterable, List, MutableMapping, Optional, Tuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

OPEN_PATHS = frozenset({"/healthz", "/livez"})
TOKEN_PARAMETER = "token"
COOKIE_SECONDS = 30 * 24 * 3600
CONTENT_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
HEADERS = (
    (b"content-security-policy", CONTENT_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """The application with access control.

    Parameters:
        application: serves allowed requests.
        token: required in requests; None: none is required under one of our host names.
        hosts: our host names, in addition to those of loopback.
    """

    def __init__(self, application: Application, token: Optional[str], hosts: Iterable[str] = ()) -> None:
        self._application = application
        self._token = token
        self._hosts: FrozenSet[str] = frozenset(host.lower() for host in hosts)
        digest = hashlib.sha256((token or "").encode()).hexdigest()[:12]
        self._cookie = f"scaler_ui_{digest}"  # ports share cookies: each server has a name of its own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._application(scope, receive, send_guarded)
        else:
            await _answer(send_guarded, *refusal)

    def _refusal(self, scope: Scope) -> Optional[Tuple[int, str, Dict[str, str]]]:
        """Status, text and headers of the response to a request that is not allowed; None if it is."""
        if scope["path"] in OPEN_PATHS:
            return None
        if self._token is None:
            if self._is_ours(_values(scope, b"host")):
                return None
            text = (
                "This server answers only to names of this machine. To use another name, start it with"
                " --allowed-host NAME, or with a token.\n"
            )
            return 403, text, {}
        parameters = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in parameters if name == TOKEN_PARAMETER]
        if self._knows(given):
            if scope["method"] == "GET" and b"text/html" in b",".join(_values(scope, b"accept")):
                return self._entrance(scope, parameters)
            return None
        if self._knows(_bearer_tokens(scope)) or self._knows(_cookies(scope, self._cookie)):
            return None
        text = "This page needs a token: open the link that scaler_ui printed when it started.\n"
        return 401, text, {"www-authenticate": "Bearer"}

    def _is_ours(self, hosts: List[bytes]) -> bool:
        if len(hosts) != 1:
            return False
        name = _host_name(hosts[0].decode("latin-1"))
        return name in self._hosts or is_loopback(name)

    def _knows(self, tokens: Iterable[str]) -> bool:
        assert self._token is not None
        wanted = self._token.encode()
        return any(hmac.compare_digest(token.encode("utf-8", "replace"), wanted) for token in tokens)

    def _entrance(self, scope: Scope, parameters: List[Tuple[str, str]]) -> Tuple[int, str, Dict[str, str]]:
        """Sets the cookie, and forwards to the same address without the token.

        This uses a page, because after a redirect from another site, such as a notebook, a browser would not send a
        strict cookie.
        """
        rest = [(name, value) for name, value in parameters if name != TOKEN_PARAMETER]
        last = scope["path"].rpartition("/")[2]
        target = "./" + quote(last) + (f"?{urlencode(rest)}" if rest else "")
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        cookie = (
            f"{self._cookie}={quote(self._token or '')}; HttpOnly; SameSite=Strict; Max-Age={COOKIE_SECONDS}{secure}"
        )
        text = (
            "<!doctype html><meta charset=utf-8><title>Scaler</title>"
            f'<meta http-equiv="refresh" content="0;url={html.escape(target)}">'
            f'<a href="{html.escape(target)}">Continue</a>'
        )
        return 200, text, {"set-cookie": cookie, "content-type": "text/html; charset=utf-8"}


def is_loopback(name: str) -> bool:
    """Whether a host's name or address always means this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """A Host header without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _values(scope: Scope, name: bytes) -> List[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def _bearer_tokens(scope: Scope) -> List[str]:
    tokens = []
    for value in _values(scope, b"authorization"):
        scheme, _, token = value.decode("latin-1").partition(" ")
        if scheme.lower() == "bearer":
            tokens.append(token.strip())
    return tokens


def _cookies(scope: Scope, name: str) -> List[str]:
    cookies = []
    for value in _values(scope, b"cookie"):
        for each in value.decode("latin-1").split(";"):
            key, _, content = each.strip().partition("=")
            if key == name:
                cookies.append(unquote(content))
    return cookies


async def _answer(send: Send, status: int, text: str, headers: Dict[str, str]) -> None:
    body = text.encode()
    all_headers = {
        "content-type": "text/plain; charset=utf-8",
        "cache-control": "no-store",
        "content-length": str(len(body)),
        **headers,
    }
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in all_headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})
