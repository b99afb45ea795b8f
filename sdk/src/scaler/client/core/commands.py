"""What user threads hand over to the core. Each is one value, handed over whole or not at all.

Rules: the plainest task of all is a bare tuple (future, function, payload, options), since one is made for each
submission; everything else has a name.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from scaler.client.core.deferring import DeferredTask
from scaler.client.core.handles import Asker, TaskHandle
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import FunctionKey, GraphRun
from scaler_protocol.wire import messages as m

PlainTask = Tuple[TaskHandle, FunctionKey, bytes, Optional[m.TaskOptions]]


class SubmitTask(NamedTuple):
    """Submit a task as soon as the scheduler takes one more.

    Parameters:
        dependencies: the objects that it needs.
        predecessors: the futures whose results it needs, in the order of their places in its arguments.
        arguments_bytes: the size of the first dependency, if that holds the task's arguments: the task alone has it
            from now on.
        asker: told when the task was taken.
    """

    future: TaskHandle
    function: FunctionKey
    payload: bytes
    options: Optional[m.TaskOptions] = None
    dependencies: Sequence[int] = ()
    predecessors: Sequence[TaskHandle] = ()
    arguments_bytes: int = 0
    asker: Optional[Asker] = None


class AwaitRoom(NamedTuple):
    """Say when the scheduler takes one more task."""

    asker: Asker


class SubmitGraph(NamedTuple):
    """Submit a graph.

    Parameters:
        dependencies: the objects that some node needs.
        targets: futures by position.
    """

    run: GraphRun
    dependencies: Sequence[int]
    targets: Dict[int, TaskHandle]


class SubmitDeferred(NamedTuple):
    """A deferred task can be sent.

    Parameters:
        payload: with the results that it needs in front.
        results: the objects that results were made, in the order of their places.
        made: objects that the task alone holds from now on.
    """

    task: DeferredTask
    payload: bytes
    results: Sequence[int]
    made: Sequence[int]


class EndDeferred(NamedTuple):
    """A deferred task ends without having been sent: cancelled, failed after another, or with an error."""

    task: DeferredTask
    failed: Optional[TaskHandle] = None
    error: Optional[Exception] = None


class NumberFuture(NamedTuple):
    """Give a future the id of a task that no scheduler hears of; it has its outcome already."""

    future: TaskHandle


class HoldObject(NamedTuple):
    """Place an object in the cluster."""

    kept: KeptObject


class LetGo(NamedTuple):
    """Objects are needed by unfinished tasks alone from now on."""

    object_ids: Sequence[int]


class Cancel(NamedTuple):
    """Ask the scheduler to cancel tasks; those that it does not have are cancelled at once."""

    futures: Sequence[TaskHandle]
    force: bool


class GiveUp(NamedTuple):
    """Cancel futures here, whatever the scheduler makes of their tasks."""

    futures: Sequence[TaskHandle]


class CancelAll(NamedTuple):
    """Ask the scheduler to cancel all unfinished tasks; the asker is told their futures."""

    asker: Asker


class Clear(NamedTuple):
    """Cancel all unfinished tasks here and there, and let go of objects."""

    object_ids: Sequence[int]


class Ask(NamedTuple):
    """Send a question; the asker is told the answer. The core fills in the question's number."""

    question: Any
    asker: Asker


class Explain(NamedTuple):
    """Ask where a task is; the asker is told an Explanation, a DeferredTask, NOT_CONNECTED, or None if it has ended."""

    future: TaskHandle
    asker: Asker


class ForgetQuestion(NamedTuple):
    """Nobody waits for this answer any more."""

    asker: Asker


class Barrier(NamedTuple):
    """Say when everything handed over before has been taken."""

    asker: Asker


NOT_CONNECTED = "not connected"

Command = Union[
    PlainTask, SubmitTask, AwaitRoom, SubmitGraph, SubmitDeferred, EndDeferred, NumberFuture, HoldObject, LetGo, Cancel,
    GiveUp, CancelAll, Clear, Ask, Explain, ForgetQuestion, Barrier,
]  # fmt: skip

Commands = List[Command]


def refused(commands: Iterable[Command]) -> Tuple[List[TaskHandle], List[Asker]]:
    """The futures that no core will ever end, and who waits for an answer, where commands come too late."""
    futures: List[TaskHandle] = []
    askers: List[Asker] = []
    for command in commands:
        if type(command) is tuple:
            futures.append(command[0])  # type: ignore[arg-type]
        elif isinstance(command, SubmitTask):
            futures.append(command.future)
        elif isinstance(command, SubmitGraph):
            futures.extend(command.targets.values())
        asker: Optional[Asker] = getattr(command, "asker", None)
        if asker is not None:
            askers.append(asker)
    return futures, askers
