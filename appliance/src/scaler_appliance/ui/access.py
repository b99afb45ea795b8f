"""Access control: every request is checked here first.

    without a token (loopback only):  the Host header must be one of ours, because another site may make its own
                                      name point to 127.0.0.1 (DNS rebinding); and the client must be a process of
                                      our user, because all users of the host reach loopback
    with a token:                     Authorization: Bearer TOKEN, or the cookie and the page's key of a session, which
                                      /?token=TOKEN begins
    from a trusted proxy:             its header with the name of a user, and one of our host names: otherwise a page
                                      could send it, by DNS rebinding, from the proxy's machine

Rules:
- A token is compared in constant time, is never logged, and disappears from the page's address at once. No cookie has
  it.
- A cookie alone shows the page's own files, which are the same everywhere, and nothing of the cluster: see
  `browser_sessions`.
- A cookie's path is that of the request which sets it, because a proxy may have stripped a prefix that is unknown here.
  So a cookie is replaced only by answers at the top, such as to `events`, whose path is the whole page's.
- Every response has the headers that isolate the page from other sites.
"""

from __future__ import annotations

import hmac
import html
import ipaddress
import secrets
import time
from typing import (
    Any,
    Awaitable,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    List,
    MutableMapping,
    NamedTuple,
    Optional,
    Tuple,
)
from urllib.parse import parse_qsl, urlencode

from scaler_appliance.ui.browser_sessions import BrowserSessions, Visit
from scaler_appliance.ui.local_users import is_of_this_user

ACTION_HEADER = "x-scaler-ui"
"""A header that forms and links of other sites cannot send."""

KEY_HEADER = "x-scaler-page-key"
"""A header with the key of the page's session."""

PAGE_PATH = "/"
FILES_PATH = "/static/"
LOGOUT_PATH = "/logout"
OPEN_PATHS = frozenset({"/healthz", "/livez"})
TOKEN_PARAMETER = "token"
TOKEN_VARIABLE = "SCALER_UI_TOKEN"
VIEWER = "scaler_ui.viewer"
"""The key of an allowed request's scope for its `PageViewer`."""

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


class PageViewer(NamedTuple):
    """Who has sent an allowed request.

    Attributes:
        address: the peer's, which may be a proxy.
        session: of a browser that presented the token before; empty: there is none.
        user: whom a trusted proxy has named; empty: none.
        is_current: whether a response that goes on may go on; otherwise the browser must ask again.
    """

    address: str
    session: str = ""
    user: str = ""
    is_current: Callable[[], bool] = lambda: True


class TrustedProxies(NamedTuple):
    """Proxies that log users in, and say so in a header of each request.

    Attributes:
        header: its name, in lower case.
        addresses: of the proxies, see `normal_address`.
    """

    header: str
    addresses: FrozenSet[str]

    def user(self, scope: Scope) -> str:
        """The user that a request's proxy names; empty if the peer is not a trusted proxy, or names none."""
        if normal_address((scope.get("client") or ("",))[0]) not in self.addresses:
            return ""
        names = _values(scope, self.header.encode())
        return names[0].decode("utf-8", "replace").strip() if len(names) == 1 else ""


class _Refusal(NamedTuple):
    """A response in place of the application's."""

    status: int
    text: str
    headers: Dict[str, str]


class Guard:
    """The application with access control.

    Parameters:
        application: serves allowed requests.
        token: required in requests; None: none is required of our user under one of our host names.
        hosts: our host names, in addition to those of loopback.
        sessions: of browsers that have presented the token.
        proxies: whose users need no token.
        is_own: whether a request is our user's, where no token is required.
    """

    def __init__(
        self,
        application: Application,
        token: Optional[str],
        hosts: Iterable[str] = (),
        sessions: Optional[BrowserSessions] = None,
        proxies: Optional[TrustedProxies] = None,
        is_own: Callable[[Scope], bool] = is_of_this_user,
    ) -> None:
        self._application = application
        self._token = token
        self._hosts: FrozenSet[str] = frozenset(host.lower() for host in hosts)
        self._proxies = proxies
        self._is_own = is_own
        self._sessions = BrowserSessions(time.monotonic, secrets.token_urlsafe) if sessions is None else sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        visit = self._visit(scope) if self._token is not None else None
        user = self._proxies.user(scope) if self._proxies is not None else ""
        refusal = self._refusal(scope, visit, user)
        headers = list(HEADERS)
        if visit is not None and visit.new_cookie and refusal is None:
            headers.append((b"set-cookie", self._cookie(scope, visit.new_cookie).encode()))

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        if refusal is not None:
            await _answer(send_guarded, *refusal)
            return
        scope[VIEWER] = self._viewer(scope, visit, user)
        await self._application(scope, receive, send_guarded)

    def _visit(self, scope: Scope) -> Optional[Visit]:
        """The session whose cookie a request has."""
        may_replace = scope["path"].count("/") == 1 and scope["path"] != LOGOUT_PATH
        keys = _values(scope, KEY_HEADER.encode())
        key = keys[0].decode("latin-1") if len(keys) == 1 else ""
        found = (self._sessions.find(cookie, key, may_replace) for cookie in _cookies(scope, _cookie_name(scope)))
        visit = next((visit for visit in found if visit is not None), None)
        is_file = scope["path"] == PAGE_PATH or scope["path"].startswith(FILES_PATH)
        return visit if visit is not None and (visit.has_key or is_file) else None

    def _viewer(self, scope: Scope, visit: Optional[Visit], user: str) -> PageViewer:
        address = (scope.get("client") or ("",))[0]
        if visit is None:
            return PageViewer(address, user=user)
        return PageViewer(address, visit.session, user, lambda: self._sessions.is_current(visit.session))

    def _refusal(self, scope: Scope, visit: Optional[Visit], user: str = "") -> Optional[_Refusal]:
        """The response to a request that does not reach the application; None if it does."""
        if scope["path"] in OPEN_PATHS:
            return None
        if self._token is None:
            return self._refusal_by_host(scope) or self._refusal_by_user(scope)
        parameters = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in parameters if name == TOKEN_PARAMETER]
        if self._knows(given):
            is_navigation = scope["method"] == "GET" and b"text/html" in b",".join(_values(scope, b"accept"))
            return self._entrance(scope, parameters) if is_navigation and scope["path"] == PAGE_PATH else None
        if visit is not None:
            return self._logout(scope, visit) if scope["path"] == LOGOUT_PATH else None
        if self._knows(_bearer_tokens(scope)):
            return None
        if user:
            return self._refusal_by_host(scope)
        text = "This page needs a token: open the link that scaler_ui printed when it started.\n"
        return _Refusal(401, text, {"www-authenticate": "Bearer"})

    def _refusal_by_host(self, scope: Scope) -> Optional[_Refusal]:
        if self._is_ours(_values(scope, b"host")):
            return None
        text = (
            "This server answers only to names of this machine. To use another name, start it with"
            " --allowed-host NAME, or with a token.\n"
        )
        return _Refusal(403, text, {})

    def _refusal_by_user(self, scope: Scope) -> Optional[_Refusal]:
        if self._is_own(scope):
            return None
        text = (
            "Without a token, this page is only for the user that scaler_ui runs as. To let others of this machine see"
            f" it, start it with --token-file FILE, or with a token in {TOKEN_VARIABLE}.\n"
        )
        return _Refusal(403, text, {})

    def _logout(self, scope: Scope, visit: Visit) -> _Refusal:
        if scope["method"] != "POST":
            return _Refusal(405, "To log out, send POST.\n", {"allow": "POST"})
        if _values(scope, ACTION_HEADER.encode()) != [b"1"]:
            return _Refusal(403, f"the header {ACTION_HEADER}: 1 is missing\n", {})
        self._sessions.close(visit.session)
        return _Refusal(200, "logged out\n", {"set-cookie": self._cookie(scope, "")})

    def _cookie(self, scope: Scope, value: str) -> str:
        """The header that sets a session's cookie; an empty value removes it."""
        seconds = self._sessions.seconds_left(value.partition(".")[0])
        # A proxy with TLS says so. A peer that says it wrongly gets a cookie that its own browser does not return.
        schemes = {scope.get("scheme"), *(value.decode("latin-1") for value in _values(scope, b"x-forwarded-proto"))}
        secure = "; Secure" if "https" in schemes else ""
        return f"{_cookie_name(scope)}={value}; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}"

    def _is_ours(self, hosts: List[bytes]) -> bool:
        if len(hosts) != 1:
            return False
        name = _host_name(hosts[0].decode("latin-1"))
        return name in self._hosts or is_loopback(name)

    def _knows(self, tokens: Iterable[str]) -> bool:
        assert self._token is not None
        wanted = self._token.encode()
        return any(hmac.compare_digest(token.encode("utf-8", "replace"), wanted) for token in tokens)

    def _entrance(self, scope: Scope, parameters: List[Tuple[str, str]]) -> _Refusal:
        """Begins a session, and forwards to the page without the token.

        This uses a page, whose script stores the key: a key in an address would get into the browser's history, and
        after a redirect from another site, such as a notebook, a browser would not send a strict cookie.
        """
        rest = [(name, value) for name, value in parameters if name != TOKEN_PARAMETER]
        target = html.escape("./" + (f"?{urlencode(rest)}" if rest else ""))
        login = self._sessions.open()
        text = (
            "<!doctype html><meta charset=utf-8><title>Scaler</title>"
            '<link rel="icon" href="data:,">'
            f'<meta name="page-key" content="{html.escape(login.key)}">'
            '<script type="module" src="static/js/entrance.js"></script>'
            f'<a id="continue" href="{target}">Continue</a>'
        )
        headers = {
            "set-cookie": self._cookie(scope, login.cookie),
            "content-type": "text/html; charset=utf-8",
        }
        return _Refusal(200, text, headers)


def normal_address(text: str) -> str:
    """An IP address in its one usual form; another text as it is."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    return str(getattr(address, "ipv4_mapped", None) or address)


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


def _cookie_name(scope: Scope) -> str:
    """Servers at several ports of a host share its cookies: each has a name of its own."""
    return f"scaler_ui_{(scope.get('server') or ('', 0))[1]}"


def _cookies(scope: Scope, name: str) -> List[str]:
    cookies = []
    for value in _values(scope, b"cookie"):
        for each in value.decode("latin-1").split(";"):
            key, _, content = each.strip().partition("=")
            if key == name:
                cookies.append(content)
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
