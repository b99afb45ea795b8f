"""The fields of a future that the core uses.

Rules: only the core and the shell's I/O thread set these fields. The shell sets the outcome when the core says so.
"""

from __future__ import annotations

from typing import Any, Optional, Protocol, Sequence, Union

NOT_NUMBERED = -1
"""The task id of a future that the core has not seen yet."""

REFUSED = -2
"""The task id of a future whose function was released before the core saw it: it has to be submitted again."""

Buffer = Union[bytes, bytearray, memoryview]


class TaskHandle(Protocol):
    """Stands for a task, for the code that waits for it."""

    _task_id: int
    _source: Any
    """What is needed to send the task again; None once it has its outcome, or if it cannot be sent again."""
    _is_cancel_asked: bool
    """Its cancellation was requested and has not been answered."""


Handles = Sequence[TaskHandle]


class Asker(Protocol):
    """A thread that waits for an answer; the shell knows how to notify it."""

    def put(self, answer: Any) -> Optional[Any]: ...
