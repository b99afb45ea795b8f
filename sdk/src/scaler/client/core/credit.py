"""How many more tasks the scheduler takes.

    outbox: counts what was submitted ─┐
    TaskEcho: says what was released ──┴─▶ tasks_left, bytes_left ──▶ room: how many tasks may come without asking

Rules:
- The scheduler grants so many tasks and bytes in flight, and tells what it has released; a task may be submitted while
  both are below their limits.
- `room` is what user threads may submit without asking one by one. It is short of the limit by MARGIN_TASKS, since
  several threads may find the last place free at the same time; who finds no room asks, and is let in exactly.
"""

from __future__ import annotations

from typing import Protocol

from scaler.values.sizes import INLINE_BYTES
from scaler_protocol.wire import messages as m

MARGIN_TASKS = 32
_NO_LIMIT = 1 << 62


class Submitted(Protocol):
    """Who counts what was submitted."""

    @property
    def task_count(self) -> int: ...

    @property
    def task_bytes(self) -> int: ...


class Credit:
    """The credit of one client.

    Parameters:
        limits: what the scheduler grants.
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
        """How many tasks with small arguments may be submitted without asking for each."""
        return max(0, min(self.tasks_left, self.bytes_left // INLINE_BYTES) - MARGIN_TASKS)
