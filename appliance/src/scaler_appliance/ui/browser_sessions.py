"""Sessions of browsers that have presented the token, without I/O.

    token ──▶ open() ──▶ Login: cookie SESSION.SECRET, key ──▶ find(cookie, key) ──▶ Visit: the session, perhaps a new
                                                                                     cookie

A browser sends its cookies to every port of a host (RFC 6265, section 8.5), so other servers there may see this one.
What a browser keeps in its storage is different: only pages of the same origin can read it, and an origin has a port.
So a session has two secrets, and takes both: the cookie, which scripts cannot read, and a key, which the page keeps in
its storage and sends in a header. Without the key, a session shows nothing, and its cookie is not replaced.

Rules:
- A secret is random, is compared in constant time, and exists only in this process's memory and in its browser.
- A new login is a new session, whatever cookie came with it: a cookie that another server has planted gains nothing.
- A replaced secret is valid for OVERLAP_SECONDS more, for requests that were under way. Until its successor has been
  used once, it gets that successor again: a response may have been lost, and tabs ask at the same time.
- Sessions end after SESSION_SECONDS, however they are used. There are at most `maximum`; the oldest go.
"""

from __future__ import annotations

import hmac
import itertools
from typing import Callable, Dict, NamedTuple, Optional

SESSION_SECONDS = 7 * 24 * 3600.0
ROTATION_SECONDS = 4 * 3600.0
OVERLAP_SECONDS = 60.0
MAXIMUM_SESSIONS = 1000


class Login(NamedTuple):
    """What a browser gets for the token.

    Attributes:
        cookie: of the new session.
        key: of the page, for its storage.
    """

    cookie: str
    key: str


class Visit(NamedTuple):
    """A request that belongs to a session.

    Attributes:
        session: its name, which is not secret.
        has_key: whether it has the key of the page, too.
        new_cookie: replaces the one that came; empty: it stays.
    """

    session: str
    has_key: bool = True
    new_cookie: str = ""


class _Session:
    def __init__(self, secret: str, key: str, now: float) -> None:
        self.began = self.secret_since = now
        self.key = key
        self.secret = secret
        self.is_secret_used = False
        self.previous = ""
        self.previous_until = now


class BrowserSessions:
    """The open sessions.

    Parameters:
        clock: seconds of a monotonic clock.
        make_secret: returns a new random text, without dots and semicolons.
        maximum: the number of sessions.
    """

    def __init__(
        self, clock: Callable[[], float], make_secret: Callable[[], str], maximum: int = MAXIMUM_SESSIONS
    ) -> None:
        self._clock = clock
        self._make_secret = make_secret
        self._maximum = maximum
        self._numbers = itertools.count(1)
        self._sessions: Dict[str, _Session] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self) -> Login:
        """A new session."""
        self._remove_ended()
        while len(self._sessions) >= self._maximum:
            del self._sessions[next(iter(self._sessions))]
        name = str(next(self._numbers))
        session = self._sessions[name] = _Session(self._make_secret(), self._make_secret(), self._clock())
        return Login(f"{name}.{session.secret}", session.key)

    def find(self, cookie: str, key: str, may_replace: bool = True) -> Optional[Visit]:
        """The session of a request with this cookie; None if there is none.

        Parameters:
            key: of the page; empty if the request has none, as those for the page's own files.
            may_replace: whether the response can set a cookie that takes the place of this one.
        """
        name, _, secret = cookie.partition(".")
        session = self._open_session(name)
        if session is None:
            return None
        if not _is_same(key, session.key):
            return Visit(name, has_key=False) if self._knows(session, secret) else None
        now = self._clock()
        if _is_same(secret, session.secret):
            session.is_secret_used = True
            if not may_replace or now - session.secret_since < ROTATION_SECONDS:
                return Visit(name)
            session.previous, session.previous_until = session.secret, now + OVERLAP_SECONDS
            session.secret, session.secret_since, session.is_secret_used = self._make_secret(), now, False
        elif now >= session.previous_until or not _is_same(secret, session.previous):
            return None
        elif session.is_secret_used or not may_replace:
            return Visit(name)
        return Visit(name, new_cookie=f"{name}.{session.secret}")

    def _knows(self, session: _Session, secret: str) -> bool:
        is_previous = self._clock() < session.previous_until and _is_same(secret, session.previous)
        return _is_same(secret, session.secret) or is_previous

    def is_current(self, name: str) -> bool:
        """Whether the session is open and its secret needs no replacement: otherwise its browser must come again."""
        session = self._open_session(name)
        return session is not None and self._clock() - session.secret_since < ROTATION_SECONDS

    def seconds_left(self, name: str) -> int:
        """Until the session ends; 0 if it has."""
        session = self._open_session(name)
        return 0 if session is None else int(session.began + SESSION_SECONDS - self._clock())

    def close(self, name: str) -> None:
        """End a session. Idempotent."""
        self._sessions.pop(name, None)

    def _open_session(self, name: str) -> Optional[_Session]:
        self._remove_ended()
        return self._sessions.get(name)

    def _remove_ended(self) -> None:
        now = self._clock()
        while self._sessions:
            name, oldest = next(iter(self._sessions.items()))
            if now - oldest.began < SESSION_SECONDS:
                return
            del self._sessions[name]


def _is_same(given: str, secret: str) -> bool:
    return bool(secret) and hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())
