"""Tasks that wait here, in the client, for others: their scheduler cannot let them wait.

    submit(g, f) ──▶ DeferredTask ──f is done──▶ its result in front of the payload ──▶ core.submit, as a new task
                         ▲
                         └── the scheduler gave g back: it had told the outcome of f before

Mostly the scheduler lets a task wait for others (`TaskRun.predecessors`), and nothing of this happens. It does when a
scheduler is too old for that; when the outcome of a predecessor and the task crossed on their way; and when a session
ends, since the next scheduler knows nothing of what was done before.

Rules:
- A deferred task is among the client's unfinished futures, under a number that no scheduler hears of; it is sent under
  another one. So whatever ends futures ends it too.
- Its arguments are those that it was submitted with; results are put in front as they came, nothing is loaded.
- Sending may wait, for credit and for the writing of large results: that is done by a thread of its own.
"""

from __future__ import annotations

import struct
import threading
from array import array
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import FunctionKey, TaskNeeds, TaskRun
from scaler.client.future import ScalerFuture
from scaler.client.future_arguments import content_of, has_failed, is_cancelled, origin_of
from scaler.exceptions import DisconnectedError
from scaler.values.payload import INLINE_BYTES, RESULT_IS_OBJECT, RESULTS_MARK, Buffer
from scaler_protocol import MalformedMessageError, decode_struct
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from scaler.client.shell.client_shell import ClientCore


PREDECESSORS = "predecessors"
"""The feature of schedulers that let tasks wait for others."""


class DeferredTask:
    """What a task is sent from, when it can be.

    Parameters:
        dependencies: the objects that it needs.
        predecessors: the futures whose results it needs, in the order of their places in its arguments.
        arguments_bytes: the size of the first dependency, if that holds the arguments and is to be handed over.
    """

    was_sent = False

    def __init__(
        self,
        future: ScalerFuture,
        function: FunctionKey,
        function_object: Optional[KeptObject],
        options: Optional[m.TaskOptions],
        payload: Buffer,
        dependencies: Sequence[int],
        predecessors: Sequence[ScalerFuture],
        arguments_bytes: int = 0,
    ) -> None:
        self.future = future
        self.function = function
        self.function_object = function_object
        self.options = options
        self.payload = payload
        self.dependencies = list(dependencies)
        self.predecessors = tuple(predecessors)
        self.arguments_bytes = arguments_bytes
        self.missing = 0

    @staticmethod
    def taken_from(run: TaskRun, future: ScalerFuture) -> DeferredTask:
        """A task that was sent to wait for others, and is to wait here."""
        task_id = future.task_id
        task, payload = run.part([task_id], lambda object_id: object_id)
        function_object = run.function_object
        predecessors = run.futures_needed[task_id]
        content = b"".join(payload)
        return DeferredTask(
            future, run.function, function_object, run.options, content, task.dependencies, predecessors
        )


class _Watch:
    """A waiter, as those of `concurrent.futures`: tells that a predecessor is done."""

    def __init__(self, deferring: Deferring, task: DeferredTask) -> None:
        self._deferring = deferring
        self._task = task

    def add_result(self, future: Any) -> None:
        self._deferring.count_done(self._task)

    add_exception = add_cancelled = add_result


class Deferring:
    """The deferred tasks of one client."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._ready: List[DeferredTask] = []
        self._is_working = False
        self._lock = threading.Lock()  # of these two

    def take_back(self, futures: Sequence[ScalerFuture]) -> None:
        """The scheduler gave these tasks back, because it does not know a predecessor any more. No lock is held."""
        for future in futures:
            run = future._source
            if type(run) is TaskRun and not future._is_cancel_asked:
                self.defer(DeferredTask.taken_from(run, future))
            elif self._core.futures.pop(future.task_id, None) is not None:
                self._core.outcomes.settle([future], CANCELLED_AND_NOTIFIED, None)

    def defer(self, task: DeferredTask) -> None:
        """Let a task wait for its predecessors, whose future is among the unfinished ones. No lock is held."""
        task.future._source = task
        with self._core.outcomes.condition:
            for each in task.predecessors:
                if not each.done():
                    task.missing += 1
                    each._waiters.append(_Watch(self, task))
            is_ready = not task.missing
        if is_ready:
            self._go_on(task)

    def count_done(self, task: DeferredTask) -> None:
        """A predecessor is done. The condition is held."""
        task.missing -= 1
        if not task.missing:
            self._go_on(task)

    def _go_on(self, task: DeferredTask) -> None:
        with self._lock:
            self._ready.append(task)
            if self._is_working:
                return
            self._is_working = True
        threading.Thread(target=self._work, name="scaler-client-deferred", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                tasks, self._ready = self._ready, []
                if not tasks:
                    self._is_working = False
                    return
            for task in tasks:
                try:
                    self._submit(task)
                except DisconnectedError:
                    pass  # which ends its future as well
                except Exception as error:  # no room for a large result, for instance: nobody may wait for ever
                    self._end(task.future, error)

    def _end(self, future: ScalerFuture, error: Optional[Exception] = None) -> None:
        if self._core.futures.pop(future.task_id, None) is not None:
            state = CANCELLED_AND_NOTIFIED if error is None else FINISHED
            self._core.outcomes.settle([future], state, error)

    def _submit(self, task: DeferredTask) -> None:
        """All predecessors are done: so is the task, or it can be sent."""
        core, future = self._core, task.future
        if any(map(is_cancelled, task.predecessors)):
            self._end(future)
            return
        failed = next(filter(has_failed, task.predecessors), None)
        if failed is not None:
            if core.futures.pop(future.task_id, None) is not None:
                fail_after(core, future, failed)
            return
        made: List[int] = []  # objects for this task alone
        payload, results = self._results_in_front(task, made)
        while not self._send(task, payload, results, made):
            pass
        for object_id in made:
            core.delete_object(object_id)

    def _results_in_front(self, task: DeferredTask, made: List[int]) -> Tuple[bytes, List[int]]:
        """The payload with what fits of its predecessors' results, and the objects that the others were made."""
        parts: List[Buffer] = []
        sizes = array("I")
        objects: List[int] = []
        inline_bytes = len(task.payload)
        for each in task.predecessors:
            content = content_of(each)
            assert content is not None, f"the result of task {each.task_id} was not kept"
            if inline_bytes + len(content) < INLINE_BYTES:
                inline_bytes += len(content)
                parts.append(content)
                sizes.append(len(content))
            else:
                object_id = self._core.send_object([content], "", m.ObjectKind.VALUE)
                objects.append(object_id)
                made.append(object_id)
                sizes.append(RESULT_IS_OBJECT)
        header = struct.pack("<II", RESULTS_MARK, len(sizes)) + struct.pack(f"<{len(sizes)}I", *sizes)
        return b"".join([header, *parts, task.payload]), objects

    def _send(self, task: DeferredTask, payload: bytes, results: List[int], made: List[int]) -> bool:
        """Submit a task that needs nothing more; False when an object that it needs was let go meanwhile."""
        core, future = self._core, task.future
        function = task.function
        if isinstance(function, int) and not _is_held(task.function_object):
            assert task.function_object is not None
            function = self._copy(task.function_object, made)
        kept = [core.objects.find(each) for each in task.dependencies]
        for position, each in enumerate(kept):
            if each is not None and not each.is_held:
                task.dependencies[position] = self._copy(each, made)
        with core.lock:
            core.check_open()
            core.credit.await_room(core)
            needed = [*task.dependencies, *([function] if isinstance(function, int) else ())]
            if not all(each is None or each.is_held for each in map(core.objects.find, needed)):
                return False
            number = future.task_id
            if core.futures.pop(number, None) is None:
                return True  # cancelled meanwhile
            before = core.outcomes.needs.pop(number, ())
            # There is room, so this neither waits nor fails.
            core.submit(function, payload, [*task.dependencies, *results], future, task.options)
            core.objects.release(before)
            if task.arguments_bytes:
                core.hand_over_arguments(task.dependencies[0], task.arguments_bytes)
        return True

    def _copy(self, kept: KeptObject, made: List[int]) -> int:
        """Another object with the same content, for one that the scheduler may know no more."""
        kind = m.ObjectKind.VALUE if kept.kind == m.ObjectKind.ARGUMENTS else kept.kind  # it is charged for already
        made.append(self._core.send_object([kept.read(0, kept.size)], kept.name, kind, kept.codec))
        return made[-1]


def _is_held(kept: Optional[KeptObject]) -> bool:
    return kept is not None and kept.is_held


def submit_after(
    core: ClientCore,
    function: int,
    payload: bytes,
    dependencies: Sequence[int],
    future: ScalerFuture,
    options: Optional[m.TaskOptions],
    predecessors: Sequence[ScalerFuture],
    arguments_bytes: int,
) -> None:
    """Submit a task that needs the results of others: to the scheduler if that can let it wait, otherwise to wait here.

    Parameters: as of DeferredTask.
    """
    with core.lock:
        core.check_open()
        if PREDECESSORS in core.welcome.features and not any(
            type(each._source) is DeferredTask for each in predecessors
        ):
            core.submit(function, payload, TaskNeeds(dependencies, predecessors), future, options)
            if arguments_bytes:
                core.hand_over_arguments(dependencies[0], arguments_bytes)
            return
        core.number_apart(future)
        if dependencies:
            core.outcomes.needs[future.task_id] = core.objects.need(dependencies)
        found = core.objects.find(function)
    core.deferring.defer(
        DeferredTask(future, function, found, options, payload, dependencies, predecessors, arguments_bytes)
    )


def ends_at_once(core: ClientCore, future: ScalerFuture, predecessors: Sequence[ScalerFuture]) -> bool:
    """Whether a task has its outcome before it is submitted, since one that it needs has failed or was cancelled."""
    cancelled = any(map(is_cancelled, predecessors))
    failed = next((each for each in predecessors if each.done() and has_failed(each)), None)
    if failed is None and not cancelled:
        return False
    with core.lock:
        core.check_open()
        core.number_apart(future)
        del core.futures[future.task_id]
    if cancelled:
        core.outcomes.settle([future], CANCELLED_AND_NOTIFIED, None)
    elif failed is not None:
        fail_after(core, future, failed)
    return True


def fail_after(core: ClientCore, future: ScalerFuture, failed: ScalerFuture) -> None:
    """End a future, which nobody else can end any more, because one that its task needs has failed."""
    future._inherited_from = (origin_of(failed),)
    future._has_failed = True
    future._payload = b""  # what the exception is, is found out by who asks for it
    core.outcomes.settle([future], FINISHED, None)


def is_predecessor_gone(payload: Buffer) -> bool:
    """Whether a failure says that the task has to be submitted anew."""
    try:
        return decode_struct(m.Failure, bytes(payload)).kind == m.FailureKind.PREDECESSOR_GONE
    except MalformedMessageError:
        return False
