"""How many more tasks the scheduler accepts from this client.

    outbox: counts submissions ────────┐
    TaskEcho: reports releases ────────┴─▶ tasks_left, bytes_left ──▶ room: how many tasks may come without asking

Rules:
- The scheduler grants a number of tasks and bytes in flight, and reports what it has released. A task may be submitted
  while both are below their limits.
- `room` is how many tasks user threads may submit without asking for each. It is MARGIN_TASKS below the limit, because
  several threads may take the last place at the same time. A thread that finds no room asks, and is admitted exactly.
"""

from __future__ import annotations

from typing import Protocol

from scaler.values.sizes import INLINE_BYTES
from scaler_protocol.wire import messages as m

MARGIN_TASKS = 32
_NO_LIMIT = 1 << 62


class Submitted(Protocol):
    """Counts what was submitted."""

    @property
    def task_count(self) -> int: ...

    @property
    def task_bytes(self) -> int: ...


class Credit:
    """The credit of one client.

    Parameters:
        limits: granted by the scheduler.
        submitted: the client's outbox.
    """

    def __init__(self, limits: m.Limits, submitted: Submitted) -> None:
        self._submitted = submitted
        self.restart(limits)

    def restart(self, limits: m.Limits) -> None:
        """A session begins: what is submitted from now on is in flight, tasks that are sent again included."""
        self._set_limits(limits.tasks_in_flight, limits.bytes_in_flight)
        self._tasks_before, self._bytes_before = self._submitted.task_count, self._submitted.task_bytes
        self._tasks_released = self._bytes_released = 0

    def _set_limits(self, tasks: int, size: int) -> None:
        self._tasks_limit, self._bytes_limit = tasks or _NO_LIMIT, size or _NO_LIMIT

    def on_task_echo(self, echo: m.TaskEcho) -> None:
        """The scheduler released something."""
        self._set_limits(echo.tasks_in_flight, echo.bytes_in_flight)
        self._tasks_released, self._bytes_released = echo.tasks_released, echo.bytes_released

    @property
    def tasks_left(self) -> int:
        return self._tasks_limit - (self._submitted.task_count - self._tasks_before - self._tasks_released)

    @property
    def bytes_left(self) -> int:
        return self._bytes_limit - (self._submitted.task_bytes - self._bytes_before - self._bytes_released)

    @property
    def is_left(self) -> bool:
        """Whether a task may be submitted now."""
        # SCL-CLT-002
        return self.tasks_left > 0 and self.bytes_left > 0

    @property
    def room(self) -> int:
        """How many tasks with small arguments may be submitted without asking for each one."""
        tasks, small = self.tasks_left, self.bytes_left // INLINE_BYTES
        room = (tasks if tasks < small else small) - MARGIN_TASKS
        return room if room > 0 else 0
