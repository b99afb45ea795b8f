"""The states of a session at a client or worker, and their transitions: the specification's table.

Rules:
- The table is total: every event in every state leads to a state, is ignored, or is a fault of ours.
- It is equal to `machines/session-at-peer.toml` of the specification, which a test compares.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, NamedTuple, Union


class SessionState(Enum):
    APART = "apart"
    """There is no connection that has said Hello."""
    GREETING = "greeting"
    """Hello was sent, and nothing else may be sent."""
    OPEN = "open"
    """The session is open."""
    ASKING = "asking"
    """A worker has asked to be drained: it begins nothing new, and may still be sent tasks."""
    DRAINING = "draining"
    """A worker finishes its running tasks, and accepts no new ones."""
    LEAVING = "leaving"
    """The goodbye was sent."""
    ENDED = "ended"
    """For good."""


class SessionEvent(Enum):
    CONNECT = "connect"
    WELCOME = "welcome"
    NOT_GREETED = "not_greeted"
    SHUTTING_DOWN = "shutting_down"
    REFUSED = "refused"
    LOST = "lost"
    TOLD_TO_LEAVE = "told_to_leave"
    TOLD_TO_DRAIN = "told_to_drain"
    ASK = "ask"
    DRAINED = "drained"
    LEAVE = "leave"
    RESPONSE = "response"


class Ignored(NamedTuple):
    why: str


class Fault(NamedTuple):
    """This cannot happen unless this peer has a defect."""

    why: str


Decision = Union[SessionState, Ignored, Fault]

_CANNOT_COME = Ignored("nothing can come")
_IS_CONNECTED = Fault("there is one")
_IS_LEAVING = Ignored("it is leaving")
_HAS_ENDED = Ignored("it has ended")
_EARLIER_FAREWELL = Ignored("it answers an earlier farewell")
_HAS_NO_TASKS = Fault("it has no tasks to finish")

_S, _E = SessionState, SessionEvent

TRANSITIONS: Dict[SessionState, Dict[SessionEvent, Decision]] = {
    _S.APART: {
        _E.CONNECT: _S.GREETING,
        _E.WELCOME: _CANNOT_COME,
        _E.NOT_GREETED: _CANNOT_COME,
        _E.SHUTTING_DOWN: _CANNOT_COME,
        _E.REFUSED: _CANNOT_COME,
        _E.LOST: _S.APART,
        _E.TOLD_TO_LEAVE: _CANNOT_COME,
        _E.TOLD_TO_DRAIN: _CANNOT_COME,
        _E.ASK: _HAS_NO_TASKS,
        _E.DRAINED: _HAS_NO_TASKS,
        _E.LEAVE: _S.ENDED,
        _E.RESPONSE: _CANNOT_COME,
    },
    _S.GREETING: {
        _E.CONNECT: _IS_CONNECTED,
        _E.WELCOME: _S.OPEN,
        _E.NOT_GREETED: Ignored("it answers what was sent before Hello"),
        _E.SHUTTING_DOWN: _S.APART,
        _E.REFUSED: _S.ENDED,
        _E.LOST: _S.APART,
        _E.TOLD_TO_LEAVE: _S.ENDED,
        _E.TOLD_TO_DRAIN: _S.ENDED,
        _E.ASK: _HAS_NO_TASKS,
        _E.DRAINED: _HAS_NO_TASKS,
        _E.LEAVE: _S.LEAVING,
        _E.RESPONSE: _EARLIER_FAREWELL,
    },
    _S.OPEN: {
        _E.CONNECT: _IS_CONNECTED,
        _E.WELCOME: Ignored("it has one"),
        _E.NOT_GREETED: _S.APART,
        _E.SHUTTING_DOWN: _S.APART,
        _E.REFUSED: _S.ENDED,
        _E.LOST: _S.APART,
        _E.TOLD_TO_LEAVE: _S.ENDED,
        _E.TOLD_TO_DRAIN: _S.DRAINING,
        _E.ASK: _S.ASKING,
        _E.DRAINED: Fault("it was not told to drain"),
        _E.LEAVE: _S.LEAVING,
        _E.RESPONSE: _EARLIER_FAREWELL,
    },
    _S.ASKING: {
        _E.CONNECT: _IS_CONNECTED,
        _E.WELCOME: Ignored("it has one"),
        _E.NOT_GREETED: _S.ENDED,
        _E.SHUTTING_DOWN: _S.ENDED,
        _E.REFUSED: _S.ENDED,
        _E.LOST: _S.ENDED,
        _E.TOLD_TO_LEAVE: _S.ENDED,
        _E.TOLD_TO_DRAIN: _S.DRAINING,
        _E.ASK: Ignored("it has asked"),
        _E.DRAINED: Fault("it was not told to drain"),
        _E.LEAVE: _S.LEAVING,
        _E.RESPONSE: _S.ENDED,
    },
    _S.DRAINING: {
        _E.CONNECT: _IS_CONNECTED,
        _E.WELCOME: Ignored("it has one"),
        _E.NOT_GREETED: _S.ENDED,
        _E.SHUTTING_DOWN: _S.ENDED,
        _E.REFUSED: _S.ENDED,
        _E.LOST: _S.ENDED,
        _E.TOLD_TO_LEAVE: _S.ENDED,
        _E.TOLD_TO_DRAIN: Ignored("it drains"),
        _E.ASK: Ignored("it drains"),
        _E.DRAINED: _S.ENDED,
        _E.LEAVE: _S.LEAVING,
        _E.RESPONSE: _EARLIER_FAREWELL,
    },
    _S.LEAVING: {
        _E.CONNECT: _IS_CONNECTED,
        _E.WELCOME: _IS_LEAVING,
        _E.NOT_GREETED: _IS_LEAVING,
        _E.SHUTTING_DOWN: _S.ENDED,
        _E.REFUSED: _S.ENDED,
        _E.LOST: _S.ENDED,
        _E.TOLD_TO_LEAVE: _S.ENDED,
        _E.TOLD_TO_DRAIN: _IS_LEAVING,
        _E.ASK: _IS_LEAVING,
        _E.DRAINED: _IS_LEAVING,
        _E.LEAVE: _IS_LEAVING,
        _E.RESPONSE: _S.ENDED,
    },
    _S.ENDED: {
        _E.CONNECT: Fault("it wants none"),
        _E.WELCOME: _HAS_ENDED,
        _E.NOT_GREETED: _HAS_ENDED,
        _E.SHUTTING_DOWN: _HAS_ENDED,
        _E.REFUSED: _HAS_ENDED,
        _E.LOST: _HAS_ENDED,
        _E.TOLD_TO_LEAVE: _HAS_ENDED,
        _E.TOLD_TO_DRAIN: _HAS_ENDED,
        _E.ASK: _HAS_ENDED,
        _E.DRAINED: _HAS_ENDED,
        _E.LEAVE: _HAS_ENDED,
        _E.RESPONSE: _HAS_ENDED,
    },
}
