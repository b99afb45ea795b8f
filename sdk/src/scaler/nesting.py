"""How a client learns that it submits from inside a task, with which priority, and with which code the task runs.

Rules:
- Nested tasks run before their parent's siblings: they finish before other siblings start, so the number of waiting
  tasks is the depth of the recursion, not the number of its branches.
- A processor provides the priority of its task; other processes provide none.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Tuple

if TYPE_CHECKING:
    from scaler.client.client_options import Options
    from scaler_protocol import messages as m

HIGHEST_PRIORITY = (1 << 31) - 1

SYNCHRONOUS = "synchronous"
"""In the place of a scheduler's address: the client runs its tasks itself."""


class _ThisThread(threading.local):
    is_in_synchronous_task = False


this_thread = _ThisThread()
"""Whether a task of a synchronous client runs in this thread, so that `Client()` is another one."""

priority_of_task: Optional[Callable[[], Optional[int]]] = None
"""Returns the priority of the task that runs in this process, None between tasks; None in other processes."""


class CodeOfTasks(NamedTuple):
    """The code that all tasks of this process run with.

    Parameters:
        key: of the processors with this code.
        folders: with the unpacked archives, in the order of the import path.
    """

    key: str
    folders: Tuple[str, ...]


code: Optional[CodeOfTasks] = None
"""None in a process that runs no tasks, or tasks that need no code of their client."""


def set_hook(priority: Callable[[], Optional[int]]) -> None:
    """Let clients in this process ask for the priority of the running task."""
    global priority_of_task
    priority_of_task = priority


def message_inside(options: Options) -> Optional[m.TaskOptions]:
    """The options message for tasks with these options, submitted here, inside a task."""
    priority = priority_of_task() if priority_of_task is not None else None
    return options.message() if priority is None else _message_above(options, priority)


@lru_cache(maxsize=1024)
def _message_above(options: Options, priority: int) -> Optional[m.TaskOptions]:
    if options.priority > priority:
        return options.message()
    return options.refined(priority=min(priority + 1, HIGHEST_PRIORITY)).message()
