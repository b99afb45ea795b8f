"""Limits of sessions, and the layout of object ids: the session that made the object, and its number there.

    63        40 39 38                                   0
    ┌───────────┬──┬─────────────────────────────────────┐
    │  session  │S │  number                             │     S: the scheduler made it for the session
    └───────────┴──┴─────────────────────────────────────┘

Source: SCL-SES-007, SCL-OBJ-001.
"""

from __future__ import annotations

SESSION_SHIFT = 40

MAXIMUM_SESSION = (1 << 24) - 1
"""The highest number of a session; the lowest is 1."""

MAXIMUM_HELLO_BYTES = 64 * 1024
"""Of a message before the Welcome (SCL-SEC-012, SCL-SEC-013)."""

NUMBER_MASK = (1 << SESSION_SHIFT) - 1

FIRST_SCHEDULER_NUMBER = 1 << (SESSION_SHIFT - 1)
"""Numbers from here on are the scheduler's, for objects that it makes on behalf of a client; a peer's are below."""


def object_id_of(session: int, number: int) -> int:
    """The id of a session's object."""
    return session << SESSION_SHIFT | number


def session_of(object_id: int) -> int:
    """The session that made an object."""
    return object_id >> SESSION_SHIFT
