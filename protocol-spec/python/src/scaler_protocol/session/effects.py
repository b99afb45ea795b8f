"""What a session asks its shell to do, and what it tells its owner.

Rules: plain data; whoever owns the list performs the effects in order and clears it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Optional, Union

from scaler_protocol.wire import messages as m


class EndCause(Enum):
    """Why a session ended for good."""

    LEFT = "it was asked to leave, or has drained"
    SHUT_DOWN = "the scheduler asked it to leave"
    REFUSED = "the scheduler refused it"
    GAVE_UP = "no scheduler was there for too long"
    NOT_A_SCHEDULER = "what answers is not a Scaler scheduler"


@dataclass(frozen=True)
class Connect:
    """Open a connection. The answer is `on_connected` or `on_connect_failed`."""


@dataclass(frozen=True)
class Disconnect:
    """Close the connection, or stop opening it; what it has not sent yet is dropped."""


class Transmit(NamedTuple):
    """Send a message of the session itself."""

    message: m.Member


class Opened(NamedTuple):
    """The scheduler has welcomed this peer: the session is there."""

    welcome: m.Welcome


class Interrupted(NamedTuple):
    """The session, or the attempt to begin one, has ended; another attempt follows.

    Parameters:
        was_open: there was a session; what belonged to it has ended.
        refusal: the scheduler's, if that is why.
    """

    reason: str
    was_open: bool
    refusal: Optional[m.Refusal] = None


class Ended(NamedTuple):
    """The session is over, and no other follows.

    Parameters:
        was_open: there was a session until now.
        refusal: the scheduler's, if that is why.
    """

    cause: EndCause
    reason: str
    was_open: bool
    refusal: Optional[m.Refusal] = None


SessionEffect = Union[Connect, Disconnect, Transmit, Opened, Interrupted, Ended]
