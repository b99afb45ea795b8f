"""Accounts for what one client has in flight.

    Task ──▶ submit(...)      outcomes ──▶ release(...) ──▶ renewal(): a TaskEcho, so that the client may go on

Rules:
- In flight is what the client has submitted and the scheduler has not released: unfinished tasks, the payloads of
  batches that have any, and objects that are the arguments of one task. What is charged is released once.
- A client that keeps to its limits gets a renewal before it would have to stop, and not more often than once for each
  RENEWALS_PER_LIMIT-th part of a limit.
- What is granted may be less than the limit for a while. What a client sent before it could know is accepted: so a
  limit that the user lowers is granted at once, but a session enforces the largest that it has had.
"""

from __future__ import annotations

from typing import Optional

from scaler_protocol import messages as m

RENEWALS_PER_LIMIT = 8


class ClientFlow:
    """Counts since the session began.

    Parameters:
        tasks_limit, bytes_limit: what the client may have in flight; 0: no limit.
    """

    __slots__ = (
        "tasks_limit", "bytes_limit", "tasks_submitted", "bytes_submitted", "tasks_released", "bytes_released",
        "tasks_granted", "bytes_granted", "_is_news", "_tasks_published", "_bytes_published",
        "_tasks_enforced", "_bytes_enforced",
    )  # fmt: skip

    def __init__(self, tasks_limit: int, bytes_limit: int) -> None:
        self.tasks_limit = tasks_limit
        self.bytes_limit = bytes_limit
        self._tasks_enforced, self._bytes_enforced = tasks_limit, bytes_limit
        self.tasks_granted, self.bytes_granted = tasks_limit, bytes_limit
        self._is_news = False  # and the client does not know
        self.tasks_submitted = self.bytes_submitted = 0
        self.tasks_released = self.bytes_released = 0
        self._tasks_published = self._bytes_published = 0

    @property
    def tasks_in_flight(self) -> int:
        return self.tasks_submitted - self.tasks_released

    @property
    def bytes_in_flight(self) -> int:
        return self.bytes_submitted - self.bytes_released

    def allowed(self, tasks: int, bytes_before_last: int) -> int:
        """How many of the `tasks` of a batch its client may submit now.

        Parameters:
            bytes_before_last: of all payloads but the last: a task may be submitted while less than the limit is in
                flight, however large it is.
        """
        if self._bytes_enforced and self.bytes_in_flight + bytes_before_last >= self._bytes_enforced:
            return 0
        if not self._tasks_enforced:
            return tasks
        left = self._tasks_enforced - self.tasks_in_flight
        return tasks if tasks < left else max(left, 0)

    def set_limits(self, tasks: int, size: int) -> None:
        """The limits have changed; to be granted next. 0: no limit."""
        self.tasks_limit, self.bytes_limit = tasks, size
        self._tasks_enforced = _larger(self._tasks_enforced, tasks)
        self._bytes_enforced = _larger(self._bytes_enforced, size)

    def submit(self, tasks: int, size: int) -> None:
        """The client submitted tasks, or made an object, of `size` bytes."""
        self.tasks_submitted += tasks
        self.bytes_submitted += size

    def release(self, tasks: int, size: int) -> None:
        """The scheduler does not hold these any more."""
        self.tasks_released += tasks
        self.bytes_released += size

    def grant(self, tasks: int, size: int) -> bool:
        """From now on the client should have no more than this in flight; returns whether that is new."""
        if (tasks, size) == (self.tasks_granted, self.bytes_granted):
            return False
        self.tasks_granted, self.bytes_granted = tasks, size
        self._is_news = True
        return True

    # SCL-SCH-026
    def renewal(self, accepted_up_to: int) -> Optional[m.TaskEcho]:
        """The message that renews the client's credit, if enough was released."""
        tasks, size = self.tasks_released - self._tasks_published, self.bytes_released - self._bytes_published
        is_due = (
            0 < self.tasks_granted <= tasks * RENEWALS_PER_LIMIT or 0 < self.bytes_granted <= size * RENEWALS_PER_LIMIT
        )
        if not (is_due or self._is_news):
            return None
        self._is_news = False
        self._tasks_published, self._bytes_published = self.tasks_released, self.bytes_released
        return m.TaskEcho(
            accepted_up_to=max(0, accepted_up_to),
            tasks_in_flight=self.tasks_granted,
            bytes_in_flight=self.bytes_granted,
            tasks_released=self.tasks_released,
            bytes_released=self.bytes_released,
        )


def _larger(one: int, other: int) -> int:
    """The larger one of two limits, of which 0 means that there is none."""
    return max(one, other) if one and other else 0
