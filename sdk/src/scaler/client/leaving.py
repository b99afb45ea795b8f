"""The warning about tasks that the end of a client's `with` block cancelled."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import ExitStack
from types import FrameType
from typing import Optional

from scaler.exceptions import UnfinishedTasksWarning

_NOT_THE_USERS = (os.path.dirname(os.path.dirname(__file__)) + os.sep, ExitStack.__exit__.__code__.co_filename)


def warn_of_cancelled(count: int) -> None:
    """Warn at the user's `with` statement that its end has cancelled `count` tasks."""
    tasks = "1 unfinished task was" if count == 1 else f"{count} unfinished tasks were"
    warnings.warn(
        f"{tasks} cancelled because the client's `with` block ended: wait for the futures before it ends, for example"
        " with future.result() or client.wait(futures)",
        UnfinishedTasksWarning,
        stacklevel=_users_level(),
    )


def _users_level() -> int:
    """The `stacklevel` of the first caller that is neither of this package nor of `contextlib`."""
    level = 1
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back
        level += 1
    return level
