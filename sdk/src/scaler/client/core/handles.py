"""What the core knows of futures: nothing but a few fields, which are its own.

Rules: whoever has a handle's fields set by others than the core and the shell's I/O thread breaks the client. The shell
gives a handle its outcome; the core says when and which.
"""

from __future__ import annotations

from typing import Any, Optional, Protocol, Sequence, Union

NOT_NUMBERED = -1
"""The task id of a future that the core has not seen yet."""

REFUSED = -2
"""The task id of a future whose function was let go before the core saw it: it has to be submitted again."""

Buffer = Union[bytes, bytearray, memoryview]


class TaskHandle(Protocol):
    """What stands for a task, to whoever waits for it."""

    _task_id: int
    _source: Any
    """What the task is sent again from; None once it has its outcome, or where it cannot be sent again."""
    _is_cancel_asked: bool
    """Its cancellation was asked for, and has not been answered."""


Handles = Sequence[TaskHandle]


class Asker(Protocol):
    """Whoever waits for an answer; the shell knows how to tell it."""

    def put(self, answer: Any) -> Optional[Any]: ...
