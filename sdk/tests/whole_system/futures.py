"""Futures and questions of simulated users: they check that each ends once, and as it may.

Rules: what a user sees is judged here, and nowhere else. A success has exactly the right bytes; whatever else it is has
to have a reason that the simulation knows of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from whole_system.user_tasks import Task

from scaler.client.core.handles import NOT_NUMBERED, REFUSED
from scaler.exceptions import ActorLostError, DisconnectedError, MissingObjects, ObjectStorageFullError
from scaler_protocol import decode_struct
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from whole_system.users import User


class Asker:
    """A caller that waits for an answer."""

    def __init__(self, open_askers: Dict[Asker, None], then: Callable[[Any], None]) -> None:
        self._open_askers = open_askers
        self._then = then

    def put(self, answer: Any) -> None:
        assert self in self._open_askers, "an asker got two answers, or no longer waits"
        del self._open_askers[self]
        self._then(answer)


class Future:
    """What a user has in hand.

    Parameters:
        resubmit: called when its function had been let go before the core saw it.
    """

    def __init__(self, user: User, task: Task, resubmit: Optional[Callable[[Future], None]] = None) -> None:
        self._task_id = NOT_NUMBERED
        self._source: Any = None
        self._is_cancel_asked = False
        self.user = user
        self.task = task
        self.is_in_hand = True  # of the user: `submit` has returned
        self.is_forced = False  # its user cancels it even if it runs
        self.kind = ""  # how it has ended
        self.value = b""
        self.then: Callable[[], None] = lambda: None  # continues the user that waits for its end
        self._resubmit = resubmit

    def on_applied(self) -> None:
        """The core has seen it, or has answered."""
        if self._task_id == REFUSED and not self.kind:
            self._task_id = NOT_NUMBERED
            if self._resubmit is None:
                raise AssertionError(f"task {self.task.key} was refused, and its function was held")
            self._resubmit(self)

        elif self._task_id >= 0:
            self.is_in_hand = True

    def on_cancel_answered(self) -> None:
        assert not self.kind, "a cancellation is answered after the end"

    def end(self, kind: str, value: Any = None) -> None:
        """It has an outcome."""
        self.user.world.say(self.user.host.name, "task", self.task.key, kind, value if kind != "result" else "")
        assert not self.kind, f"task {self.task.key} ended twice: {self.kind}, then {kind}"
        self.kind = kind
        self._source = None
        self.user.system.outcomes += 1
        self.user.unfinished.pop(self.task.key, None)
        if kind == "result":
            assert not self.task.is_raising, f"task {self.task.key} has a result, and should have raised"
            assert value == self.task.expected, f"task {self.task.key} has a wrong result: {value[:80]!r}"
            self.value = value
        elif kind == "cancelled":
            self._check_cancelled()
        elif kind == "failure":
            self._check_failure(decode_struct(m.Failure, value))
        elif kind == "after":
            assert value.task in self.task.needed and value.kind not in ("", "result", "cancelled")
        else:
            self._check_error(value)
        self.then()

    def _check_cancelled(self) -> None:
        if self.user.host.is_leaving or self.user.host.ended is not None:
            return
        wanted = any(each.is_cancel_wanted for each in self.task.ancestry())
        assert wanted, f"task {self.task.key} is cancelled, and its user did not ask for that"

    def _check_failure(self, failure: m.Failure) -> None:
        reasons = [each for each in self.task.ancestry() if self._explains(each, failure)]
        assert reasons, f"task {self.task.key} failed for no good reason: {failure.kind!r}: {failure.message}"

    def _explains(self, task: Task, failure: m.Failure) -> bool:
        """Whether the outcome of a task may be this failure."""
        kind, kinds, system = failure.kind, m.FailureKind, self.user.system
        if kind == kinds.TASK_RAISED:
            return task.is_raising and failure.message == task.payload.decode()
        if kind == kinds.PROCESSOR_DIED:
            attempts = task.death_count + max(0, task.sent_count - 1)  # a lost worker counts as well
            return task.death_count > 0 and (task.at_most_once or attempts > task.retries)
        if kind == kinds.WORKER_LOST:
            most = 1 if task.at_most_once else system.scheduler.maximum_attempts
            # What a worker hands over before it leaves may be lost by the scheduler.
            losses = system.scheduler.worker_losses + system.scheduler.storage_losses
            return losses > 0 and task.sent_count >= most
        if kind == kinds.ACTOR_LOST:
            return task.actor is not None
        if kind == kinds.REJECTED:
            return system.scheduler.may_reject(task.tenant)
        if kind in (kinds.OBJECT_MISSING, kinds.ARGUMENT_NOT_LOADED, kinds.FUNCTION_NOT_LOADED):
            if "cannot run again" in failure.message and "does not exist" in failure.message:
                return False  # what it needs may be lost, and is not let go of
            has_no_room = kind == kinds.FUNCTION_NOT_LOADED and failure.message == "no space left on device"
            is_over_quota = not system.scheduler.keeps_all_objects(task.tenant)
            is_named = kind != kinds.OBJECT_MISSING or failure.missing_reason != m.MissingReason.UNKNOWN
            has_lost_bytes = system.has_lost_bytes if is_named else system.has_lost_files
            return has_lost_bytes or task.is_given_up or has_no_room or is_over_quota
        return False

    def _check_error(self, error: Exception) -> None:
        host = self.user.host
        if isinstance(error, (MissingObjects, ObjectStorageFullError)):
            assert self.user.system.has_lost_bytes, f"the result of task {self.task.key} is lost"
            return
        if isinstance(error, ActorLostError):
            assert self.task.actor is not None and host.session_losses, str(error)
            return
        assert isinstance(error, DisconnectedError), error
        if "may run at most once" in str(error):
            assert self.task.at_most_once and host.session_losses, str(error)
        else:
            assert host.session.state.value == "ended", str(error)
