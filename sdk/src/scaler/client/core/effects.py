"""What the core asks the shell to do, in order. Effects are values: tests compare them."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence, Tuple, Union

from scaler.client.core.deferring import DeferredTask
from scaler.client.core.handles import Asker, Buffer, TaskHandle
from scaler.client.core.kept_objects import KeptObject
from scaler_protocol.wire import messages as m


class Send(NamedTuple):
    """Send one message; its payload frame consists of the joined parts."""

    message: m.Member
    payload: Sequence[Buffer] = ()


class PlaceObject(NamedTuple):
    """Link an object's file into the scheduler's directory, if that is reachable, and announce the object."""

    instruction: m.ObjectInstruction
    kept: KeptObject


class SendChunk(NamedTuple):
    """Read a part of an object and send it as an ObjectResponse, which reports a missing object as such."""

    kept: KeptObject
    request: m.ObjectRequest


class DiscardObject(NamedTuple):
    """The object is no longer needed: its file can be removed."""

    kept: KeptObject


class FollowToDisk(NamedTuple):
    """The scheduler has moved its copy of an object's file to disk: drop ours from memory as well."""

    kept: KeptObject
    object_id: int


class OpenResult(NamedTuple):
    """Map the file of a large result; `on_result_opened` follows immediately, with the content if it is on this
    host."""

    object_id: int
    outcome: Outcome


class SettleResults(NamedTuple):
    """Give futures their results: consecutive parts of the payload. None stands for a future that has already ended."""

    futures: Sequence[Optional[TaskHandle]]
    payload: bytes
    sizes: Sequence[int]


class Outcome(NamedTuple):
    """How one task ended, if not with an inline result.

    Parameters:
        payload: of the result or the failure; None until it has been fetched.
        cause: in a graph: 1 + the id of the task that failed, if it is a different one.
        needed: the futures of tasks whose results the task needed.
        profile: duration in microseconds, peak memory in bytes, processor time in microseconds; or empty.
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
    """These futures end with an error that this client raises."""

    futures: Sequence[TaskHandle]
    error: Exception


class FailedAfter(NamedTuple):
    """This future ends because a task that it needs has failed."""

    future: TaskHandle
    failed: TaskHandle


class CancelAnswered(NamedTuple):
    """The scheduler has answered a cancellation: the task was not cancelled, for this reason."""

    future: TaskHandle
    outcome: int


class NoteStack(NamedTuple):
    """Where a task was when it was cancelled."""

    future: TaskHandle
    text: str


class SendDeferred(NamedTuple):
    """All that a deferred task needs has ended: submit it with the results, or end it, without blocking."""

    task: DeferredTask


class Tell(NamedTuple):
    """Give a waiting thread its answer."""

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
