"""A place where a client learns that it submits from inside a task, how urgent that is, and with which code it runs.

Rules:
- What a task submits goes before the task itself and all its like: it is finished before others of them begin, so that
  the tasks that wait for others are as few as the recursion is deep, not as many as it has branches.
- A processor says how urgent its task is; elsewhere nothing is asked.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Tuple

if TYPE_CHECKING:
    from scaler.client.options import Options
    from scaler_protocol import messages as m

HIGHEST_PRIORITY = (1 << 31) - 1

priority_of_task: Optional[Callable[[], Optional[int]]] = None
"""The priority of the task that runs in this process, None between tasks; None itself in a process that runs none."""


class CodeOfTasks(NamedTuple):
    """The code that all tasks of this process run with.

    Parameters:
        key: of processors with this code.
        folders: in which archives were unpacked, in the order of the import path.
    """

    key: str
    folders: Tuple[str, ...]


code: Optional[CodeOfTasks] = None
"""None in a process that runs no tasks, or tasks that need no code of their client."""


def set_hook(priority: Callable[[], Optional[int]]) -> None:
    """Have clients in this process ask for the priority of the task that runs."""
    global priority_of_task
    priority_of_task = priority


def message_inside(options: Options) -> Optional[m.TaskOptions]:
    """What travels with tasks of these options that are submitted here, inside a task."""
    priority = priority_of_task() if priority_of_task is not None else None
    return options.message() if priority is None else _message_above(options, priority)


@lru_cache(maxsize=1024)
def _message_above(options: Options, priority: int) -> Optional[m.TaskOptions]:
    if options.priority > priority:
        return options.message()
    return options.refined(priority=min(priority + 1, HIGHEST_PRIORITY)).message()
