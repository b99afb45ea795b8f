"""How much more a client may submit.

    submit ──▶ next id < look_at? ──▶ goes on          TaskEcho ──▶ on_task_echo ──▶ wakes who waits
                      └── look: counts, or waits ─────────────────────┘

Rules:
- The scheduler grants so many tasks and bytes in flight, and tells what it has released; a task may be submitted while
  both are below their limits.
- Looking at it costs nothing a task: `look_at` is the id of the next task before which it has to be looked at.
- Protected by its client's lock, like the outbox. A wait lets go of the lock, can be interrupted, and ends when the
  client does.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from scaler import blocking
from scaler.values.payload import INLINE_BYTES
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from scaler.client.shell.client_shell import ClientCore

_TASKS_BETWEEN_LOOKS = 1000
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
        lock: the client's.
        limits: what the scheduler grants.
        submitted: the client's outbox.
    """

    def __init__(self, lock: threading.Lock, limits: m.Limits, submitted: Submitted) -> None:
        self.look_at = 0
        self._renewed = threading.Condition(lock)
        self._submitted = submitted
        with lock:
            self.restart(limits)

    def restart(self, limits: m.Limits) -> None:
        """A session begins: what is submitted from now on is in flight, tasks that are sent again included. The lock is
        held.
        """
        self._set_limits(limits.tasks_in_flight, limits.bytes_in_flight)
        self._tasks_before, self._bytes_before = self._submitted.task_count, self._submitted.task_bytes
        self._tasks_released = self._bytes_released = 0
        self.wake()

    def _set_limits(self, tasks: int, size: int) -> None:
        self._tasks_limit, self._bytes_limit = tasks or _NO_LIMIT, size or _NO_LIMIT

    def on_task_echo(self, echo: m.TaskEcho) -> None:
        """The scheduler released something."""
        with self._renewed:
            self._set_limits(echo.tasks_in_flight, echo.bytes_in_flight)
            self._tasks_released, self._bytes_released = echo.tasks_released, echo.bytes_released
            self.wake()

    def wake(self) -> None:
        """Let those who wait look again. The lock is held."""
        self.look_at = 0
        self._renewed.notify_all()

    def look(self, next_id: int) -> bool:
        """Whether a task may be submitted now; if so, `look_at` is set. The lock is held."""
        tasks_left = self._tasks_limit - (self._submitted.task_count - self._tasks_before - self._tasks_released)
        bytes_left = self._bytes_limit - (self._submitted.task_bytes - self._bytes_before - self._bytes_released)
        # SCL-CLT-002
        if tasks_left <= 0 or bytes_left <= 0:
            return False
        self.look_at = next_id + max(1, min(tasks_left, bytes_left // INLINE_BYTES, _TASKS_BETWEEN_LOOKS))
        return True

    def await_room(self, core: ClientCore) -> None:
        """Return as soon as a task may be submitted. The core's lock is held; a wait lets go of it."""
        while not self.look(core.next_task_id):
            core.lock.release()
            try:
                with blocking.announced(), core.lock:
                    if core.closed_because is None and not self.look(core.next_task_id):
                        self._renewed.wait()
            finally:
                _take_again(core.lock)
            core.check_open()


def _take_again(lock: threading.Lock) -> None:
    """Take a lock that the caller lets go of, also when he is interrupted meanwhile."""
    try:
        lock.acquire()
    except KeyboardInterrupt:
        lock.acquire()
        raise
