"""The effects of a session for its shell, and its notifications for its owner.

Rules: plain data; the owner of the list performs the effects in order and clears it.
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
    GAVE_UP = "no scheduler was available for too long"
    NOT_A_SCHEDULER = "the program that answers is not a Scaler scheduler"


@dataclass(frozen=True)
class Connect:
    """Open a connection. The answer is `on_connected` or `on_connect_failed`."""


@dataclass(frozen=True)
class StopConnecting:
    """Give up an attempt to connect, which has taken too long. The answer is `on_connect_failed`."""


@dataclass(frozen=True)
class Disconnect:
    """Close the connection, or stop opening it; unsent data is dropped."""


class Transmit(NamedTuple):
    """Send a message of the session itself."""

    message: m.Member


class Opened(NamedTuple):
    """The scheduler has welcomed this peer: the session has begun."""

    welcome: m.Welcome


class Interrupted(NamedTuple):
    """The session, or the attempt to begin one, has ended; another attempt follows.

    Parameters:
        was_open: there was a session, which has ended with everything that belonged to it.
        refusal: the scheduler's, if that is the reason.
    """

    reason: str
    was_open: bool
    refusal: Optional[m.Refusal] = None


class Ended(NamedTuple):
    """The session has ended for good.

    Parameters:
        was_open: there was a session until now.
        refusal: the scheduler's, if that is the reason.
    """

    cause: EndCause
    reason: str
    was_open: bool
    refusal: Optional[m.Refusal] = None


SessionEffect = Union[Connect, StopConnecting, Disconnect, Transmit, Opened, Interrupted, Ended]
