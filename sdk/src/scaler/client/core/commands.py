"""The commands that user threads pass to the core. Each is one value, which is passed whole or not at all.

Rules: the plainest task of all is a bare tuple (future, function, payload, options), since one is made for each
submission; everything else has a name.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from scaler.client.core.deferring import DeferredTask
from scaler.client.core.handles import Asker, TaskHandle
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import FunctionKey, GraphRun
from scaler_protocol.wire import messages as m

PlainTask = Tuple[TaskHandle, FunctionKey, bytes, Optional[m.TaskOptions]]


class SubmitTask(NamedTuple):
    """Submit a task as soon as there is credit for it.

    Parameters:
        dependencies: the objects that it needs.
        predecessors: the futures whose results it needs, in the order of their places in its arguments.
        arguments_bytes: the size of the first dependency, if that holds the task's arguments; only the task holds it
        from now on.
        asker: notified when the task was accepted.
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
    """Notify the asker when there is credit for one more task."""

    asker: Asker


class SubmitGraph(NamedTuple):
    """Submit a graph.

    Parameters:
        dependencies: the objects that any of the nodes needs.
        targets: futures by position.
    """

    run: GraphRun
    dependencies: Sequence[int]
    targets: Mapping[int, TaskHandle]


class SubmitDeferred(NamedTuple):
    """A deferred task can be sent.

    Parameters:
        payload: with the results that the task needs prepended.
        results: the objects into which results were put, in the order of their places.
        made: objects that only the task holds from now on.
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
    """Give a future a task id of its own, although its task is never sent because it already has its outcome."""

    future: TaskHandle


class HoldObject(NamedTuple):
    """Place an object in the cluster."""

    kept: KeptObject


class LetGo(NamedTuple):
    """Release objects: from now on they are kept only for unfinished tasks."""

    object_ids: Sequence[int]


class Cancel(NamedTuple):
    """Ask the scheduler to cancel tasks; those that it does not have are cancelled at once."""

    futures: Sequence[TaskHandle]
    force: bool


class GiveUp(NamedTuple):
    """Cancel futures locally, whether or not the scheduler can cancel their tasks."""

    futures: Sequence[TaskHandle]


class CancelAll(NamedTuple):
    """Ask the scheduler to cancel all unfinished tasks; the asker receives their futures."""

    asker: Asker


class Clear(NamedTuple):
    """Cancel all unfinished tasks, locally and at the scheduler, and release all objects."""

    object_ids: Sequence[int]


class Ask(NamedTuple):
    """Send a query; the asker receives the answer. The core fills in the query's number."""

    query: Any
    asker: Asker


class Explain(NamedTuple):
    """Ask where a task is; the asker gets an Explanation, a DeferredTask, NOT_CONNECTED, or None if it has ended."""

    future: TaskHandle
    asker: Asker


class ForgetQuery(NamedTuple):
    """The asker no longer waits for its answer."""

    asker: Asker


class Barrier(NamedTuple):
    """Notify the asker when all earlier commands have been processed."""

    asker: Asker


NOT_CONNECTED = "not connected"

Command = Union[
    PlainTask, SubmitTask, AwaitRoom, SubmitGraph, SubmitDeferred, EndDeferred, NumberFuture, HoldObject, LetGo, Cancel,
    GiveUp, CancelAll, Clear, Ask, Explain, ForgetQuery, Barrier,
]  # fmt: skip

Commands = List[Command]


def refused(commands: Iterable[Command]) -> Tuple[List[TaskHandle], List[Asker]]:
    """The futures and askers of commands that came too late: no core will ever settle them."""
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
