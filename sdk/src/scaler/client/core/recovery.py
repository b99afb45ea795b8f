"""From one session to the next: what a new scheduler needs to know.

    connection lost ─▶ the shell retries with back-off ─▶ Welcome ─▶ start_session: fill the outbox

Rules:
- The scheduler, whether new or the same, knows nothing of this client in a new session. It is sent everything that
  unfinished tasks need, under the ids of the new session, in the original order.
- Messages for the old session are dropped. A task whose cancellation was requested is cancelled.
- As many tasks are sent as there is credit for, and the rest as outcomes release credit. Until all are sent, no
  announced object is deleted, because unsent tasks may need it.
- One outcome for each future: a task without one is sent again, under its number; outcomes of the old session cannot
  arrive in the new one, which is another connection. A task that may run at most once is not sent a second time.
- Actors end with the session. Their unfinished calls fail, and are not sent again.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import Deque, Dict, Iterable, List, Optional, Set, Tuple

from scaler.client.core.client_objects import ClientObjects
from scaler.client.core.credit import Credit
from scaler.client.core.deferring import PREDECESSORS, DeferredTask
from scaler.client.core.handles import TaskHandle
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import Outbox, Run, TaskRun
from scaler.client.core.pending_futures import PendingFutures
from scaler.exceptions import ActorLostError, DisconnectedError
from scaler.values.sizes import INLINE_BYTES
from scaler_protocol.wire import messages as m


class Recovery:
    """Parameters:
    pending: the futures whose tasks are sent again.
    """

    def __init__(self, objects: ClientObjects, outbox: Outbox, pending: PendingFutures) -> None:
        self._objects = objects
        self._outbox = outbox
        self._pending = pending
        self._announced: Dict[int, int] = {}  # by id, with the bytes charged when all tasks are sent and it is deleted
        self._unsent: Deque[Tuple[Run, List[int]]] = deque()
        self.unsent_ids: Set[int] = set()
        """The number of tasks that still have to be sent to the current scheduler."""

    def start_session(self, welcome: m.Welcome) -> int:
        """Fill the outbox for the new session; returns how many tasks are sent again.

        `send_more` follows, which sends them.
        """
        self._objects.start_session(welcome)
        # SCL-SES-021
        self._outbox.take()
        announced = self._announced = {}
        self._unsent.clear()
        for kept in self._objects.kept():
            self._announce(kept, announced)
        deferred: List[DeferredTask] = []
        futures = self._pending.futures
        count = 0
        for run, group in groupby(list(futures.values()), lambda future: future._source):
            if isinstance(run, DeferredTask):
                continue  # they were never sent
            again = list(group)
            if run is not None and run.options is not None and run.options.actor:
                # SCL-CLT-016
                self._pending.fail(again, actor_lost())
                continue
            why_not = _why_not_again(run)
            if why_not:
                self._pending.fail(again, _not_again(why_not))
                continue
            if isinstance(run, TaskRun) and run.futures_needed:
                again = [future for future in again if not self._defer(run, future, welcome, deferred)]
                if not again:
                    continue
            # SCL-CLT-006
            for function_object in run.function_objects:
                self._announce(function_object, announced)
            self._unsent.append((run, [future._task_id for future in again]))
            count += len(again)
        self.unsent_ids = {task_id for _, task_ids in self._unsent for task_id in task_ids}
        if not self._unsent:
            self._delete_unheld()
        for task in deferred:
            self._pending.defer(task)
        return count

    def send_more(self, credit: Credit) -> None:
        """Send again as many tasks as there is credit for."""
        if not self._unsent:
            return
        futures = self._pending.futures
        # SCL-CLT-002
        while self._unsent and credit.is_left:
            run, task_ids = self._unsent.popleft()
            task_ids = [task_id for task_id in task_ids if task_id in futures]  # the others have been cancelled
            count = _count_taken(run, task_ids, credit)
            if count < len(task_ids):
                self._unsent.appendleft((run, task_ids[count:]))
            if count:
                self._outbox.add_again(run, task_ids[:count])
        self.unsent_ids = {task_id for _, task_ids in self._unsent for task_id in task_ids}
        if not self._unsent:
            self._delete_unheld()

    def append(self, run: Run, task_ids: List[int], object_ids: Iterable[int]) -> None:
        """Queue new tasks behind those that are not sent yet, because ids ascend; they need these objects."""
        self._unsent.append((run, task_ids))
        self.unsent_ids.update(task_ids)
        for object_id in object_ids:
            self._announced.setdefault(object_id, 0)

    def needs(self, object_id: int) -> bool:
        """Whether unsent tasks may need an object; if so, it is deleted after they are sent."""
        return bool(self._unsent) and object_id in self._announced

    def _defer(self, run: TaskRun, future: TaskHandle, welcome: m.Welcome, deferred: List[DeferredTask]) -> bool:
        """Whether a task cannot wait at the new scheduler, because one of its predecessors will not run there."""
        needed = run.futures_needed.get(future._task_id, ())
        here = {task.future._task_id for task in deferred}
        if not needed or (
            PREDECESSORS in welcome.features
            and not any(
                self._pending.futures.get(each._task_id) is not each
                or each._task_id > future._task_id
                or each._task_id in here
                or type(each._source) is DeferredTask
                for each in needed
            )
        ):
            return False
        deferred.append(DeferredTask.taken_from(run, future))
        return True

    def _announce(self, kept: KeptObject, announced: Dict[int, int]) -> None:
        if kept.object_id not in announced and self._objects.is_taken(kept):  # else tasks that need it are lost
            announced[kept.object_id] = self._objects.charged_bytes(kept.object_id)
            announce(kept, self._objects, self._outbox)

    def _delete_unheld(self) -> None:
        """Release these objects: from now on only the tasks that were sent hold them."""
        announced, self._announced = self._announced, {}
        found = ((object_id, self._objects.find(object_id)) for object_id in announced)
        unheld = sorted(object_id for object_id, kept in found if kept is None or not kept.is_held)
        if unheld:
            self._outbox.delete_objects(unheld, self._objects.wire_id, sum(map(announced.__getitem__, unheld)))


def announce(kept: KeptObject, objects: ClientObjects, outbox: Outbox) -> None:
    """Queue the message that places an object in the current session."""
    instruction, payload = objects.announcement(kept)
    if kept.size < INLINE_BYTES:
        outbox.add(instruction, payload)
    else:
        outbox.add_object(instruction, kept)


def _count_taken(run: Run, task_ids: List[int], credit: Credit) -> int:
    """For how many of these tasks there is credit. Graphs are not counted."""
    if not isinstance(run, TaskRun):
        return len(task_ids)
    tasks_left, bytes_left = credit.tasks_left, credit.bytes_left
    if tasks_left > len(task_ids) and bytes_left > run.payload_bytes:
        return len(task_ids)
    count = 0
    for size in run.sizes_of(task_ids):
        if count >= tasks_left or bytes_left <= 0:
            break
        count += 1
        bytes_left -= size
    return count


def _why_not_again(run: Optional[Run]) -> str:
    if run is None:
        return "it cannot be sent a second time"
    # SCL-CLT-007
    if run.was_sent and run.options is not None and run.options.at_most_once:
        return "it may have begun, and may run at most once"
    return ""


def actor_lost() -> ActorLostError:
    return ActorLostError(
        "the actor was lost with the connection to the scheduler, before this call had an outcome: make a new one with"
        " client.actor(...)"
    )


def _not_again(why: str) -> DisconnectedError:
    return DisconnectedError(f"the task was unfinished when the connection to the scheduler ended, and {why}")
