"""From one session to the next: what a new scheduler has to be told.

    connection lost ─▶ the shell tries again, ever more slowly ─▶ Welcome ─▶ start_session: fill the outbox

Rules:
- The new scheduler, or the old one that has dropped the old session, knows nothing of this client. It is sent whatever
  unfinished tasks need, under the ids of the new session, in the order in which it was sent at first.
- What the old session still had to be told is of no interest. A task that was to be cancelled is.
- One outcome for each future: a task without one is sent again, under its number; outcomes of the old session cannot
  arrive in the new one, for that is another connection. A task that may run at most once is not sent a second time.
"""

from __future__ import annotations

from array import array
from itertools import groupby
from typing import List, Optional, Set

from scaler.client.core.deferring import PREDECESSORS, DeferredTask
from scaler.client.core.handles import TaskHandle
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.object_table import ObjectTable
from scaler.client.core.outbox import Outbox, Run, TaskRun
from scaler.client.core.pending_futures import PendingFutures
from scaler.exceptions import DisconnectedError
from scaler.values.sizes import INLINE_BYTES
from scaler_protocol.wire import messages as m


class Recovery:
    """Parameters:
    pending: the futures whose tasks are sent again.
    """

    def __init__(self, objects: ObjectTable, outbox: Outbox, pending: PendingFutures) -> None:
        self._objects = objects
        self._outbox = outbox
        self._pending = pending

    def start_session(self, welcome: m.Welcome) -> int:
        """Fill the outbox with what the new session has to know; returns how many tasks are sent again."""
        self._objects.start_session(welcome)
        # SCL-SES-021
        self._outbox.take()
        announced: Set[int] = set()
        for kept in self._objects.kept():
            self._announce(kept, announced)
        deferred: List[DeferredTask] = []
        futures = self._pending.futures
        count = 0
        for run, group in groupby(list(futures.values()), lambda future: future._source):
            if isinstance(run, DeferredTask):
                continue  # no scheduler knows them
            again = list(group)
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
            self._outbox.add_again(run, [future._task_id for future in again])
            count += len(again)
        self._delete_unheld(announced)
        for task in deferred:
            self._pending.defer(task)
        return count

    def _defer(self, run: TaskRun, future: TaskHandle, welcome: m.Welcome, deferred: List[DeferredTask]) -> bool:
        """Whether a task cannot wait at the new scheduler for all that it needs, since that will not be run there."""
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

    def _announce(self, kept: KeptObject, announced: Set[int]) -> None:
        if kept.object_id not in announced and self._objects.is_taken(kept):  # else tasks that need it are lost
            announced.add(kept.object_id)
            announce(kept, self._objects, self._outbox)

    def _delete_unheld(self, announced: Set[int]) -> None:
        """From now on only the tasks that were sent hold these objects."""
        found = ((object_id, self._objects.find(object_id)) for object_id in announced)
        unheld = sorted(object_id for object_id, kept in found if kept is None or not kept.is_held)
        for object_id in unheld:
            kept = self._objects.find(object_id)
            if kept is not None and kept.kind == m.ObjectKind.ARGUMENTS:
                self._outbox.count_arguments(kept.size)
        if unheld:
            ids = array("Q", map(self._objects.wire_id, unheld))
            self._outbox.add(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=ids))


def announce(kept: KeptObject, objects: ObjectTable, outbox: Outbox) -> None:
    """Queue what places an object in the present session."""
    instruction, payload = objects.announcement(kept)
    if kept.size < INLINE_BYTES:
        outbox.add(instruction, payload)
    else:
        outbox.add_object(instruction, kept)


def _why_not_again(run: Optional[Run]) -> str:
    if run is None:
        return "it cannot be sent a second time"
    # SCL-CLT-007
    if run.was_sent and run.options is not None and run.options.at_most_once:
        return "it may have begun, and may run at most once"
    return ""


def _not_again(why: str) -> DisconnectedError:
    return DisconnectedError(f"the task was unfinished when the connection to the scheduler ended, and {why}")
