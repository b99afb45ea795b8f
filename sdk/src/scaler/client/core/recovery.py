"""From one session to the next: what a client does when its connection has ended.

    connection lost ─▶ connect: try again, ever more slowly ─▶ Welcome ─▶ start_session: fill the outbox
                          │
                          └─▶ timeout_seconds are over: every future fails, with the reason

Rules:
- The new scheduler, or the old one that has dropped the old session, knows nothing of this client. It is sent whatever
  unfinished tasks need, under the ids of the new session, in the order in which it was sent at first.
- What the old session still had to be told is of no interest. A task that was to be cancelled is.
- One outcome for each future: a task without one is sent again, under its number; outcomes of the old session cannot
  arrive in the new one, for that is another connection. A task that may run at most once is not sent a second time.
- A scheduler that drops us again and again, soon after it has welcomed us, does not keep anybody waiting for ever: time
  counts from the first loss until a session has lasted, or has brought an outcome.
- Called by the I/O thread; `take_cancelled` and `start_session` with the client's lock held. Whoever takes a future out
  of the table gives it its outcome; others may do so at any time, when they cancel.
"""

from __future__ import annotations

import logging
import time
from array import array
from itertools import groupby
from typing import Callable, Dict, List, Optional, Set, Tuple, Union

from scaler.client.core.deferring import PREDECESSORS, DeferredTask
from scaler.client.core.kept_objects import KeptObject, ObjectChannel
from scaler.client.core.outbox import Outbox, Run, TaskRun
from scaler.client.future import ScalerFuture
from scaler.client.shell.transport import NotWantedError, Transport
from scaler.exceptions import DisconnectedError, ProtocolVersionError, SchedulerRefusedError, SchedulerUnreachableError
from scaler_protocol import messages as m

LASTING_SECONDS = 5.0
"""A session that has lasted for so long, or for half the client's time-out, is no failed attempt."""

logger = logging.getLogger("scaler")


class Recovery:
    """Parameters:
    needs: the objects that unfinished tasks have as arguments, by task.
    timeout_seconds: how long to be without a scheduler.
    """

    def __init__(
        self,
        transport: Transport,
        objects: ObjectChannel,
        outbox: Outbox,
        needs: Dict[int, Tuple[KeptObject, ...]],
        timeout_seconds: float,
    ) -> None:
        self.lost_because: Optional[Exception] = None
        self._transport = transport
        self._objects = objects
        self._outbox = outbox
        self._needs = needs
        self._timeout_seconds = timeout_seconds
        self._deferred: List[DeferredTask] = []
        self._lost_at: Optional[float] = None  # first, since a session has lasted
        self._welcomed_at = time.monotonic()
        self._outcomes_before = 0  # of all sessions before this one
        self._lasting_seconds = min(LASTING_SECONDS, timeout_seconds / 2)

    def on_time(self, now: float, outcomes: int) -> None:
        """Notice that the present session lasts.

        Parameters:
            outcomes: how many tasks of this client have ended, in whatever way.
        """
        has_lasted = now - self._welcomed_at > self._lasting_seconds or outcomes > self._outcomes_before
        if self._lost_at is not None and has_lasted:
            self._lost_at = None
            self._transport.came_to_stay()

    def take_cancelled(self, futures: Dict[int, ScalerFuture]) -> List[ScalerFuture]:
        """Tasks whose cancellation was asked for and not answered: they are not sent again, and that is the answer."""
        asked = [future for future in list(futures.values()) if future._is_cancel_asked]
        return [future for future in asked if futures.pop(future.task_id, None) is not None]

    def connect(
        self, outcomes: int, unfinished: int, is_wanted: Callable[[], bool]
    ) -> Union[m.Welcome, Exception, None]:
        """A new session, the error that ends this client, or None when it is not wanted any more."""
        cause, self.lost_because = self.lost_because, None
        now = time.monotonic()
        self.on_time(now, outcomes)
        self._outcomes_before = outcomes
        if self._lost_at is None:
            self._lost_at = now
        address, timeout_seconds = self._transport.address, self._timeout_seconds
        logger.warning(
            "Client: %s; trying to connect again for %.0f seconds, %d tasks are unfinished",
            cause,
            max(0.0, self._lost_at + timeout_seconds - now),
            unfinished,
        )
        try:
            welcome = self._transport.connect_again(self._lost_at + timeout_seconds, is_wanted)
        except NotWantedError:
            return None
        except (ProtocolVersionError, SchedulerRefusedError) as error:
            return DisconnectedError(f"{cause}; then {error}")
        except SchedulerUnreachableError as error:
            text = (
                f"{cause}; no scheduler took this client back within {timeout_seconds:g} s (timeout_seconds), the last"
                f" attempt ended with: {error}. Start one with `scaler_scheduler {address}`, then make a new Client"
            )
            return DisconnectedError(text)
        self._welcomed_at = time.monotonic()
        return welcome

    def start_session(
        self, welcome: m.Welcome, futures: Dict[int, ScalerFuture]
    ) -> List[Tuple[ScalerFuture, DisconnectedError]]:
        """Fill the outbox with what the new session has to know; returns futures of tasks that end here."""
        self._objects.start_session(welcome)
        # SCL-SES-021
        self._outbox.take()
        lost: List[Tuple[ScalerFuture, DisconnectedError]] = []
        announced: Set[int] = set()
        for kept in self._objects.kept():
            self._announce(kept, announced)
        count = 0
        for run, group in groupby(list(futures.values()), lambda future: future._source):
            if isinstance(run, DeferredTask):
                continue  # no scheduler knows them
            again = list(group)
            why_not = self._why_not_again(run)
            if run is None or why_not:
                taken = [future for future in again if futures.pop(future.task_id, None) is not None]
                lost += [(future, _not_again(why_not)) for future in taken]
                continue
            if isinstance(run, TaskRun) and run.futures_needed:
                again = [future for future in again if not self._defer(run, future, welcome)]
                if not again:
                    continue
            # SCL-CLT-006
            for function_object in run.function_objects:
                self._announce(function_object, announced)
            self._outbox.add_again(run, [future.task_id for future in again])
            count += len(again)
        self._delete_unheld(announced)
        logger.warning("Client: connected again as session %d, %d tasks were sent again", welcome.session, count)
        return lost

    def _defer(self, run: TaskRun, future: ScalerFuture, welcome: m.Welcome) -> bool:
        """Whether a task cannot wait at the new scheduler for all that it needs, since that will not be run there."""
        needed = run.futures_needed.get(future.task_id, ())
        here = {task.future.task_id for task in self._deferred}
        if not needed or (
            PREDECESSORS in welcome.features
            and not any(
                each.done()
                or each.task_id > future.task_id
                or each.task_id in here
                or type(each._source) is DeferredTask
                for each in needed
            )
        ):
            return False
        self._deferred.append(DeferredTask.taken_from(run, future))
        return True

    def take_deferred(self) -> List[DeferredTask]:
        """Tasks that have to wait in this client."""
        deferred, self._deferred = self._deferred, []
        return deferred

    def _why_not_again(self, run: Optional[Run]) -> str:
        if run is None:
            return "it cannot be sent a second time"
        # SCL-CLT-007
        if run.was_sent and run.options is not None and run.options.at_most_once:
            return "it may have begun, and may run at most once"
        return ""

    def _announce(self, kept: KeptObject, announced: Set[int]) -> None:
        if kept.object_id not in announced and self._objects.is_taken(kept):  # else tasks that need it are lost
            announced.add(kept.object_id)
            self._outbox.add(*self._objects.announcement(kept))

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


def _not_again(why: str) -> DisconnectedError:
    return DisconnectedError(f"the task was unfinished when the connection to the scheduler ended, and {why}")
