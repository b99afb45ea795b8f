"""What the core asks the shell to do, in order. Effects are values: tests compare them."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence, Tuple, Union

from scaler.client.core.deferring import DeferredTask
from scaler.client.core.handles import Asker, Buffer, TaskHandle
from scaler.client.core.kept_objects import KeptObject
from scaler_protocol.wire import messages as m


class Send(NamedTuple):
    """Send one message; the payload frame is the parts, joined."""

    message: m.Member
    payload: Sequence[Buffer] = ()


class PlaceObject(NamedTuple):
    """Place an object that has a file in the scheduler's directory, if that can be reached, and announce it."""

    instruction: m.ObjectInstruction
    kept: KeptObject


class SendChunk(NamedTuple):
    """Read a part of an object and send it as an ObjectResponse; one that is gone is said to be missing."""

    kept: KeptObject
    request: m.ObjectRequest


class DiscardObject(NamedTuple):
    """The object is needed no more: its file can go."""

    kept: KeptObject


class FollowToDisk(NamedTuple):
    """The scheduler has moved its copy of an object's file to disk: ours shall not keep it in memory."""

    kept: KeptObject
    object_id: int


class OpenResult(NamedTuple):
    """Map the file of a large result; `on_result_opened` follows at once, with the content if it is on this host."""

    object_id: int
    outcome: Outcome


class SettleResults(NamedTuple):
    """Give futures their results: consecutive parts of the payload. None stands for a future that has ended before."""

    futures: Sequence[Optional[TaskHandle]]
    payload: bytes
    sizes: Sequence[int]


class Outcome(NamedTuple):
    """How one task ended, where it is more than a result.

    Parameters:
        payload: of the result or the failure; None while it is still elsewhere.
        cause: in a graph: 1 + the id of the task whose failure this is, if it is another's.
        needed: the futures of tasks whose results the task needed.
        profile: duration in microseconds, peak memory in bytes, processor time in microseconds; or nothing.
    """

    future: TaskHandle
    payload: Optional[Buffer]
    has_failed: bool = False
    cause: int = 0
    needed: Tuple[TaskHandle, ...] = ()
    profile: Tuple[int, ...] = ()


class SettleOutcomes(NamedTuple):
    """Give futures their outcomes."""

    outcomes: Sequence[Outcome]


class Cancelled(NamedTuple):
    """These futures are cancelled."""

    futures: Sequence[TaskHandle]


class Failed(NamedTuple):
    """These futures end with an error of this client's."""

    futures: Sequence[TaskHandle]
    error: Exception


class FailedAfter(NamedTuple):
    """This future ends since a task that it needs has failed."""

    future: TaskHandle
    failed: TaskHandle


class CancelAnswered(NamedTuple):
    """The scheduler has answered a cancellation: the task was not cancelled, and why."""

    future: TaskHandle
    outcome: int


class NoteStack(NamedTuple):
    """Where a task was when it was cancelled."""

    future: TaskHandle
    text: str


class SendDeferred(NamedTuple):
    """All that a deferred task needs has ended: submit it with the results, or end it; without holding anybody up."""

    task: DeferredTask


class Tell(NamedTuple):
    """Somebody who waits gets an answer."""

    asker: Asker
    answer: Any


class Warn(NamedTuple):
    """Log a warning that the scheduler sent."""

    text: str


Effect = Union[
    Send,
    PlaceObject,
    SendChunk,
    DiscardObject,
    FollowToDisk,
    OpenResult,
    SettleResults,
    SettleOutcomes,
    Cancelled,
    Failed,
    FailedAfter,
    CancelAnswered,
    NoteStack,
    SendDeferred,
    Tell,
    Warn,
]
